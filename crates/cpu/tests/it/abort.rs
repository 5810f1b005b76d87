//! Every op at a size that takes long: the abort signal ends the run, and the next one is right.

use std::sync::{Arc, Barrier};

use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::ops::{BinaryKind, UnaryKind};
use tensoryard_graph::{DType, Graph, GraphBuilder, OpKind, Origin};
use tensoryard_runtime::{BackendOptions, Input, Selected, Session, SessionOptions, Weights};

/// One step of the op; `None` for one that does nothing when it runs.
fn long(kind: OpKind) -> Option<Arc<Graph>> {
    let g = GraphBuilder::new(kind.name());
    let rows = |name: &str, n: usize| g.input(name, DType::F32, [512, n]);
    let result = match kind {
        OpKind::View => return None,
        OpKind::Attention => {
            let q = g.input("q", DType::F32, [64, 400, 4]);
            let kv = g.input("kv", DType::F32, [64, 1000, 4]);
            q.attention(kv, kv, None, 0.1)
        }
        OpKind::Binary => rows("x", 3000).binary(BinaryKind::Sub, rows("y", 3000)),
        OpKind::Conv1d => g.input("w", DType::F32, [80, 3, 256]).conv_1d(
            g.input("x", DType::F32, [80, 1500]),
            1,
            1,
        ),
        OpKind::Copy => rows("x", 3000).cast(DType::F16),
        OpKind::CopyInto => rows("x", 3000).copy_into(g.state("s", DType::F32, [512, 3000])),
        OpKind::GetRows => rows("x", 100).get_rows(g.input("ids", DType::I32, [4000])),
        OpKind::LayerNorm => rows("x", 3000).norm(1e-5),
        OpKind::MulMat => rows("w", 512).mul_mat(rows("x", 512)),
        OpKind::RmsNorm => rows("x", 3000).rms_norm(1e-5),
        OpKind::Scale => rows("x", 3000).scale(0.5, 1.0),
        OpKind::SetRows => g
            .state("s", DType::F32, [512, 100])
            .set_rows(rows("x", 4000), g.input("ids", DType::I32, [4000])),
        OpKind::SoftMax => rows("x", 3000).soft_max(1.0, None),
        OpKind::Unary => rows("x", 3000).unary(UnaryKind::Tanh),
    };
    result.output("result");
    Some(Arc::new(g.finish().unwrap()))
}

/// Values of all inputs: ids from 0 to 99, floats of about 1.
fn inputs(graph: &Graph) -> Vec<(String, Vec<u8>)> {
    let leaves = graph.live_leaves(Origin::Input);
    let values = leaves.map(|id| {
        let tensor = graph.tensor(id);
        let elements = 0..tensor.layout.shape().elements();
        let bytes = if tensor.layout.dtype() == DType::I32 {
            elements.flat_map(|i| ((i * 7 % 100) as i32).to_le_bytes()).collect()
        } else {
            elements.flat_map(|i| ((i % 89) as f32 / 44.0 - 1.0).to_le_bytes()).collect()
        };
        (tensor.name.clone(), bytes)
    });
    values.collect()
}

fn session(threads: usize, graph: &Arc<Graph>) -> Session {
    let device = Arc::new(CpuDevice::new(Isa::detect()).sharing_every_step());
    let selected = Selected { device, options: BackendOptions { threads } };
    let weights = Arc::new(Weights::default());
    Session::open(&[selected], weights, &[graph], SessionOptions::default()).unwrap()
}

/// The result as bits, whatever its type.
fn run(session: &mut Session, graph: &Arc<Graph>, inputs: &[Input<'_>]) -> Option<Vec<u32>> {
    match session.run(graph, inputs) {
        Ok(outputs) => Some(match outputs.f32("result") {
            Ok(values) => values.into_iter().map(f32::to_bits).collect(),
            Err(_) => outputs.f16_bits("result").unwrap().into_iter().map(u32::from).collect(),
        }),
        Err(error) => {
            assert!(error.is_cancelled(), "{}: {error}", graph.name());
            None
        }
    }
}

#[test]
fn every_op_is_cancelled_and_computes_the_same_afterwards() {
    for graph in OpKind::ALL.iter().filter_map(|&kind| long(kind)) {
        let values = inputs(&graph);
        let inputs: Vec<Input<'_>> =
            values.iter().map(|(name, bytes)| Input { name, bytes }).collect();
        for threads in [1, 2] {
            let mut session = session(threads, &graph);
            let expected = run(&mut session, &graph, &inputs).unwrap();
            let signal = session.abort_signal();
            let started = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    started.wait();
                    signal.abort();
                });
                started.wait();
                // Runs that end before the signal comes are complete.
                while let Some(result) = run(&mut session, &graph, &inputs) {
                    assert_eq!(result, expected, "{}", graph.name());
                }
            });
            // State that the run was writing is refused until somebody takes it as it is.
            session.state_mut().accept_torn();
            // A signal that was given stays given.
            assert!(run(&mut session, &graph, &inputs).is_none());
            signal.reset();
            session.state_mut().accept_torn();
            let again = run(&mut session, &graph, &inputs);
            assert!(again == Some(expected), "{} with {threads} threads", graph.name());
        }
    }
}
