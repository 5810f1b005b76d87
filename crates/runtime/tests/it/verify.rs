//! The verifier finds each kind of damage in plans that were valid.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::{Scale, UnaryKind};
use tensoryard_graph::{DType, Graph, GraphBuilder, Op, OpKind, TensorId};
use tensoryard_runtime::plan::verify::{Violation, verify};
use tensoryard_runtime::plan::{ArrivalIndex, Located, OperationEntry, Slot, Value};
use tensoryard_runtime::{
    Aliasing, Blueprint, DeviceIndex, Plan, PlanError, PlanOptions, Region, StepOp,
};

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

    /// Number of the step that computes a tensor.
    fn number(&self, name: &str) -> usize {
        let mut numbers = 0..self.plan.operations.len();
        let found = numbers.find(|&number| self.plan.step_name(number).as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("no step {name}\n{}", self.plan.dump()))
    }

    fn entry(&mut self, name: &str) -> &mut OperationEntry {
        let number = self.number(name);
        &mut self.plan.operations.entries[number]
    }

    fn dst(&mut self, name: &str) -> &mut Located {
        let number = self.number(name);
        &mut self.plan.places.results[number]
    }

    fn source(&mut self, name: &str, source: usize) -> &mut Located {
        let at = self.entry(name).sources.start + source;
        self.plan.places.sources[at].as_mut().unwrap()
    }

    fn value(&mut self, name: &str, source: usize) -> &mut Option<Value> {
        let at = self.entry(name).sources.start + source;
        &mut self.plan.operations.values[at]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.plan.operations.entries.swap(a, b);
        self.plan.places.results.swap(a, b);
    }

    /// Counts the steps of the splits again, from the split that holds a step on.
    fn count(&mut self, number: usize, more: isize) {
        let at = self.plan.splits.iter().position(|s| s.steps.contains(&number)).unwrap();
        for (index, split) in self.plan.splits.iter_mut().enumerate().skip(at) {
            if index > at {
                split.steps.start = split.steps.start.checked_add_signed(more).unwrap();
            }
            split.steps.end = split.steps.end.checked_add_signed(more).unwrap();
        }
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
    assert!(damage.plan.operations.iter().any(|op| op.op.name().contains('+')));
}

#[test]
fn rule_1_tables_that_do_not_fit() {
    let mut damage = Damage::new();
    damage.plan.operations.entries.pop();
    damage.finds(|v| matches!(v, Violation::Tables { .. }));
    let mut damage = Damage::new();
    damage.plan.places.sources[0] = None;
    damage.finds(|v| matches!(v, Violation::Tables { what: "steps and operations" }));
    let mut damage = Damage::new();
    damage.plan.splits.pop();
    damage.finds(|v| matches!(v, Violation::Tables { what: "splits and operations" }));
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
    let number = damage.number("p");
    damage.count(number, -1);
    damage.plan.operations.entries.remove(number);
    damage.plan.places.results.remove(number);
    let node = damage.id("p");
    damage.finds(|v| *v == Violation::NotComputedOnce { node, times: 0 });

    let mut damage = Damage::new();
    let number = damage.number("sum");
    damage.count(number, 1);
    let entry = damage.plan.operations.entries[number].clone();
    damage.plan.operations.entries.insert(number, entry);
    let place = damage.plan.places.results[number];
    damage.plan.places.results.insert(number, place);
    let node = damage.id("sum");
    damage.finds(|v| *v == Violation::NotComputedOnce { node, times: 2 });
}

