//! The verifier finds each kind of damage in plans that were valid.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::{Scale, UnaryKind};
use tensoryard_graph::{DType, Graph, GraphBuilder, Op, OpKind, TensorId};
use tensoryard_runtime::plan::verify::{Violation, verify};
use tensoryard_runtime::plan::{Slot, Value};
use tensoryard_runtime::{Aliasing, Blueprint, PlanOptions, Region, StepOp};

use crate::support::{Bench, full, only, without};

/// Two devices, a state that is read, written and read, products with epilogues, values that
/// work in place, a write from its own memory, and several outputs.
fn graph() -> Arc<Graph> {
    let g = GraphBuilder::new("verified");
    let x = g.input("x", DType::F32, [8, 4]);
    let ids = g.input("ids", DType::I32, [4]);
    let cache = g.state("cache", DType::F32, [8, 6]);
    let before = cache.slice(1, 0, 4).add(x).named("before");
    let written = cache.set_rows(x, ids).named("written");
    let after = written.slice(1, 0, 4).named("after");
    let bias = g.weight("bias", DType::F32, [8]);
    let product = g.weight("w", DType::F32, [8, 8]).mul_mat(before).named("product");
    let linear = product.add(bias).named("linear");
    // Runs on B only.
    let activated = linear.unary(UnaryKind::Tanh).named("activated");
    let sum = activated.add(after).named("sum").output("sum");
    sum.scale(2.0, 0.0).named("p").scale(0.5, 0.0).named("q").output("q");
    let moved = g.state("ring", DType::F32, [8, 4]);
    _ = moved.slice(1, 0, 2).copy_into(moved.slice(1, 2, 2)).named("moved");
    Arc::new(g.finish().unwrap())
}

fn bench(graph: &Graph) -> Bench {
    let mut weights = MemoryWeights::default();
    for name in ["bias", "w"] {
        let layout = *graph.layout(graph.leaf(name).unwrap());
        weights.insert(name, layout, encode(DType::F32, &vec![0.5; layout.shape().elements()]));
    }
    let devices = [without("A", &[OpKind::Unary]).build(), full("B").build()];
    Bench::open(&[graph], &devices, &weights, 0, 0).unwrap()
}

struct Damage {
    graph: Arc<Graph>,
    plan: Blueprint,
}

impl Damage {
    fn new() -> Self {
        let graph = graph();
        let plan = bench(&graph).plan_with(&graph, &PlanOptions::default()).unwrap();
        let plan = plan.blueprint().clone();
        Self { graph, plan }
    }

    fn id(&self, name: &str) -> TensorId {
        self.graph.ids().find(|&id| self.graph.tensor(id).name == name).unwrap()
    }

    /// Split and position of the step that computes a tensor.
    fn at(&self, name: &str) -> (usize, usize) {
        for (split, s) in self.plan.splits.iter().enumerate() {
            if let Some(at) = s.steps.iter().position(|step| step.name == name) {
                return (split, at);
            }
        }
        panic!("no step {name}\n{}", self.plan.dump());
    }

    fn step(&mut self, name: &str) -> &mut tensoryard_runtime::Step {
        let (split, at) = self.at(name);
        &mut self.plan.splits[split].steps[at]
    }

    /// Number of the step over all splits.
    fn number(&self, name: &str) -> usize {
        let (split, at) = self.at(name);
        self.plan.splits[..split].iter().map(|s| s.steps.len()).sum::<usize>() + at
    }

    #[track_caller]
    fn finds(&self, wanted: impl Fn(&Violation) -> bool) {
        let found = verify(&self.plan).expect_err("the damage is not found");
        assert!(found.iter().any(wanted), "{found:#?}\n{}", self.plan.dump());
        for violation in &found {
            assert!(!violation.to_string().is_empty());
        }
    }
}

#[test]
fn the_plan_is_valid_and_has_what_the_tests_damage() {
    let damage = Damage::new();
    assert_eq!(verify(&damage.plan), Ok(()));
    assert!(damage.plan.arrivals.len() >= 4, "{}", damage.plan.dump());
    assert_eq!(damage.plan.temporaries.len(), 1);
    assert!(damage.plan.reused_in_place() > 0);
    assert!(damage.plan.splits.iter().flat_map(|s| &s.steps).any(|s| s.op.name().contains('+')));
}

