//! Where weights and state go before anything is loaded.

use std::sync::Arc;

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::plan::{Assignment, NamedPin, Pin};
use tensoryard_runtime::{
    BackendOptions, Input, Plan, PlanDevice, PlanError, PlanOptions, RunError, State, WeightError,
    Weights, Workspace, plan,
};

use crate::policy::{A, B, build, devices, find, options, weights_of};
use crate::support::{full, without};

/// Layers of a matrix [16, 16], 1 KiB, a gain of 64 bytes and a cache of 256 bytes.
fn layered(layers: usize) -> Arc<Graph> {
    build(|g| {
        let ids = g.input("ids", DType::I32, [1]);
        let mut y = g.input("x", DType::F32, [16, 1]);
        for layer in 0..layers {
            let product = g.weight(format!("{layer}.w"), DType::F32, [16, 16]).mul_mat(y);
            let gained = product.mul(g.weight(format!("{layer}.gain"), DType::F32, [16]));
            let cache = g.state(format!("{layer}.cache"), DType::F32, [16, 4]);
            y = cache.set_rows(gained, ids).slice(1, 0, 1).add(gained);
        }
        y.output("y");
    })
}

const LAYER: usize = 1024 + 64 + 256;

fn limited(limits: &[usize]) -> PlanOptions {
    options(|o| o.limits.devices = limits.iter().copied().map(Some).collect())
}

fn assign(
    graph: &Arc<Graph>,
    devices: &[PlanDevice],
    options: &PlanOptions,
) -> Result<Assignment, PlanError> {
    plan::assign(&[graph], devices, options)
}

/// Names of the leaves on a device, weights first.
fn on(assignment: &Assignment, device: usize) -> Vec<String> {
    let leaves = assignment.weights().chain(assignment.states());
    let here = leaves.filter(|(_, home)| home.device.0 == device);
    here.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn all_goes_to_the_first_device_when_there_is_room() {
    let graph = layered(3);
    let devices = devices(vec![full("A"), full("B")]);
    let assignment = assign(&graph, &devices, &options(|_| ())).unwrap();
    assert_eq!(on(&assignment, 1), [""; 0]);
    assert_eq!(on(&assignment, 0).len(), 9);
    let memory = &assignment.memory()[0];
    assert_eq!((memory.name.as_str(), memory.weights), ("A memory", 3 * (1024 + 64)));
    assert_eq!(memory.state, 3 * 256);
    assert_eq!(memory.limit, Some(1 << 40));
    assert_eq!(memory.peak(), memory.weights + memory.state + memory.compute);
}

#[test]
fn what_does_not_fit_goes_to_the_next_device_block_by_block() {
    let graph = layered(4);
    let devices = devices(vec![full("A"), full("B")]);
    let options = limited(&[2 * LAYER + 1000, 1 << 20]);
    let assignment = assign(&graph, &devices, &options).unwrap();
    let first = ["0.w", "0.gain", "1.w", "1.gain", "0.cache", "1.cache"];
    assert_eq!(on(&assignment, 0), first);
    assert_eq!(on(&assignment, 1).len(), 6);
    let blueprint =
        plan::draft(&graph, &devices, assignment.residence(&graph).unwrap(), &options).unwrap();
    verify(&blueprint).unwrap();
    let splits: Vec<usize> = blueprint.splits.iter().map(|split| split.device.0).collect();
    assert_eq!(splits, [0, 1]);
    for memory in assignment.memory() {
        assert_eq!(memory.over_by(), 0, "{memory:?}");
    }
}

#[test]
fn compute_memory_is_measured_and_kept_free_to_the_byte() {
    let graph = layered(2);
    let devices = devices(vec![full("A"), full("B")]);
    let roomy = assign(&graph, &devices, &options(|_| ())).unwrap();
    let peak = roomy.memory()[0].peak();
    assert!(roomy.memory()[0].compute > 0);
    assert_eq!(on(&assign(&graph, &devices, &limited(&[peak])).unwrap(), 1), [""; 0]);
    let tight = assign(&graph, &devices, &limited(&[peak - 1])).unwrap();
    assert!(!on(&tight, 1).is_empty());
    assert!(tight.memory()[0].peak() < peak);
}

#[test]
fn without_spilling_the_excess_is_an_error_with_the_numbers() {
    let graph = layered(2);
    let devices = devices(vec![full("A"), full("B")]);
    let roomy = assign(&graph, &devices, &options(|_| ())).unwrap();
    let memory = &roomy.memory()[0];
    let mut options = limited(&[2000]);
    options.limits.spill = false;
    let error = assign(&graph, &devices, &options).unwrap_err();
    let expected = format!(
        "A: {} bytes are needed ({} for weights, {} for state, {} for computing), {} more than \
         the limit of 2000",
        memory.peak(),
        memory.weights,
        memory.state,
        memory.compute,
        memory.peak() - 2000
    );
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, PlanError::DoesNotFit { limit: 2000, .. }));
}