#[test]
fn rule_3_steps_that_compute_something_else() {
    let wrong = |v: &Violation| matches!(v, Violation::WrongOperation { .. });
    let other = StepOp::Op(Op::from(Scale { factor: 3.0, offset: 0.0 }));
    let mut damage = Damage::new();
    damage.entry("p").op = other;
    damage.finds(wrong);
    // Operands exchanged.
    let mut damage = Damage::new();
    let at = damage.entry("before").sources.start;
    damage.plan.operations.values.swap(at, at + 1);
    damage.plan.places.sources.swap(at, at + 1);
    damage.finds(wrong);
    // A fused step that claims a node too many, or lacks its bias.
    let mut damage = Damage::new();
    let (end, activated) = (damage.plan.operations.nodes.len(), damage.id("activated"));
    let nodes = damage.entry("linear").nodes.clone();
    let nodes: Vec<TensorId> = damage.plan.operations.nodes[nodes].to_vec();
    damage.plan.operations.nodes.extend(nodes);
    damage.plan.operations.nodes.push(activated);
    damage.entry("linear").nodes = end..damage.plan.operations.nodes.len();
    damage.finds(wrong);
    let mut damage = Damage::new();
    *damage.value("linear", 2) = None;
    let at = damage.entry("linear").sources.start + 2;
    damage.plan.places.sources[at] = None;
    damage.finds(wrong);
    // A temporary that is filled from elsewhere.
    let mut damage = Damage::new();
    let x = damage.id("x");
    *damage.value("temporary.0", 0) = Some(Value::Tensor(x));
    damage.finds(wrong);
}

#[test]
fn rule_4_temporaries_of_another_layout() {
    let mut damage = Damage::new();
    let layout = damage.plan.temporaries[0];
    damage.plan.temporaries[0] = layout.permute([1, 0, 2, 3]).unwrap();
    damage.finds(|v| matches!(v, Violation::WrongLayout { .. }));
}

#[test]
fn rule_5_sources_that_read_other_bytes() {
    let other = |v: &Violation| {
        matches!(v, Violation::ReadsOther { .. } | Violation::ReadsUnwritten { .. })
    };
    for name in ["before", "p", "q", "linear", "sum", "activated"] {
        let mut damage = Damage::new();
        damage.source(name, 0).offset_bytes += 4;
        damage.finds(other);
    }
    // A result that is put where a value lives that is read later: `before` over the input.
    let mut damage = Damage::new();
    let (x, before) = (damage.id("x"), damage.id("before"));
    let Slot::Fresh(place) = damage.plan.memory.tensors[x] else { panic!("x has no memory") };
    damage.plan.memory.tensors[before] = Slot::Fresh(place);
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    let dst = damage.dst("before");
    (dst.region, dst.offset_bytes) = (Region::Chunk(place.chunk as u32), place.offset_bytes);
    damage.finds(|v| !matches!(v, Violation::WriteMissesOwner { .. }));
    // Steps in another order.
    let mut damage = Damage::new();
    let number = damage.number("p");
    assert_eq!(damage.number("q"), number + 1);
    damage.swap(number, number + 1);
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
    damage.swap(0, 1);
    damage.finds(|v| {
        matches!(v, Violation::ReadsWrongVersion { wanted: 0, found: 1, source_index: 0, .. })
    });
    let mut damage = versions();
    damage.swap(1, 2);
    damage.finds(|v| matches!(v, Violation::ReadsWrongVersion { wanted: 1, found: 0, .. }));
}

#[test]
fn rule_7_writes_that_do_not_reach_their_owner() {
    let mut damage = Damage::new();
    damage.dst("moved").offset_bytes = 0;
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    let mut damage = Damage::new();
    let written = damage.dst("written");
    (written.region, written.offset_bytes) = (Region::Chunk(0), 0);
    damage.finds(|v| matches!(v, Violation::WritesForeignMemory { .. }));
    damage.finds(|v| matches!(v, Violation::StateNotWritten { .. }));
    let mut damage = Damage::new();
    damage.dst("before").region = Region::Weight(0);
    damage.finds(|v| matches!(v, Violation::WriteMissesOwner { .. }));
    damage.finds(|v| matches!(v, Violation::WritesForeignMemory { .. }));
}

