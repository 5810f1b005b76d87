/* The table through which Tensoryard uses devices in shared libraries, version 1.
 *
 * A driver library exports one function, tensoryard_driver, which returns the address of a table
 * that stays as it is while the library is loaded. See drivers.md for how to write one.
 *
 * Rules that hold for every function:
 *  - It returns one of the TY_ statuses. When that is not TY_OK it may say why in `error`.
 *  - It never throws, unwinds or jumps out.
 *  - It may be called from any thread. Calls for one queue come one after the other, calls for
 *    one buffer only while nobody else writes that buffer, all others may come at once.
 *  - Texts and arrays that it is given live until it returns; texts that it gives live as long as
 *    the library is loaded. Texts are UTF-8 and end after `size` bytes, not with a zero.
 *  - Sizes and offsets are in bytes. Shapes and strides have the fastest dimension first.
 *
 * All integers have fixed widths and no structure has padding that the compiler adds on a 64-bit
 * machine; other machines are not supported.
 */
#ifndef TENSORYARD_DRIVER_H
#define TENSORYARD_DRIVER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TY_MAGIC   0x52445954u /* "TYDR" in memory */
#define TY_VERSION 1u

/* Statuses. */
#define TY_OK            0
#define TY_FAILED        1 /* this call failed, the device goes on */
#define TY_OUT_OF_MEMORY 2
#define TY_UNSUPPORTED   3 /* the op, with these operands, is not for this device */
#define TY_CANCELLED     4 /* the abort flag was raised */
#define TY_LOST          5 /* the device is gone with all of its memory */

/* Kinds of device. */
#define TY_CPU            0u
#define TY_GPU            1u
#define TY_INTEGRATED_GPU 2u
#define TY_ACCELERATOR    3u

/* Flags of a device. */
#define TY_READS_HOST_MEMORY 1u /* it computes with plain host memory, too */

/* Flags of a buffer type. */
#define TY_HOST_MEMORY 1u /* buffer_base gives the address of plain host memory */

/* Kinds of parameter. */
#define TY_INTEGER 0u
#define TY_NUMBER  1u
#define TY_WORD    2u
#define TY_TYPE    3u /* an element type, by its GGUF number in `integer` */

/* Flags of a tensor. */
#define TY_PRESENT     1u /* absent operands are all zero */
#define TY_SAME_AS_DST 2u /* a source in the very memory of the destination, with its layout */

#define TY_NO_BINDING 0xffffffffu

typedef struct { const char *data; uint64_t size; } ty_text;

/* Where a function says what went wrong: up to `capacity` bytes at `data`, their count in `size`. */
typedef struct { char *data; uint64_t capacity; uint64_t size; } ty_error;

/* Things of the driver's own. */
typedef struct ty_buffer ty_buffer;
typedef struct ty_queue ty_queue;
typedef struct ty_program ty_program;

typedef struct {
    ty_text name;        /* short, such as "Card" */
    ty_text description; /* name of the hardware */
    ty_text id;          /* PCI address or the like; empty where there is none */
    uint32_t kind;
    uint32_t flags;
    uint64_t feature_count;
    uint64_t buffer_type_count; /* at least 1; the first is the default */
} ty_device_info;

typedef struct {
    ty_text name;       /* types of one name are the same memory for all devices of the driver */
    uint64_t alignment; /* of tensors in a buffer; a power of two */
    uint64_t max_size;  /* of one buffer */
    uint32_t flags;
    uint32_t reserved;
} ty_buffer_type_info;

typedef struct {
    ty_text name;
    uint32_t kind; /* says which of the following holds the value */
    uint32_t reserved;
    int64_t integer;
    double number;
    ty_text word;
} ty_parameter;

typedef struct {
    uint32_t flags;
    uint32_t dtype;   /* GGUF number of the element type: 0 is f32, 1 is f16, 26 is i32, ... */
    uint64_t ne[4];   /* elements along each dimension */
    uint64_t nb[4];   /* bytes from one element to the next; of block types, one block */
    uint64_t offset;  /* of the first element, from where the binding begins */
    uint32_t binding; /* number of the binding, or TY_NO_BINDING while asking */
    uint32_t reserved;
    ty_text buffer_type; /* empty where it is not known yet */
} ty_tensor;

