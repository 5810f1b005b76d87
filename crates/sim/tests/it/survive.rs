//! Sessions go on without devices that fail, and end with the same result.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, Shape, Tensor};
use tensoryard_runtime::plan::assign;
use tensoryard_runtime::{
    BackendOptions, Device, FailurePolicy, Input, PlanDevice, PlanOptions, RunError, Selected,
    Session, SessionOptions, WeightSource, Weights,
};
use tensoryard_sim::{Faults, SimDevice, SimOptions};

use crate::support::{cpu, driver};

const WIDTH: usize = 8;
const FRAMES: usize = 6;
const TOKENS: usize = 10;
const STEPS: usize = 5;

fn matrix(rows: usize, columns: usize) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(&[columns, rows]).unwrap()).unwrap()
}

/// Values without a pattern, the same each time.
fn scattered(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn source() -> Arc<MemoryWeights> {
    let mut weights = MemoryWeights::default();
    for (seed, (name, rows)) in
        [("encoder", WIDTH), ("query", WIDTH), ("embedding", TOKENS)].into_iter().enumerate()
    {
        let values = scattered(rows * WIDTH, seed as u32 + 1);
        weights.insert(name, matrix(rows, WIDTH), encode(DType::F32, &values));
    }
    Arc::new(weights)
}

/// Frames through a layer into the state that the decoder looks at.
fn encoder() -> Arc<Graph> {
    let g = GraphBuilder::new("encoder");
    let weight = g.weight("encoder", DType::F32, [WIDTH, WIDTH]);
    let frames = g.input("frames", DType::F32, [WIDTH, FRAMES]);
    let hidden = weight.mul_mat(frames).unary(UnaryKind::Tanh);
    _ = hidden.copy_into(g.state("heard", DType::F32, [WIDTH, FRAMES]));
    Arc::new(g.finish().unwrap())
}

/// The columns of `at`, weighed by how much they are like the query.
fn look<'g>(query: Tensor<'g>, at: Tensor<'g>) -> Tensor<'g> {
    let shares = at.mul_mat(query).soft_max(1.0, None);
    at.transpose().cont().mul_mat(shares)
}

/// One token, looking at its own past and at what was heard.
fn decoder() -> Arc<Graph> {
    let g = GraphBuilder::new("decoder");
    let embedding = g.weight("embedding", DType::F32, [WIDTH, TOKENS]);
    let token = embedding.get_rows(g.input("token", DType::I32, [1]));
    let said = g.state("said", DType::F32, [WIDTH, STEPS]);
    let said = said.set_rows(token, g.input("position", DType::I32, [1])).whole();
    let query = g.weight("query", DType::F32, [WIDTH, WIDTH]).mul_mat(token);
    let heard = g.state("heard", DType::F32, [WIDTH, FRAMES]);
    let seen = look(query, said).add(look(query, heard)).add(token);
    embedding.mul_mat(seen).output("logits");
    Arc::new(g.finish().unwrap())
}

/// Two windows of frames, and the tokens that are said to each.
fn transcribe(session: &mut Session) -> Result<Vec<(usize, Vec<f32>)>, RunError> {
    let (encoder, decoder) = (encoder(), decoder());
    let mut said = Vec::new();
    for window in 0..2 {
        session.forget_state();
        session.state_mut().clear()?;
        let frames = scattered(WIDTH * FRAMES, 100 + window);
        session.run(&encoder, &[Input::f32("frames", &frames)])?;
        let mut token = 0;
        for position in 0..STEPS {
            let (tokens, positions) = ([token], [position as i32]);
            let inputs = [Input::i32("token", &tokens), Input::i32("position", &positions)];
            let logits = session.run_reading(&decoder, &inputs, |outputs| outputs.f32("logits"))?;
            let best = (0..TOKENS).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            token = best as i32;
            said.push((best, logits));
        }
    }
    Ok(said)
}

struct Machine {
    victim: Arc<SimDevice>,
    session: Session,
}

/// A device that will fail before the processor, which takes over.
fn machine(asynchronous: bool, on_failure: FailurePolicy) -> Machine {
    let options = SimOptions { asynchronous, ..SimOptions::named("A") };
    let victim = driver().device(options).unwrap();
    let devices = [Arc::clone(&victim) as Arc<dyn Device>, cpu()];
    let graphs = [encoder(), decoder()];
    let graphs: Vec<&Arc<Graph>> = graphs.iter().collect();
    let plan_devices: Vec<PlanDevice> = devices.iter().map(PlanDevice::new).collect();
    let assignment = assign(&graphs, &plan_devices, &PlanOptions::default()).unwrap();
    let source = source();
    let plain: Vec<&Graph> = graphs.iter().map(|graph| &***graph).collect();
    let weights = Weights::load(&*source, &plain, &assignment, |_, _| true).unwrap();
    let options = BackendOptions { threads: 0 };
    let selected: Vec<Selected> =
        devices.iter().map(|device| Selected { device: Arc::clone(device), options }).collect();
    let weight_source = Some(source as Arc<dyn WeightSource>);
    let options = SessionOptions { on_failure, weight_source, ..SessionOptions::default() };
    let session = Session::open(&selected, Arc::new(weights), &graphs, options).unwrap();
    Machine { victim, session }
}

fn assert_same(found: &[(usize, Vec<f32>)], expected: &[(usize, Vec<f32>)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for ((token, logits), (wanted, reference)) in found.iter().zip(expected) {
        assert_eq!(token, wanted, "{what}");
        for (a, b) in logits.iter().zip(reference) {
            assert!((a - b).abs() < 1e-4, "{what}: {a} and {b}");
        }
    }
}

#[test]
fn a_device_lost_at_any_step_does_not_change_what_is_said() {
    for asynchronous in [true, false] {
        let mut whole = machine(asynchronous, FailurePolicy::Replan);
        let before = whole.victim.counts().steps;
        let expected = transcribe(&mut whole.session).unwrap();
        let steps = whole.victim.counts().steps;
        assert!(whole.session.recoveries().is_empty());
        assert!(steps - before >= 2 * STEPS as u64 * 4, "the device does little: {steps}");
        for step in before..steps {
            let what = format!("lost at step {step} of {steps}, asynchronous {asynchronous}");
            let mut machine = machine(asynchronous, FailurePolicy::Replan);
            machine.victim.inject(Faults { lost_at_step: Some(step), ..Faults::default() });
            let found = transcribe(&mut machine.session).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&found, &expected, &what);
            let recoveries = machine.session.recoveries();
            assert_eq!(recoveries.len(), 1, "{what}");
            assert_eq!(recoveries[0].device, "A");
            assert_eq!(machine.session.devices().len(), 1);
        }
    }
}

#[test]
fn a_device_lost_at_any_transfer_does_not_change_what_is_said() {
    let mut whole = machine(true, FailurePolicy::Replan);
    let before = whole.victim.counts().transfers;
    let expected = transcribe(&mut whole.session).unwrap();
    let transfers = whole.victim.counts().transfers;
    assert!(transfers > before);
    for transfer in before..transfers {
        let what = format!("lost at transfer {transfer} of {transfers}");
        let mut machine = machine(true, FailurePolicy::Replan);
        let faults = Faults { lost_at_transfer: Some(transfer), ..Faults::default() };
        machine.victim.inject(faults);
        let found = transcribe(&mut machine.session).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&found, &expected, &what);
    }
}

