//! The device as the runtime sees it: packed weights, teams, abort, wrong values.

use std::collections::HashMap;
use std::sync::{Arc, Barrier};

use tensoryard_conformance::graphs::build;
use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::{DType, Graph, Layout, Shape};
use tensoryard_runtime::{
    BackendOptions, DeviceError, Input, PlanError, RunError, Selected, Session, SessionOptions,
    SharedBytes, WeightSource, Weights,
};

/// Weights of f32 ones, twos and so on by name.
struct Ramp(HashMap<&'static str, Layout>);

impl WeightSource for Ramp {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.0.get(name).copied()
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let elements = self.0[name].shape().elements();
        let values: Vec<f32> = (0..elements).map(|index| index as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let length = bytes.len();
        SharedBytes::new(Arc::new(bytes), 0..length).map_err(|error| error.to_string())
    }
}

fn selected(device: &Arc<CpuDevice>, threads: usize) -> Selected {
    let options = BackendOptions { threads };
    Selected { device: Arc::clone(device) as _, options }
}

fn device() -> Arc<CpuDevice> {
    Arc::new(CpuDevice::new(Isa::detect()))
}

fn session(threads: usize, graphs: &[&Arc<Graph>]) -> Session {
    let weights = Arc::new(Weights::default());
    let selected = selected(&device(), threads);
    Session::open(&[selected], weights, graphs, SessionOptions::default()).unwrap()
}

#[test]
fn a_part_of_a_packed_weight_is_refused_when_planning() {
    let layout = Layout::contiguous(DType::F32, Shape::new(&[4, 64]).unwrap()).unwrap();
    let source = Ramp(HashMap::from([("w", layout)]));
    let whole = build("device", |g| {
        let x = g.input("x", DType::F32, [4, 1]);
        g.weight("w", DType::F32, [4, 64]).mul_mat(x).output("y");
    });
    let part = build("device", |g| {
        let x = g.input("x", DType::F32, [4, 1]);
        g.weight("w", DType::F32, [4, 64]).slice(1, 16, 16).mul_mat(x).output("y");
    });
    let cpu = device();
    let open = |loaded_for: &[&Graph]| {
        let weights = Weights::load_on(&source, loaded_for, &*cpu, |_, _| true).unwrap();
        let options = SessionOptions::default();
        Session::open(&[selected(&cpu, 1)], Arc::new(weights), &[], options).unwrap()
    };
    let x = [Input::f32("x", &[1.0, 0.0, 0.0, 0.0])];
    let mut packed = open(&[&whole]);
    assert_eq!(packed.run(&whole, &x).unwrap().f32("y").unwrap()[17], 68.0);
    let error = packed.run(&part, &x).unwrap_err();
    assert!(matches!(error, RunError::Plan(PlanError::WholeTensorsOnly { .. })), "{error}");
    // Loaded for the part, the weight stays in its usual form.
    let mut plain = open(&[&whole, &part]);
    assert_eq!(plain.run(&part, &x).unwrap().f32("y").unwrap()[1], 68.0);
}

#[test]
fn an_abort_from_another_thread_stops_inside_a_program() {
    // Far more work than a machine does before the signal comes.
    let graph = build("device", |g| {
        let mut x = g.input("x", DType::F32, [1024, 1024]);
        let w = g.input("w", DType::F32, [1024, 1024]);
        for _ in 0..2000 {
            x = w.mul_mat(x);
        }
        x.output("y");
    });
    let ones = vec![0.0; 1024 * 1024];
    let inputs = [Input::f32("x", &ones), Input::f32("w", &ones)];
    for threads in [1, 2] {
        let mut session = session(threads, &[&graph]);
        session.reserve(&graph).unwrap();
        let signal = session.abort_signal();
        let started = Barrier::new(2);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                started.wait();
                signal.abort();
            });
            started.wait();
            session.run(&graph, &inputs).map(|_| ())
        });
        assert!(result.unwrap_err().is_cancelled());
        // The session works again once the signal is taken back.
        session.abort_signal().reset();
        let small = build("device", |g| {
            g.input("x", DType::F32, [2]).scale(2.0, 0.0).output("y");
        });
        let outputs = session.run(&small, &[Input::f32("x", &[1.0, 2.0])]).unwrap();
        assert_eq!(outputs.f32("y").unwrap(), [2.0, 4.0]);
    }
}

#[test]
fn a_wrong_index_names_the_step_and_the_session_goes_on() {
    let graph = build("device", |g| {
        let table = g.input("table", DType::F32, [2, 3]);
        table.get_rows(g.input("ids", DType::I32, [2])).output("rows");
    });
    let table = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    for threads in [1, 2] {
        let mut session = session(threads, &[&graph]);
        let mut run = |ids: &[i32]| {
            let inputs = [Input::f32("table", &table), Input::i32("ids", ids)];
            session.run(&graph, &inputs).and_then(|outputs| outputs.f32("rows"))
        };
        for wrong in [-1, 3, 23, 999_999] {
            let error = run(&[0, wrong]).unwrap_err();
            assert!(matches!(error, RunError::Device(DeviceError::Value { .. })), "{error}");
            assert!(error.to_string().contains(&wrong.to_string()), "{error}");
            assert!(error.to_string().contains("rows"), "{error}");
        }
        assert_eq!(run(&[2, 0]).unwrap(), [4.0, 5.0, 0.0, 1.0]);
    }
}

#[test]
fn sixteen_sessions_of_one_device_run_at_once() {
    let graph = build("device", |g| {
        let x = g.input("x", DType::F32, [256, 64]);
        g.input("w", DType::F32, [256, 256]).mul_mat(x).soft_max(1.0, None).output("y");
    });
    let cpu = device();
    let w: Vec<f32> = (0..256 * 256).map(|index| (index % 7) as f32 - 3.0).collect();
    let x: Vec<f32> = (0..256 * 64).map(|index| (index % 5) as f32 * 0.1).collect();
    let run = || {
        let weights = Arc::new(Weights::default());
        let options = SessionOptions::default();
        let mut session = Session::open(&[selected(&cpu, 2)], weights, &[], options).unwrap();
        let inputs = [Input::f32("x", &x), Input::f32("w", &w)];
        (0..5).map(|_| session.run(&graph, &inputs).unwrap().f32("y").unwrap()).collect::<Vec<_>>()
    };
    let expected = run();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}

#[test]
fn threads_beyond_reason_are_an_error() {
    let weights = Arc::new(Weights::default());
    let selected = selected(&device(), 100_000);
    let error = Session::open(&[selected], weights, &[], SessionOptions::default()).unwrap_err();
    assert!(error.to_string().contains("100000"), "{error}");
}
