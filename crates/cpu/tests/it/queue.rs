//! The device asked, and its queues given work, without plans.

use std::sync::Arc;

use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::ops::{MulMat, Scale, SoftMax, UnaryKind};
use tensoryard_graph::{DType, Layout, Op, Shape};
use tensoryard_runtime::{
    AbortSignal, Aliasing, Backend, BackendOptions, Buffer, Capabilities, Device, DeviceError,
    DeviceKind, MatrixOp, OpCase, Operand, Program, Region, Step, StepOp, Submission, Usage,
    host_buffer_type,
};

fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
}

fn operand(chunk: u32, dims: &[usize]) -> Operand {
    Operand {
        region: Region::Chunk(chunk),
        offset_bytes: 0,
        layout: layout(dims),
        buffer_type: Arc::clone(host_buffer_type()),
        aliasing: Aliasing::Disjoint,
    }
}

fn step(op: StepOp, sources: Vec<Option<Operand>>, dst: Operand) -> Step {
    Step { name: "step".to_owned(), op, dst, sources }
}

fn open(device: &CpuDevice, threads: usize) -> Box<dyn Backend> {
    device.open(&BackendOptions { threads }).unwrap()
}

fn buffer(values: &[f32]) -> Buffer {
    let mut buffer = Buffer::allocate(host_buffer_type(), 4 * values.len(), Usage::Any).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    buffer.memory_mut().write_bytes(0, &bytes).unwrap();
    buffer
}

fn values(buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.size()];
    buffer.memory().read_bytes(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn run(
    backend: &mut dyn Backend,
    program: &Arc<dyn Program>,
    buffers: &mut [Buffer],
) -> Result<Vec<f32>, DeviceError> {
    let lent = Submission::of_chunks(&mut *buffers);
    backend.submit(program, lent, &AbortSignal::new())?;
    backend.synchronize()?;
    Ok(values(&buffers[buffers.len() - 1]))
}

/// Asks without memory, as planning does.
fn supports(device: &CpuDevice, step: &Step) -> Result<(), String> {
    let sources: Vec<Option<Layout>> =
        step.sources.iter().map(|source| source.as_ref().map(|source| source.layout)).collect();
    let unknown = vec![None; sources.len()];
    let case =
        OpCase { op: &step.op, sources: &sources, buffer_types: &unknown, dst: &step.dst.layout };
    device.supports_op(&case).map_err(|unsupported| unsupported.to_string())
}

#[test]
fn device_and_queue_say_what_they_are() {
    let device = CpuDevice::new(Isa::scalar());
    let info = device.info();
    assert_eq!((info.name.as_str(), info.kind, &info.id), ("CPU", DeviceKind::Cpu, &None));
    assert!(!info.description.is_empty());
    let wanted =
        Capabilities { from_host_memory: true, mapped_files: true, ..Capabilities::default() };
    assert_eq!(device.capabilities(), wanted);
    let features = device.features();
    let feature = |wanted: &str| features.iter().find(|(name, _)| name == wanted);
    assert_eq!(feature("kernels").unwrap().1, Isa::scalar().to_string());
    let backend = open(&device, 1);
    assert_eq!(backend.name(), "CPU");
    assert!(Arc::ptr_eq(backend.default_buffer_type(), &device.buffer_types()[0]));
    assert!(!backend.is_asynchronous());
    let memory = device.memory();
    assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
}

#[test]
fn programs_made_for_other_numbers_of_threads_run_at_once_and_again() {
    const N: usize = 96;
    let device = CpuDevice::new(Isa::detect()).sharing_every_step();
    // y = w x, then softmax of a row of equal values.
    let steps = [
        step(
            StepOp::Op(Op::from(MulMat)),
            vec![Some(operand(0, &[N, N])), Some(operand(1, &[N, 4]))],
            operand(2, &[N, 4]),
        ),
        step(
            StepOp::Op(Op::from(SoftMax { scale: 1.0 })),
            vec![Some(operand(2, &[N, 4])), None],
            operand(3, &[N, 4]),
        ),
    ];
    let programs: Vec<Arc<dyn Program>> =
        [1, 2, 2].iter().map(|&threads| open(&device, threads).compile(&steps).unwrap()).collect();
    std::thread::scope(|scope| {
        for threads in [1, 2, 1, 2] {
            let (device, programs) = (&device, &programs);
            scope.spawn(move || {
                let mut backend = open(device, threads);
                let mut buffers =
                    [vec![0.5; N * N], vec![2.0; N * 4], vec![0.0; N * 4], vec![0.0; N * 4]]
                        .map(|values| buffer(&values));
                for program in programs.iter().cycle().take(30) {
                    let shares = run(&mut *backend, program, &mut buffers).unwrap();
                    // N products of 0.5 and 2, and N equal shares of 1.
                    assert_eq!(values(&buffers[2]), vec![N as f32; N * 4]);
                    assert!(shares.iter().all(|share| (share * N as f32 - 1.0).abs() < 1e-5));
                }
            });
        }
    });
}

#[test]
fn programs_of_other_devices_are_refused() {
    #[derive(Debug)]
    struct Foreign;
    impl Program for Foreign {
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }
    let mut backend = open(&CpuDevice::new(Isa::detect()), 1);
    let foreign: Arc<dyn Program> = Arc::new(Foreign);
    let error = run(&mut *backend, &foreign, &mut [buffer(&[1.0])]).unwrap_err();
    assert!(matches!(&error, DeviceError::ForeignProgram { device } if device == "CPU"));
}

#[test]
fn a_signal_given_before_the_work_stops_it() {
    let device = CpuDevice::new(Isa::detect());
    let scale = StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 }));
    let steps = [step(scale, vec![Some(operand(0, &[1]))], operand(1, &[1]))];
    for threads in [1, 2] {
        let mut backend = open(&device, threads);
        let program = backend.compile(&steps).unwrap();
        let mut buffers = [buffer(&[3.0]), buffer(&[7.0])];
        let abort = AbortSignal::new();
        abort.abort();
        let lent = Submission::of_chunks(&mut buffers);
        assert!(matches!(backend.submit(&program, lent, &abort), Err(DeviceError::Cancelled)));
        assert_eq!(values(&buffers[1]), [7.0]);
        assert_eq!(run(&mut *backend, &program, &mut buffers).unwrap(), [6.0]);
    }
}

