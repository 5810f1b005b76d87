//! What simulated devices say of themselves, their memory, and how they are made.

use std::sync::Arc;

use tensoryard_graph::ops::{Binary, BinaryKind, MulMat, Scale, Unary, UnaryKind};
use tensoryard_graph::{DType, GraphBuilder, Layout, Op, OpKind, Shape};
use tensoryard_runtime::{
    BackendOptions, Buffer, Device, DeviceError, DeviceKind, Driver, MatrixOp, MemoryError, OpCase,
    Registry, RegistryError, StepOp, Usage, host_buffer_type,
};
use tensoryard_sim::{Faults, Shares, SimDriver, SimOptions};

use crate::support::{buffer, cpu, driver, row, sim, values};

#[test]
fn memory_is_not_the_hosts_and_reads_back() {
    let device = sim(SimOptions { fill: Some(0xff), ..SimOptions::named("A") });
    let kind = &device.buffer_types()[0];
    assert_eq!((kind.name(), kind.is_host(), kind.alignment()), ("A memory", false, 256));
    let written = buffer(&*device, &[1.0, -2.5]);
    assert!(written.memory().host().is_none());
    assert_eq!(values(&written, 2), [1.0, -2.5]);
    // New memory holds anything; here NaN.
    let fresh = Buffer::allocate(kind, 8, Usage::Any).unwrap();
    assert!(values(&fresh, 2).iter().all(|value| value.is_nan()));
    let mut cleared = fresh;
    cleared.memory_mut().clear(0).unwrap();
    assert_eq!(values(&cleared, 2), [0.0, 0.0]);
    assert_eq!(Buffer::allocate(kind, 0, Usage::Any).unwrap().size(), 0);
}

#[test]
fn tensors_are_copied_inside_and_between_simulated_memories() {
    let driver = driver();
    let a = driver.device(SimOptions::named("A")).unwrap();
    let b = driver.device(SimOptions { slow_copies: true, ..SimOptions::named("B") }).unwrap();
    let (mut x, y) = (buffer(&*a, &[1.0, 2.0, 3.0]), buffer(&*b, &[4.0, 5.0]));
    assert_eq!(x.memory_mut().copy_tensor(4, &row(1), None, 8), Ok(true));
    assert_eq!(values(&x, 3), [1.0, 3.0, 3.0]);
    assert_eq!(x.memory_mut().copy_tensor(0, &row(2), Some(y.memory()), 0), Ok(true));
    assert_eq!(values(&x, 3), [4.0, 5.0, 3.0]);
    assert!(x.memory_mut().copy_tensor(8, &row(2), Some(y.memory()), 0).is_err());
    // Host memory goes another way, and a device without copies makes none.
    let host = Buffer::allocate(host_buffer_type(), 12, Usage::Any).unwrap();
    assert_eq!(x.memory_mut().copy_tensor(0, &row(1), Some(host.memory()), 0), Ok(false));
    let mut y = y;
    assert_eq!(y.memory_mut().copy_tensor(0, &row(1), Some(x.memory()), 0), Ok(false));
    assert_eq!(values(&y, 2), [4.0, 5.0]);
    x.memory_mut().fill(4, 4, 0).unwrap();
    assert_eq!(values(&x, 3), [4.0, 0.0, 3.0]);
}