#[test]
fn rule_1_tables_that_do_not_fit() {
    let mut damage = Damage::new();
    damage.plan.operations.pop();
    damage.finds(|v| matches!(v, Violation::Tables { .. }));
    let mut damage = Damage::new();
    damage.plan.weights.push(damage.id("cache"));
    damage.finds(|v| matches!(v, Violation::Tables { what: "weights" }));
    let mut damage = Damage::new();
    damage.plan.memory.arrivals.pop();
    damage.finds(|v| matches!(v, Violation::Tables { .. }));
    let mut damage = Damage::new();
    damage.plan.memory.chunks.clear();
    damage.finds(|v| matches!(v, Violation::Tables { .. }));
}

#[test]
fn rule_2_nodes_computed_never_or_twice() {
    let mut damage = Damage::new();
    let (number, (split, at)) = (damage.number("p"), damage.at("p"));
    damage.plan.operations.remove(number);
    damage.plan.splits[split].steps.remove(at);
    let node = damage.id("p");
    damage.finds(|v| *v == Violation::NotComputedOnce { node, times: 0 });

    let mut damage = Damage::new();
    let (number, (split, at)) = (damage.number("sum"), damage.at("sum"));
    let operation = damage.plan.operations[number].clone();
    damage.plan.operations.insert(number, operation);
    let step = damage.plan.splits[split].steps[at].clone();
    damage.plan.splits[split].steps.insert(at, step);
    let node = damage.id("sum");
    damage.finds(|v| *v == Violation::NotComputedOnce { node, times: 2 });
}

#[test]
fn rule_3_steps_that_compute_something_else() {
    let wrong = |v: &Violation| matches!(v, Violation::WrongOperation { .. });
    let other = StepOp::Op(Op::from(Scale { factor: 3.0, offset: 0.0 }));
    let mut damage = Damage::new();
    let number = damage.number("p");
    damage.plan.operations[number].op = other;
    damage.step("p").op = other;
    damage.finds(wrong);
    // Operands exchanged.
    let mut damage = Damage::new();
    let number = damage.number("before");
    damage.plan.operations[number].sources.swap(0, 1);
    damage.step("before").sources.swap(0, 1);
    damage.finds(wrong);
    // A fused step that claims a node too many, or lacks its bias.
    let mut damage = Damage::new();
    let (number, activated) = (damage.number("linear"), damage.id("activated"));
    damage.plan.operations[number].nodes.push(activated);
    damage.finds(wrong);
    let mut damage = Damage::new();
    let number = damage.number("linear");
    damage.plan.operations[number].sources[2] = None;
    damage.step("linear").sources[2] = None;
    damage.finds(wrong);
    // A temporary that is filled from elsewhere.
    let mut damage = Damage::new();
    let (number, x) = (damage.number("temporary.0"), damage.id("x"));
    damage.plan.operations[number].sources[0] = Some(Value::Tensor(x));
    damage.finds(wrong);
}

#[test]
fn rule_4_operands_of_another_layout() {
    let mut damage = Damage::new();
    let source = damage.step("before").sources[0].as_mut().unwrap();
    source.layout = source.layout.permute([1, 0, 2, 3]).unwrap();
    damage.finds(|v| matches!(v, Violation::WrongLayout { .. }));
    let mut damage = Damage::new();
    let dst = &mut damage.step("before").dst;
    dst.layout = dst.layout.permute([1, 0, 2, 3]).unwrap();
    damage.finds(|v| matches!(v, Violation::WrongResultLayout { .. }));
}

#[test]
fn rule_5_sources_that_read_other_bytes() {
    let other = |v: &Violation| {
        matches!(v, Violation::ReadsOther { .. } | Violation::ReadsUnwritten { .. })
    };
    for name in ["before", "p", "q", "linear", "sum", "activated"] {
        let mut damage = Damage::new();
        damage.step(name).sources[0].as_mut().unwrap().offset_bytes += 4;
        damage.finds(other);
    }
    // A result that is put where a value lives that is read later: `before` over the input.
    let mut damage = Damage::new();
    let (x, before) = (damage.id("x"), damage.id("before"));
    let Slot::Fresh(place) = damage.plan.memory.tensors[x] else { panic!("x has no memory") };
    damage.plan.memory.tensors[before] = Slot::Fresh(place);
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    let dst = &mut damage.step("before").dst;
    (dst.region, dst.offset_bytes) = (Region::Chunk(place.chunk as u32), place.offset_bytes);
    damage.finds(|v| !matches!(v, Violation::WriteMissesOwner { .. }));
    // Steps in another order.
    let mut damage = Damage::new();
    let (number, (split, at)) = (damage.number("p"), damage.at("p"));
    assert_eq!(damage.at("q"), (split, at + 1));
    damage.plan.operations.swap(number, number + 1);
    damage.plan.splits[split].steps.swap(at, at + 1);
    damage.finds(|_| true);
}