#[test]
fn a_weight_larger_than_a_device_does_not_keep_others_out() {
    let graph = build(|g| {
        let ids = g.input("ids", DType::I32, [2]);
        let table = g.weight("table", DType::F32, [16, 100]);
        let rows = table.get_rows(ids);
        g.weight("w", DType::F32, [16, 16]).mul_mat(rows).output("y");
    });
    let devices = devices(vec![full("A"), full("B")]);
    let assignment = assign(&graph, &devices, &limited(&[4096, 1 << 20])).unwrap();
    assert_eq!((on(&assignment, 0), on(&assignment, 1)), (vec!["w".into()], vec!["table".into()]));
}

#[test]
fn a_weight_that_no_device_holds_is_an_error_that_names_each() {
    let graph = layered(1);
    let largest = |name: &str, max_size| ReferenceOptions { max_size, ..full(name) };
    let small = devices(vec![largest("A", 100), largest("B", 1000)]);
    let error = assign(&graph, &small, &options(|_| ())).unwrap_err().to_string();
    assert_eq!(
        error,
        "no device has room for weight \"0.w\" of 1024 bytes: A: it takes 1024 bytes, the largest \
         buffer of A memory is 100; B: it takes 1024 bytes, the largest buffer of B memory is 1000"
    );
    let devices = devices(vec![full("A"), full("B")]);
    let error = assign(&graph, &devices, &limited(&[1000, 600])).unwrap_err().to_string();
    assert_eq!(
        error,
        "no device has room for weight \"0.w\" of 1024 bytes: A: limit 1000, taken 0, needed for \
         computing 0; B: limit 600, taken 0, needed for computing 0"
    );
}

#[test]
fn memory_that_is_free_is_the_limit_where_none_is_given() {
    let graph = layered(4);
    let given = ReferenceOptions { memory_bytes: 2 * LAYER + 1000, ..full("A") };
    let devices = devices(vec![given, full("B")]);
    let assignment = assign(&graph, &devices, &options(|_| ())).unwrap();
    assert_eq!(on(&assignment, 0).len(), 6);
    assert_eq!(assignment.limits().devices, [Some(2 * LAYER + 1000), Some(1 << 40)]);
}

#[test]
fn devices_that_share_memory_share_its_limit() {
    let graph = layered(4);
    let shared = |name: &str| ReferenceOptions { memory: "shared".into(), ..full(name) };
    let given = vec![shared("A"), shared("B"), full("C")];
    let devices = devices(given);
    let assignment = assign(&graph, &devices, &limited(&[1 << 20, 2 * LAYER + 1000])).unwrap();
    assert_eq!(assignment.memory().len(), 2);
    let memory = &assignment.memory()[0];
    assert_eq!((memory.name.as_str(), memory.devices.as_slice()), ("shared", &[A, B][..]));
    assert_eq!(memory.limit, Some(2 * LAYER + 1000));
    assert_eq!(on(&assignment, 2).len(), 6);
}