#[test]
fn a_device_without_memory_for_a_run_is_gone_on_without() {
    let mut whole = machine(true, FailurePolicy::Replan);
    let before = whole.victim.counts().allocations;
    let expected = transcribe(&mut whole.session).unwrap();
    let allocations = whole.victim.counts().allocations;
    assert!(allocations > before);
    let mut recoveries = 0;
    for allocation in before..allocations {
        let what = format!("no memory at allocation {allocation} of {allocations}");
        let mut machine = machine(true, FailurePolicy::Replan);
        let faults = Faults { fail_allocation_at: Some(allocation), ..Faults::default() };
        machine.victim.inject(faults);
        let found = transcribe(&mut machine.session).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&found, &expected, &what);
        // Where old memory makes room for new, the device goes on.
        assert!(machine.session.recoveries().len() <= 1, "{what}");
        recoveries += machine.session.recoveries().len();
    }
    assert!(recoveries > 0);
}

#[test]
fn loading_weights_again_can_be_stopped_and_goes_on_in_the_next_run() {
    let mut whole = machine(false, FailurePolicy::Replan);
    let expected = transcribe(&mut whole.session).unwrap();
    let mut machine = machine(false, FailurePolicy::Replan);
    machine.victim.lose("unplugged");
    machine.session.abort_signal().abort();
    let frames = scattered(WIDTH * FRAMES, 100);
    for _ in 0..2 {
        let run = machine.session.run(&encoder(), &[Input::f32("frames", &frames)]);
        let error = run.map(drop).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    machine.session.abort_signal().reset();
    let found = transcribe(&mut machine.session).unwrap();
    assert_same(&found, &expected, "stopped twice");
    assert_eq!(machine.session.recoveries().len(), 1);
}

#[test]
fn a_session_that_shall_stop_stops_with_the_name_of_the_device() {
    let mut machine = machine(true, FailurePolicy::Stop);
    machine.victim.inject(Faults { lost_at_step: Some(30), ..Faults::default() });
    let error = transcribe(&mut machine.session).unwrap_err();
    assert_eq!(error.failed_device(), Some("A"), "{error}");
    assert!(error.to_string().contains('A'), "{error}");
}