/// One device, a value read before and after the write that changes it.
fn versions() -> Damage {
    let g = GraphBuilder::new("versions");
    let cache = g.state("cache", DType::F32, [4]);
    let before = cache.scale(2.0, 0.0).named("before").output("before");
    let written = g.input("x", DType::F32, [4]).copy_into(cache).named("written");
    written.add(before).named("after").output("after");
    let graph = Arc::new(g.finish().unwrap());
    let plan = Bench::new(&graph, vec![full("A")]).plan(&graph);
    Damage { graph, plan: plan.blueprint().clone() }
}

#[test]
fn rule_6_reads_on_the_wrong_side_of_a_write() {
    let mut damage = versions();
    damage.plan.operations.swap(0, 1);
    damage.plan.splits[0].steps.swap(0, 1);
    damage.finds(|v| {
        matches!(v, Violation::ReadsWrongVersion { wanted: 0, found: 1, source_index: 0, .. })
    });
    let mut damage = versions();
    damage.plan.operations.swap(1, 2);
    damage.plan.splits[0].steps.swap(1, 2);
    damage.finds(|v| matches!(v, Violation::ReadsWrongVersion { wanted: 1, found: 0, .. }));
}

#[test]
fn rule_7_writes_that_do_not_reach_their_owner() {
    let mut damage = Damage::new();
    damage.step("moved").dst.offset_bytes = 0;
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    let mut damage = Damage::new();
    let written = &mut damage.step("written").dst;
    (written.region, written.offset_bytes) = (Region::Chunk(0), 0);
    damage.finds(|v| matches!(v, Violation::WritesForeignMemory { .. }));
    damage.finds(|v| matches!(v, Violation::StateNotWritten { .. }));
    let mut damage = Damage::new();
    damage.step("before").dst.region = Region::Weight(0);
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    damage.finds(|v| matches!(v, Violation::WritesForeignMemory { .. }));
}

#[test]
fn rule_8_outputs_that_are_overwritten() {
    let mut damage = Damage::new();
    // q into the memory of the output sum.
    let (sum, q) = (damage.id("sum"), damage.id("q"));
    damage.plan.memory.tensors[q] = Slot::Reuses(sum);
    let to = damage.step("sum").dst.clone();
    let dst = &mut damage.step("q").dst;
    (dst.region, dst.offset_bytes) = (to.region, to.offset_bytes);
    damage.finds(|v| matches!(v, Violation::OutputLost { output } if *output == sum));
}

#[test]
fn rule_9_inputs_without_memory() {
    let mut damage = Damage::new();
    let x = damage.id("x");
    damage.plan.memory.tensors[x] = Slot::None;
    damage.finds(|v| *v == Violation::InputWithoutMemory { input: x });
    // A chain of reuse that never ends.
    let mut damage = Damage::new();
    damage.plan.memory.tensors[x] = Slot::Reuses(x);
    damage.finds(|v| *v == Violation::InputWithoutMemory { input: x });
}

#[test]
fn rule_10_arrivals_that_are_lost_late_or_wrong() {
    let wrong = |v: &Violation| matches!(v, Violation::WrongArrival { .. });
    let with_arrivals =
        |plan: &Blueprint| plan.splits.iter().position(|s| !s.arrivals.is_empty()).unwrap();
    let mut damage = Damage::new();
    let split = with_arrivals(&damage.plan);
    let lost = damage.plan.splits[split].arrivals.pop().unwrap();
    damage.finds(wrong);
    damage.finds(|v| matches!(v, Violation::ReadsUnwritten { .. } | Violation::ReadsOther { .. }));
    // It happens one split too late.
    let last = damage.plan.splits.len() - 1;
    damage.plan.splits[last].arrivals.push(lost);
    damage.finds(wrong);
    // Twice.
    let mut damage = Damage::new();
    let again = damage.plan.splits[split].arrivals[0];
    damage.plan.splits[split].arrivals.push(again);
    damage.finds(wrong);
    // Another tensor than the one that the steps expect.
    let mut damage = Damage::new();
    let linear = damage.id("linear");
    let at = damage.plan.arrivals.iter().position(|a| a.tensor == linear).unwrap();
    damage.plan.arrivals[at].tensor = damage.id("before");
    damage.finds(|v| matches!(v, Violation::WrongOperation { .. }));
    // A tensor that does not exist yet.
    let mut damage = Damage::new();
    damage.plan.arrivals[0].tensor = damage.id("q");
    damage.finds(|v| matches!(v, Violation::ArrivalCopiesOther { .. }));
    // Memory of another device.
    let mut damage = Damage::new();
    let other = damage.plan.memory.arrivals[at].chunk;
    let elsewhere = (0..damage.plan.memory.chunks.len()).find(|&chunk| chunk != other).unwrap();
    damage.plan.memory.arrivals[at].chunk = elsewhere;
    damage.finds(wrong);
}