#[test]
fn the_cap_counts_all_buffers_until_they_are_dropped() {
    let device = sim(SimOptions { memory: 1000, ..SimOptions::named("A") });
    let kind = Arc::clone(&device.buffer_types()[0]);
    let first = Buffer::allocate(&kind, 600, Usage::Any).unwrap();
    let second = Buffer::allocate(&kind, 300, Usage::Any).unwrap();
    assert_eq!((device.memory().free, device.memory().total), (100, 1000));
    let error = Buffer::allocate(&kind, 101, Usage::Any).unwrap_err();
    assert!(matches!(error, MemoryError::NoRoom { bytes: 101, alignment: 256, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("A memory") && text.contains("100 of 1000 bytes are free"), "{text}");
    drop(first);
    assert_eq!(device.memory().free, 700);
    let third = Buffer::allocate(&kind, 700, Usage::Any).unwrap();
    drop((second, third));
    assert_eq!(device.memory().free, 1000);
}

#[test]
fn the_largest_buffer_is_a_limit_of_its_own() {
    let options = SimOptions { memory: 1000, max_buffer: 400, ..SimOptions::named("A") };
    let kind = Arc::clone(&sim(options).buffer_types()[0]);
    assert_eq!(kind.max_size(), 400);
    let error = Buffer::allocate(&kind, 401, Usage::Any).unwrap_err();
    assert!(matches!(error, MemoryError::TooLarge { bytes: 401, max: 400, .. }), "{error}");
    assert!(matches!(kind.allocate(401), Err(MemoryError::NoRoom { max: 400, .. })));
    // More than there is of it is as good as a limit.
    let kind =
        Arc::clone(&sim(SimOptions { memory: 10, ..SimOptions::named("B") }).buffer_types()[0]);
    assert_eq!(kind.max_size(), 10);
}

#[test]
fn padding_belongs_to_every_tensor() {
    let device = sim(SimOptions { padding: 24, ..SimOptions::named("A") });
    assert_eq!(device.buffer_types()[0].tensor_bytes(&row(10)), 64);
}

#[test]
fn an_allocation_fails_when_it_is_told_to() {
    let device = sim(SimOptions::named("A"));
    let kind = Arc::clone(&device.buffer_types()[0]);
    drop(Buffer::allocate(&kind, 8, Usage::Any).unwrap());
    device.inject(Faults { fail_allocation_at: Some(2), ..Faults::default() });
    drop(Buffer::allocate(&kind, 8, Usage::Any).unwrap());
    let error = Buffer::allocate(&kind, 8, Usage::Any).unwrap_err();
    assert!(matches!(&error, MemoryError::NoRoom { bytes: 8, .. }), "{error}");
    assert!(error.to_string().contains("told to fail"), "{error}");
    assert!(Buffer::allocate(&kind, 8, Usage::Any).is_ok());
    assert_eq!(device.counts().allocations, 4);
}

#[test]
fn ops_are_those_chosen_and_run_by_the_host() {
    let op = StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 }));
    let (sources, dst) = ([Some(row(8))], row(8));
    let case = OpCase { op: &op, sources: &sources, buffer_types: &[None], dst: &dst };
    let all = sim(SimOptions::named("A"));
    assert_eq!(all.supports_op(&case), Ok(()));
    let few = sim(SimOptions { ops: vec![OpKind::MulMat], ..SimOptions::named("B") });
    assert_eq!(few.supports_op(&case).unwrap_err().to_string(), "lacks scale");
    let short = sim(SimOptions { max_row: 7, ..SimOptions::named("C") });
    assert_eq!(short.supports_op(&case).unwrap_err().to_string(), "lacks rows beyond 7");
    let odd = [Some(row(8).permute([0, 1, 2, 3]).unwrap())];
    assert_eq!(all.supports_op(&OpCase { sources: &odd, ..case }), Ok(()));
    // What the host does not run, it does not run either.
    let quantised = DType::Q8_0;
    let shape = tensoryard_graph::Shape::new(&[32]).unwrap();
    let layout = tensoryard_graph::Layout::contiguous(quantised, shape).unwrap();
    let refused = all.supports_op(&OpCase { sources: &[Some(layout)], ..case });
    assert_eq!(refused, cpu().supports_op(&OpCase { sources: &[Some(layout)], ..case }));
    assert!(refused.is_err());
}