#[test]
fn rule_8_outputs_that_are_overwritten() {
    let mut damage = Damage::new();
    // q into the memory of the output sum.
    let (sum, q) = (damage.id("sum"), damage.id("q"));
    let place = damage.plan.memory.locate(sum).unwrap();
    damage.plan.memory.tensors[q] = Slot::Reuses { parent: sum, place };
    let to = *damage.dst("sum");
    let dst = damage.dst("q");
    (dst.region, dst.offset_bytes) = (to.region, to.offset_bytes);
    damage.finds(|v| matches!(v, Violation::OutputLost { output } if *output == sum));
}

#[test]
fn rule_9_inputs_without_memory() {
    let mut damage = Damage::new();
    let x = damage.id("x");
    damage.plan.memory.tensors[x] = Slot::None;
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
    damage.finds(|v| matches!(v, Violation::ReadsOther { .. }));
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
    damage.plan.memory.chunks[0].bytes -= 32;
    damage.finds(|v| matches!(v, Violation::OutsideMemory { .. }));
    let mut damage = Damage::new();
    damage.source("before", 0).offset_bytes = usize::MAX - 8;
    damage.finds(|v| matches!(v, Violation::OutsideMemory { .. }));
    let mut damage = Damage::new();
    damage.source("before", 0).region = Region::State(77);
    damage.finds(|v| matches!(v, Violation::OutsideMemory { size: 0, .. }));
}

#[test]
fn rule_13_chunks_beyond_the_largest_buffer() {
    let mut damage = Damage::new();
    damage.plan.memory.chunks[0].bytes = (1 << 30) + 1;
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
    let from = *damage.dst("linear");
    let linear = damage.id("linear");
    *damage.value("activated", 0) = Some(Value::Tensor(linear));
    *damage.source("activated", 0) = from;
    damage.finds(|v| matches!(v, Violation::UnusableMemory { .. }));
}

#[test]
fn rule_16_marks_that_are_not_so() {
    let wrong = |v: &Violation| matches!(v, Violation::WrongAliasing { .. });
    let mut damage = Damage::new();
    assert_eq!(damage.source("q", 0).aliasing, Aliasing::SameAsDst);
    damage.source("q", 0).aliasing = Aliasing::Disjoint;
    damage.finds(wrong);
    let mut damage = Damage::new();
    damage.source("before", 1).aliasing = Aliasing::SameAsDst;
    damage.finds(wrong);
    // A source half over the destination.
    let mut damage = Damage::new();
    let dst = *damage.dst("q");
    let source = damage.source("q", 0);
    (source.region, source.offset_bytes) = (dst.region, dst.offset_bytes + 32);
    damage.finds(wrong);
}

#[test]
fn a_blueprint_that_contradicts_itself_is_not_compiled() {
    let refused = |what: &str, damage: &dyn Fn(&mut Damage)| {
        let graph = graph();
        let bench = bench(&graph);
        let mut damaged = Damage::new();
        damage(&mut damaged);
        let error = Plan::compile(damaged.plan, &bench.backends).unwrap_err();
        assert!(matches!(error, PlanError::Blueprint(_)), "{what}: {error}");
    };
    refused("another graph", &|damage| {
        let g = GraphBuilder::new("other");
        g.input("x", DType::F32, [1]).scale(1.0, 0.0).output("y");
        damage.plan.graph = Arc::new(g.finish().unwrap());
    });
    refused("an unknown arrival", &|damage| {
        damage.plan.splits[0].arrivals.push(ArrivalIndex(700));
    });
    refused("an unknown device", &|damage| damage.plan.splits[0].device = DeviceIndex(9));
    refused("steps beyond the last", &|damage| damage.plan.splits[0].steps.end = 9000);
    refused("a state that is none", &|damage| {
        let x = damage.id("x");
        damage.plan.states.push(x);
    });
    refused("a chunk that is not there", &|damage| damage.plan.memory.chunks.truncate(1));
    refused("a lost place", &|damage| {
        damage.plan.places.results.pop();
    });
}