#[test]
fn weights_go_where_their_ops_run() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [16, 1]);
        let y = g.weight("w", DType::F32, [16, 16]).mul_mat(x);
        y.mul(g.weight("gain", DType::F32, [16])).output("y");
    });
    let devices = devices(vec![without("A", &[OpKind::MulMat]), full("B")]);
    let assignment = assign(&graph, &devices, &options(|_| ())).unwrap();
    assert_eq!((on(&assignment, 0), on(&assignment, 1)), (vec!["gain".into()], vec!["w".into()]));
}

#[test]
fn leaves_of_several_graphs_are_one_and_graphs_must_agree() {
    let make = |name: &str, rows: usize| {
        let name = name.to_owned();
        build(move |g| {
            let x = g.input("x", DType::F32, [16, 1]);
            let y = g.weight("shared", DType::F32, [16, rows]).mul_mat(x);
            y.add(g.weight(name, DType::F32, [rows])).output("y");
        })
    };
    let (first, second) = (make("a", 8), make("b", 8));
    let devices = devices(vec![full("A")]);
    let plain = options(|_| ());
    let assignment = plan::assign(&[&first, &second], &devices, &plain).unwrap();
    assert_eq!(on(&assignment, 0), ["shared", "a", "b"]);
    assert_eq!(assignment.memory()[0].weights, 512 + 32 + 32);
    let error = plan::assign(&[&first, &make("c", 4)], &devices, &plain).unwrap_err();
    let expected = r#"weight "shared" is f32 [16, 8] in one graph and f32 [16, 4] in another"#;
    assert_eq!(error.to_string(), expected);
}

#[test]
fn pinned_leaves_and_readers_decide_where_weights_live() {
    let graph = layered(3);
    let devices = devices(vec![full("A"), full("B")]);
    let pins = |texts: &[&str]| {
        options(|o| texts.iter().for_each(|text| o.named_pins.parse(text).unwrap()))
    };
    let assignment = assign(&graph, &devices, &pins(&["1.*=B"])).unwrap();
    assert_eq!(on(&assignment, 1), ["1.w", "1.gain", "1.cache"]);
    // A pinned product draws its weight, but not the gain.
    let product = graph.ids().find(|&id| {
        let desc = graph.tensor(id);
        desc.sources.first() == Some(&Some(find(&graph, "2.w")))
    });
    let by_id = options(|o| o.pins = vec![Pin { tensor: product.unwrap(), device: B }]);
    assert_eq!(on(&assign(&graph, &devices, &by_id).unwrap(), 1), ["2.w"]);
    let small =
        crate::policy::devices(vec![full("A"), ReferenceOptions { max_size: 512, ..full("B") }]);
    let error = assign(&graph, &small, &pins(&["1.w=B"])).unwrap_err().to_string();
    assert_eq!(
        error,
        "\"1.w\" cannot be pinned to B: B: it takes 1024 bytes, the largest buffer of B memory is 512"
    );
    let error = assign(&graph, &devices, &pins(&["*=C"])).unwrap_err().to_string();
    assert_eq!(error, "\"*\" cannot be pinned to C: there is no such device");
}

