//! The file type number: which type the large matrices of a file have.
//!
//! Its numbers differ from those of tensor types. Numbers 4, 5, 6 and those
//! from 27 on name no type that a file can have.

use tensoryard_tensor::DType;

const TABLE: [(u32, DType); 24] = [
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (7, DType::Q8_0),
    (8, DType::Q5_0),
    (9, DType::Q5_1),
    (10, DType::Q2K),
    (11, DType::Q3K),
    (12, DType::Q4K),
    (13, DType::Q5K),
    (14, DType::Q6K),
    (15, DType::Iq2Xxs),
    (16, DType::Iq2Xs),
    (17, DType::Iq3Xxs),
    (18, DType::Iq1S),
    (19, DType::Iq4Nl),
    (20, DType::Iq3S),
    (21, DType::Iq2S),
    (22, DType::Iq4Xs),
    (23, DType::Iq1M),
    (24, DType::BF16),
    (25, DType::Mxfp4),
    (26, DType::Nvfp4),
];

/// The type of the large matrices for a file type number (`general.file_type`
/// in GGUF, the last hyperparameter of a ggml file without its version).
pub fn dtype_of_ftype(ftype: u32) -> Option<DType> {
    TABLE.iter().find(|(number, _)| *number == ftype).map(|(_, dtype)| *dtype)
}

/// The file type number for matrices of a type, if files can have it.
pub fn ftype_of_dtype(dtype: DType) -> Option<u32> {
    TABLE.iter().find(|(_, known)| *known == dtype).map(|(number, _)| *number)
}