typedef struct {
    ty_text name; /* of the tensor that it computes, for errors; empty while asking */
    ty_text op;   /* "mul_mat", "scale", "binary", ...: see drivers.md */
    const ty_parameter *parameters;
    uint64_t parameter_count;
    const ty_tensor *dst;
    const ty_tensor *sources;
    uint64_t source_count;
} ty_step;

/* Memory of a program. Both addresses are null where there are no bytes. */
typedef struct {
    ty_buffer *buffer; /* a buffer of this driver, or null */
    void *host;        /* address of the binding in host memory, or null */
    uint64_t offset;   /* where the binding begins in `buffer` */
    uint64_t size;     /* bytes from there on that the program reaches */
    uint32_t is_written;
    uint32_t reserved;
} ty_binding;

typedef struct {
    uint32_t magic;
    uint32_t version;
    uint64_t size; /* of this structure */
    ty_text name;  /* of the driver, as users write it before a colon */

    int32_t (*device_count)(uint64_t *count, ty_error *error);
    int32_t (*device_info)(uint64_t device, ty_device_info *info, ty_error *error);
    int32_t (*device_memory)(uint64_t device, uint64_t *free, uint64_t *total, ty_error *error);
    int32_t (*device_feature)(uint64_t device, uint64_t index, ty_text *name, ty_text *value,
                              ty_error *error);
    int32_t (*buffer_type_info)(uint64_t device, uint64_t index, ty_buffer_type_info *info,
                                ty_error *error);

    /* New memory may hold anything. Zero bytes are never asked for. */
    int32_t (*buffer_alloc)(uint64_t device, uint64_t buffer_type, uint64_t size,
                            ty_buffer **buffer, ty_error *error);
    int32_t (*buffer_free)(ty_buffer *buffer, ty_error *error);
    /* Called for types with TY_HOST_MEMORY only; others may leave it unsupported. */
    int32_t (*buffer_base)(ty_buffer *buffer, void **base, ty_error *error);
    /* Ranges were checked against the size of the buffer. */
    int32_t (*buffer_read)(const ty_buffer *buffer, uint64_t offset, void *bytes, uint64_t size,
                           ty_error *error);
    int32_t (*buffer_write)(ty_buffer *buffer, uint64_t offset, const void *bytes, uint64_t size,
                            ty_error *error);
    int32_t (*buffer_fill)(ty_buffer *buffer, uint64_t offset, uint64_t size, uint8_t byte,
                           ty_error *error);

    /* TY_OK, or TY_UNSUPPORTED with the reason. What is said here must hold: a step that was
     * claimed compiles and runs. */
    int32_t (*supports_op)(uint64_t device, const ty_step *step, ty_error *error);

    int32_t (*queue_open)(uint64_t device, ty_queue **queue, ty_error *error);
    int32_t (*queue_close)(ty_queue *queue, ty_error *error);
    /* Steps run in their order, each seeing what those before it wrote. */
    int32_t (*program_compile)(ty_queue *queue, const ty_step *steps, uint64_t step_count,
                               uint64_t binding_count, ty_program **program, ty_error *error);
    /* May come after the queue was closed. */
    int32_t (*program_free)(ty_program *program, ty_error *error);
    /* Starts the program; may return before it is done. `abort` turns from 0 to 1 when the work
     * is to stop, and is to be looked at often. Bindings stay valid until queue_synchronize
     * returns, the array itself only during the call. */
    int32_t (*queue_submit)(ty_queue *queue, const ty_program *program,
                            const ty_binding *bindings, uint64_t binding_count,
                            const volatile uint8_t *abort, ty_error *error);
    /* Waits for all that was submitted, and tells what went wrong in it. */
    int32_t (*queue_synchronize)(ty_queue *queue, ty_error *error);
} ty_driver;

/* The one exported function. */
const ty_driver *tensoryard_driver(void);

#ifdef __cplusplus
}
#endif

#endif