#[test]
fn the_draft_before_loading_is_the_plan_after() {
    let graph = layered(4);
    let devices = devices(vec![full("A"), full("B")]);
    let options = limited(&[2 * LAYER + 1000, 1 << 20]);
    let assignment = assign(&graph, &devices, &options).unwrap();
    let draft =
        plan::draft(&graph, &devices, assignment.residence(&graph).unwrap(), &options).unwrap();
    let source = weights_of(&graph);
    let weights = Weights::load(&source, &[&graph], &assignment, |_, _| true).unwrap();
    let mut state = State::create(&[&graph], &assignment).unwrap();
    assert_eq!(weights.get("0.w").unwrap().buffer().buffer_type().name(), "A memory");
    assert_eq!(weights.get("3.gain").unwrap().buffer().buffer_type().name(), "B memory");
    assert_eq!(state.get("3.cache").unwrap().buffer().buffer_type().name(), "B memory");
    let mut backends: Vec<_> = devices
        .iter()
        .map(|device| device.device.open(&BackendOptions::default()).unwrap())
        .collect();
    let plan = plan::plan(&graph, &devices, &backends, &weights, &state, &options).unwrap();
    assert_eq!(plan.dump(), draft.dump());
    assert_eq!(plan.memory_use(&options.limits), draft.memory_use(&options.limits));
    assert_eq!(draft.memory_use(&options.limits), assignment.memory());
    // And it runs: x of ones, weights of one half, doubled by the residual of what was written.
    let mut workspace = Workspace::new();
    let inputs = [Input::f32("x", &[1.0; 16]), Input::i32("ids", &[0])];
    let abort = tensoryard_runtime::AbortSignal::new();
    let run = tensoryard_runtime::exec::run;
    run(&plan, &mut backends, &weights, &mut state, &mut workspace, &inputs, &abort).unwrap();
    let mut values: Vec<f32> = Vec::new();
    let read = tensoryard_runtime::exec::read_output;
    read(&plan, "y", DType::F32, &weights, &state, &workspace, &mut values).unwrap();
    // 16 · 0.5 · 0.5 · 2 a layer.
    assert_eq!(values, [8f32.powi(4); 16]);
}

#[test]
fn an_assignment_of_other_graphs_is_refused_when_loading() {
    let graph = layered(2);
    let devices = devices(vec![full("A")]);
    let assignment = assign(&layered(1), &devices, &options(|_| ())).unwrap();
    let error = Weights::load(&weights_of(&graph), &[&graph], &assignment, |_, _| true);
    assert!(matches!(error, Err(WeightError::Unassigned { name }) if name == "1.w"));
    let error = State::create(&[&graph], &assignment);
    assert!(matches!(error, Err(RunError::UnassignedState(name)) if name == "1.cache"));
    let error = assignment.residence(&graph);
    assert!(matches!(error, Err(PlanError::MissingWeight(name)) if name == "1.w"));
}

#[test]
fn state_is_placed_around_weights_that_are_loaded() {
    let graph = layered(2);
    let devices = devices(vec![full("A"), full("B")]);
    let on_second = Assignment::on_device(&[&graph], &*devices[1].device).unwrap();
    let source = weights_of(&graph);
    let weights = Weights::load(&source, &[&graph], &on_second, |_, _| true).unwrap();
    let plain = options(|_| ());
    let around = plan::assign_around(&[&graph], &devices, Some(&weights), &plain).unwrap();
    let kinds: Vec<&str> = around.weights().map(|(_, home)| home.buffer_type.name()).collect();
    assert_eq!(kinds, ["B memory"; 4]);
    assert_eq!(around.state("0.cache").unwrap().device, A);
    // What is loaded was taken from what is free, and counts against the limit all the same.
    assert_eq!(around.limits().devices[1], Some((1 << 40) + 2 * 1088));
}

#[test]
fn a_part_of_a_weight_keeps_it_in_a_form_that_has_parts() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [16, 1]);
        let w = g.weight("w", DType::F32, [16, 32]);
        w.slice(1, 16, 16).mul_mat(x).unary(UnaryKind::Relu).output("y");
    });
    let devices = devices(vec![full("A")]);
    let assignment = assign(&graph, &devices, &options(|_| ())).unwrap();
    assert!(assignment.weight("w").unwrap().buffer_type.takes_views());
}