#[test]
fn arithmetic_and_functions_are_chosen_each() {
    let mut registry = Registry::new();
    registry.register(Arc::new(SimDriver::new(cpu()))).unwrap();
    let device = registry.select("sim:ops=mul_mat+add+gelu_erf").unwrap().device;
    let supports = |op: StepOp, sources: &[Option<Layout>]| {
        let buffer_types = vec![None; sources.len()];
        let case = OpCase { op: &op, sources, buffer_types: &buffer_types, dst: &row(8) };
        device.supports_op(&case).map_err(|error| error.to_string())
    };
    let binary = |kind| supports(StepOp::Op(Op::from(Binary { kind })), &[Some(row(8)); 2]);
    assert_eq!(binary(BinaryKind::Add), Ok(()));
    assert_eq!(binary(BinaryKind::Mul), Err("lacks mul".to_owned()));
    let unary = |kind| supports(StepOp::Op(Op::from(Unary { kind })), &[Some(row(8))]);
    assert_eq!(unary(UnaryKind::GeluErf), Ok(()));
    assert_eq!(unary(UnaryKind::Exp), Err("lacks exp".to_owned()));
    // What is fused must be claimed in all its parts.
    let weight = Layout::contiguous(DType::F32, Shape::new(&[8, 8]).unwrap()).unwrap();
    let fused = |activation| {
        let base = MatrixOp::MulMat(MulMat);
        let sources = [Some(weight), Some(row(8)), Some(row(8)), None];
        supports(StepOp::Matrix { base, activation }, &sources)
    };
    assert_eq!(fused(Some(UnaryKind::GeluErf)), Ok(()));
    assert_eq!(fused(Some(UnaryKind::Relu)), Err("lacks relu".to_owned()));
    let norm = StepOp::NormAffine { epsilon: 1e-5 };
    assert_eq!(supports(norm, &[Some(row(8)); 3]), Err("lacks norm".to_owned()));
    let all = registry.select("sim:ops=binary+unary").unwrap().device;
    let lacks = all.features().into_iter().find(|(name, _)| name == "lacks").unwrap().1;
    let lacks: Vec<&str> = lacks.split('+').collect();
    assert!(lacks.contains(&"mul_mat") && !lacks.contains(&"mul") && !lacks.contains(&"exp"));
}

#[test]
fn pinned_memory_is_host_memory_offered_beside_its_own() {
    let device = sim(SimOptions::named("A"));
    let pinned = device.buffer_types().iter().find(|kind| kind.name() == "SIM_Pinned").unwrap();
    assert!(pinned.is_host() && device.capabilities().host_buffers);
    let mut buffer = Buffer::allocate(pinned, 8, Usage::Any).unwrap();
    buffer.memory_mut().clear(7).unwrap();
    assert_eq!(buffer.memory().host().unwrap().slice(0, 8).unwrap(), [7; 8]);
    assert!(cpu().supports_buffer_type(&**pinned));
    assert!(!device.supports_buffer_type(&**pinned));
}

#[test]
fn host_memory_is_read_on_request_only() {
    let alone = sim(SimOptions::named("A"));
    let reading = sim(SimOptions { reads_host: true, ..SimOptions::named("B") });
    let sharing = sim(SimOptions { shares: Shares::Host, ..SimOptions::named("C") });
    let cpu = cpu();
    let packed = &cpu.buffer_types()[1];
    for (device, reads) in [(&alone, false), (&reading, true), (&sharing, true)] {
        assert_eq!(device.supports_buffer_type(&**host_buffer_type()), reads, "{device:?}");
        assert_eq!(device.supports_buffer_type(&**packed), reads, "{device:?}");
        assert_eq!(device.capabilities().mapped_files, reads, "{device:?}");
    }
    assert!(sharing.buffer_types()[0].is_host());
}

#[test]
fn threads_belong_to_simulated_cpus() {
    let gpu = sim(SimOptions::named("A"));
    let options = BackendOptions { threads: 2 };
    assert!(matches!(gpu.open(&options), Err(DeviceError::Option { option: "threads", .. })));
    let cpu = sim(SimOptions { kind: DeviceKind::Cpu, ..SimOptions::named("B") });
    assert!(cpu.open(&options).is_ok());
}

#[test]
fn a_lost_device_has_no_memory_and_no_queues() {
    let device = sim(SimOptions::named("A"));
    let mut buffer = buffer(&*device, &[1.0]);
    device.lose("unplugged");
    let lost = |error: MemoryError| {
        assert_eq!(error, MemoryError::Lost { device: "A".to_owned() });
    };
    lost(buffer.memory().read_tensor(0, &row(1), &mut [0; 4]).unwrap_err());
    lost(buffer.memory_mut().write_tensor(0, &row(1), &[0; 4]).unwrap_err());
    lost(buffer.memory_mut().clear(0).unwrap_err());
    lost(Buffer::allocate(&device.buffer_types()[0], 4, Usage::Any).unwrap_err());
    assert_eq!(device.memory().free, 0);
    let error = device.open(&BackendOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "A is lost: unplugged");
    drop(buffer);
}