#[test]
fn optional_operands_may_be_absent_anywhere_in_the_list() {
    let device = CpuDevice::new(Isa::detect());
    let mut backend = open(&device, 1);
    // Rows of w are (1, 2) and (3, 4); x is (5, 6), so that w x is (17, 39).
    let [w, x, bias, residual] =
        [operand(0, &[2, 2]), operand(1, &[2, 1]), operand(2, &[2]), operand(3, &[2, 1])];
    let contents: [&[f32]; 5] =
        [&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0], &[-20.0, 1.0], &[0.5, 0.25], &[0.0, 0.0]];
    let (bias, residual) = (Some(bias), Some(residual));
    let lists: [(Vec<Option<Operand>>, [f32; 2]); 6] = [
        (vec![], [17.0, 39.0]),
        (vec![None], [17.0, 39.0]),
        (vec![None, None], [17.0, 39.0]),
        (vec![bias.clone()], [0.0, 40.0]),
        (vec![None, residual.clone()], [17.5, 39.25]),
        (vec![bias, residual], [0.5, 40.25]),
    ];
    for (rest, wanted) in lists {
        let mut sources = vec![Some(w.clone()), Some(x.clone())];
        sources.extend(rest);
        let op =
            StepOp::Matrix { base: MatrixOp::MulMat(MulMat), activation: Some(UnaryKind::Relu) };
        let step = step(op, sources, operand(4, &[2, 1]));
        supports(&device, &step).unwrap();
        let program = backend.compile(&[step]).unwrap();
        let mut buffers = contents.map(buffer);
        assert_eq!(run(&mut *backend, &program, &mut buffers).unwrap(), wanted);
    }
    // e / (e + 1) and 1 / (e + 1), with the mask left out or not in the list.
    for sources in [vec![Some(operand(0, &[2]))], vec![Some(operand(0, &[2])), None]] {
        let step = step(StepOp::Op(Op::from(SoftMax { scale: 1.0 })), sources, operand(1, &[2]));
        supports(&device, &step).unwrap();
        let program = backend.compile(&[step]).unwrap();
        let shares = run(&mut *backend, &program, &mut [buffer(&[1.0, 0.0]), buffer(&[0.0; 2])]);
        let shares = shares.unwrap();
        assert!((shares[0] - 0.731_058_6).abs() < 1e-6 && (shares[1] - 0.268_941_4).abs() < 1e-6);
    }
}

#[test]
fn what_would_not_compile_is_not_claimed() {
    let device = CpuDevice::new(Isa::detect());
    let backend = open(&device, 1);
    let (w, x) = (operand(0, &[8, 3]), operand(1, &[8, 2]));
    let repeated = Layout::strided(DType::F32, Shape::new(&[3, 2]).unwrap(), [4, 0, 0, 0]).unwrap();
    let cases = [
        (vec![Some(w.clone()), Some(x.clone())], operand(2, &[3, 2]), None),
        (vec![Some(w.clone())], operand(2, &[3, 2]), Some("absent")),
        (vec![None, Some(x.clone())], operand(2, &[3, 2]), Some("absent")),
        (vec![Some(w.clone()), Some(operand(1, &[7, 2]))], operand(2, &[3, 2]), Some("differ")),
        (vec![Some(w.clone()), Some(x.clone())], operand(2, &[2, 3]), Some("the op gives")),
        (
            vec![Some(w), Some(x)],
            Operand { layout: repeated, ..operand(2, &[1]) },
            Some("the op gives"),
        ),
    ];
    for (sources, dst, wanted) in cases {
        let step = step(StepOp::Op(Op::from(MulMat)), sources, dst);
        let (claimed, compiled) = (supports(&device, &step), backend.compile(&[step]));
        assert_eq!(claimed.is_ok(), compiled.is_ok());
        match (claimed, wanted) {
            (Ok(()), None) => {}
            (Err(reason), Some(wanted)) => assert!(reason.contains(wanted), "{reason}"),
            (claimed, wanted) => panic!("{claimed:?}, wanted {wanted:?}"),
        }
    }
}