#[test]
fn pins_survive_in_plans_of_any_graph() {
    let devices = devices(vec![full("A"), full("B")]);
    let options = options(|o| o.named_pins.add(NamedPin::new("last", "b")));
    for layers in 1..3 {
        let graph = build(|g| {
            let mut y = g.input("x", DType::F32, [4, 1]);
            for _ in 0..layers {
                y = y.scale(2.0, 0.0);
            }
            y.unary(UnaryKind::Relu).named("last").scale(1.0, 1.0).output("y");
        });
        let assignment = assign(&graph, &devices, &options).unwrap();
        let residence = assignment.residence(&graph).unwrap();
        let blueprint = plan::draft(&graph, &devices, residence, &options).unwrap();
        let last = blueprint.placement.device(find(&graph, "last"));
        assert_eq!(last, Some(B));
        let backends: Vec<_> = devices
            .iter()
            .map(|device| device.device.open(&BackendOptions::default()).unwrap())
            .collect();
        assert!(Plan::compile(blueprint, &backends).is_ok());
    }
}

/// Layers of a matrix of 1 KiB, each with a result of `rows` times 64 bytes.
fn wide(layers: usize, rows: usize) -> Arc<Graph> {
    build(|g| {
        let mut y = g.input("x", DType::F32, [16, rows]);
        for layer in 0..layers {
            y = g.weight(format!("{layer}.w"), DType::F32, [16, 16]).mul_mat(y);
        }
        y.output("y");
    })
}

#[test]
fn a_device_too_small_for_results_is_left_to_the_next() {
    // Weights of 1 KiB, results of 6400 bytes.
    let graph = wide(3, 100);
    let narrow = ReferenceOptions { max_size: 2048, ..full("A") };
    let both = devices(vec![narrow.clone(), full("B")]);
    let chosen = options(|_| ());
    let assignment = assign(&graph, &both, &chosen).unwrap();
    assert_eq!(on(&assignment, 0), [""; 0]);
    let residence = assignment.residence(&graph).unwrap();
    verify(&plan::draft(&graph, &both, residence, &chosen).unwrap()).unwrap();
    // Weights that lie there already are copied to where there is room.
    let loaded = Assignment::on_device(&[&graph], &*both[0].device).unwrap();
    let residence = loaded.residence(&graph).unwrap();
    let blueprint = plan::draft(&graph, &both, residence, &chosen).unwrap();
    verify(&blueprint).unwrap();
    assert!(blueprint.splits.iter().all(|split| split.device == B), "{}", blueprint.dump());
}

#[test]
fn an_op_that_fits_into_no_largest_buffer_is_refused_with_the_sizes() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [16, 1]);
        let y = g.weight("w", DType::F32, [16, 64]).mul_mat(x).named("y");
        y.output("y");
    });
    let narrow = |name: &str| ReferenceOptions { max_size: 128, ..full(name) };
    let narrow = devices(vec![narrow("A"), narrow("B")]);
    let residence = Assignment::on_device(&[&graph], &*narrow[0].device).unwrap();
    let residence = residence.residence(&graph).unwrap();
    let error = plan::draft(&graph, &narrow, residence, &options(|_| ())).unwrap_err();
    let said = "A: \"y\" takes 256 bytes, the largest buffer of A memory is 128";
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn many_devices_too_small_to_compute_on_are_passed_over() {
    let graph = wide(40, 100);
    let names: Vec<String> = (0..20).map(|number| format!("S{number}")).collect();
    let mut given: Vec<ReferenceOptions> = names.iter().map(|name| full(name)).collect();
    given.push(full("last"));
    let devices = devices(given);
    // Room for three weights and one result, where two are needed.
    let mut limits = vec![3 * 1024 + 6400; 20];
    limits.push(1 << 20);
    let limits = limited(&limits);
    let assignment = assign(&graph, &devices, &limits).unwrap();
    assert_eq!(on(&assignment, 20).len(), 40);
    assert!(assignment.memory().iter().all(|memory| memory.over_by() == 0));
    let residence = assignment.residence(&graph).unwrap();
    verify(&plan::draft(&graph, &devices, residence, &limits).unwrap()).unwrap();
}