#[test]
fn a_registry_lists_no_simulated_devices_and_makes_them() {
    let mut registry = Registry::new();
    registry.register(Arc::new(SimDriver::new(cpu()))).unwrap();
    assert!(registry.is_empty());
    let text = "sim:memory=64MiB;kind=igpu;ops=mul_mat+scale;alignment=64;latency=1.5us;flops=2G";
    let selected = registry.select(text).unwrap();
    let device = &selected.device;
    assert_eq!(
        (device.info().name.as_str(), device.info().kind),
        ("SIM0", DeviceKind::IntegratedGpu)
    );
    assert_eq!((device.memory().total, device.buffer_types()[0].alignment()), (64 << 20, 64));
    let rates = device.rates().unwrap();
    assert_eq!((rates.transfer_latency_ns, rates.matrix_f32_flops_per_s), (1500.0, 2e9));
    assert!(device.capabilities().asynchronous);
    let lacks = device.features().into_iter().find(|(name, _)| name == "lacks").unwrap().1;
    assert!(lacks.contains("flash_attn_ext") && !lacks.contains("scale"), "{lacks}");
    let second = registry.select("sim").unwrap();
    assert_eq!(second.device.info().name, "SIM1");
    let named = registry.select("sim:\"my card\":shares=SIM0").unwrap();
    assert_eq!(named.device.info().name, "my card");
    assert_eq!(named.device.buffer_types()[0].name(), device.buffer_types()[0].name());
    assert_eq!(registry.select_list("sim:name=x,sim:name=y").unwrap().len(), 2);
}

#[test]
fn what_does_not_do_is_an_error_that_names_it() {
    let mut registry = Registry::new();
    registry.register(Arc::new(SimDriver::new(cpu()))).unwrap();
    let kept = registry.select("sim:name=one").unwrap();
    for (text, part) in [
        ("sim:memroy=1", "memory"),
        ("sim:memory=much", "64MiB"),
        ("sim:alignment=48", "power of two"),
        ("sim:kind=toaster", "accelerator"),
        ("sim:shares=nobody", "made before"),
        ("sim:name=ONE", "no other"),
        ("sim:\"a\":name=b", "one name"),
        ("sim:flops=-1", "positive"),
        ("sim:bandwidth=0", "positive"),
        ("sim:latency=soon", "0.2ms"),
        ("sim:reads=all", "host"),
        ("sim:pinned_speedup=0.5", "at least 1"),
        ("sim:3", "no device \"SIM:3\"; there are: SIM, made on request"),
        ("sim:ops=mul_mat+ad", "\"ad\" is none; there are: abs, add, binary, "),
    ] {
        let error = registry.select(text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        let shown = error.to_string().to_lowercase();
        assert!(shown.contains(&part.to_lowercase()), "{text}: {shown}");
    }
    drop(kept);
    assert!(registry.select("sim:name=one").is_ok());
}

#[test]
fn a_driver_needs_a_host_that_computes_in_host_memory() {
    let inner = sim(SimOptions::named("A"));
    let driver = SimDriver::new(inner);
    assert!(driver.devices().is_empty());
    let error = driver.device(SimOptions::default()).err().unwrap();
    assert!(matches!(&error, RegistryError::Device(_)), "{error}");
    assert!(error.to_string().contains("host memory"), "{error}");
}

#[test]
fn a_simulated_device_computes_inside_a_simulated_host() {
    // A device that shares the host's memory is itself a host.
    let shared = sim(SimOptions { shares: Shares::Host, ..SimOptions::named("shared") });
    let device = SimDriver::new(shared).device(SimOptions::named("A")).unwrap();
    let builder = GraphBuilder::new("nested");
    let x = builder.input("x", DType::F32, [3]);
    x.unary(UnaryKind::Relu).scale(2.0, 1.0).output("y");
    let graph = Arc::new(builder.finish().unwrap());
    let device: Arc<dyn Device> = device;
    let mut bench = crate::support::Bench::open(&graph, &[device], &Default::default(), 0, 0);
    let plan = bench.plan(&graph, &Default::default());
    let input = tensoryard_runtime::Input::f32("x", &[-1.0, 0.5, 3.0]);
    bench.run(&plan, &[input]).unwrap();
    assert_eq!(bench.output(&plan, "y").unwrap(), [1.0, 2.0, 7.0]);
}