#[test]
fn rules_11_and_12_places_that_are_misaligned_small_or_outside() {
    let mut damage = Damage::new();
    let x = damage.id("x");
    let Slot::Fresh(place) = &mut damage.plan.memory.tensors[x] else { panic!("no memory") };
    place.offset_bytes += 4;
    damage.finds(|v| matches!(v, Violation::Misaligned { alignment: 32, .. }));
    let mut damage = Damage::new();
    let Slot::Fresh(place) = &mut damage.plan.memory.tensors[x] else { panic!("no memory") };
    place.bytes -= 4;
    damage.finds(|v| matches!(v, Violation::TooSmall { needed: 128, bytes: 124, .. }));
    let mut damage = Damage::new();
    damage.plan.memory.arrivals[0].offset_bytes += 1 << 20;
    damage.finds(|v| matches!(v, Violation::OutsideMemory { .. }));
    let mut damage = Damage::new();
    damage.plan.memory.chunks[0].1 -= 32;
    damage.finds(|v| matches!(v, Violation::OutsideMemory { .. }));
    let mut damage = Damage::new();
    damage.step("before").sources[0].as_mut().unwrap().offset_bytes = usize::MAX - 8;
    damage.finds(|v| matches!(v, Violation::OutsideMemory { .. }));
    let mut damage = Damage::new();
    damage.step("before").sources[0].as_mut().unwrap().region = Region::State(77);
    damage.finds(|v| matches!(v, Violation::OutsideMemory { size: 0, .. }));
}

#[test]
fn rule_13_chunks_beyond_the_largest_buffer() {
    let mut damage = Damage::new();
    damage.plan.memory.chunks[0].1 = (1 << 30) + 1;
    damage.finds(|v| matches!(v, Violation::ChunkTooLarge { chunk: 0, .. }));
}

#[test]
fn rule_14_devices_that_lack_the_op() {
    let mut damage = Damage::new();
    let kind = damage.plan.devices[0].buffer_type.name().to_owned();
    let lacking = ReferenceOptions { memory: kind, ..only("A", &[OpKind::MulMat]) };
    damage.plan.devices[0].device = lacking.build();
    damage.finds(|v| matches!(v, Violation::Unsupported { .. }));
}

#[test]
fn rule_15_memory_that_the_device_cannot_use() {
    // The result of A is read on B without a copy.
    let mut damage = Damage::new();
    let from = damage.step("linear").dst.clone();
    let linear = damage.id("linear");
    let number = damage.number("activated");
    damage.plan.operations[number].sources[0] = Some(Value::Tensor(linear));
    let source = damage.step("activated").sources[0].as_mut().unwrap();
    *source = from;
    damage.finds(|v| matches!(v, Violation::UnusableMemory { .. }));
    // An operand that names another kind of memory than its own.
    let other = Arc::clone(&damage.plan.devices[1].buffer_type);
    let mut damage = Damage::new();
    damage.step("before").dst.buffer_type = other;
    damage.finds(|v| matches!(v, Violation::WrongBufferType { .. }));
}

#[test]
fn rule_16_marks_that_are_not_so() {
    let wrong = |v: &Violation| matches!(v, Violation::WrongAliasing { .. });
    let mut damage = Damage::new();
    assert_eq!(damage.step("q").sources[0].as_ref().unwrap().aliasing, Aliasing::SameAsDst);
    damage.step("q").sources[0].as_mut().unwrap().aliasing = Aliasing::Disjoint;
    damage.finds(wrong);
    let mut damage = Damage::new();
    damage.step("before").sources[1].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
    damage.finds(wrong);
    // A source half over the destination.
    let mut damage = Damage::new();
    let dst = damage.step("q").dst.clone();
    let source = damage.step("q").sources[0].as_mut().unwrap();
    (source.region, source.offset_bytes) = (dst.region, dst.offset_bytes + 32);
    damage.finds(wrong);
}
