//! From blueprints to a report.

use std::collections::HashMap;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};
use tensoryard_runtime::plan::{Arrival, Operation, Prediction, Reason, Value, predict};
use tensoryard_runtime::rates::{DeviceRates, Work, step_ns};
use tensoryard_runtime::{Aliasing, Blueprint, DeviceKind, Operand, PlanError, Region, Step};

use super::PlannedGraph;
use super::names::{Part, parts, word_of};
use super::reasons::{family, family_of, sentence, words};
use super::report::{
    ComputeReport, CopyReport, CopyTime, DeviceReport, Family, GraphReport, NodeReport,
    OperationReport, PlaceReport, SourceReport, SplitReport, SplitTime, TypeReport,
};

pub(super) fn devices(blueprint: &Blueprint, rates: Option<&[DeviceRates]>) -> Vec<DeviceReport> {
    let devices = blueprint.devices.iter().map(|device| {
        let info = device.device.info();
        DeviceReport {
            name: info.name.clone(),
            description: info.description.clone(),
            kind: kind_name(info.kind),
            compute_memory: device.buffer_type.name().to_owned(),
            speed_known: rates.is_some() || device.device.rates().is_some(),
        }
    });
    devices.collect()
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Gpu => "gpu",
        DeviceKind::IntegratedGpu => "integrated gpu",
        DeviceKind::Accelerator => "accelerator",
    }
}

/// What a plan says of one graph.
pub(super) fn graph(
    planned: &PlannedGraph<'_>,
    rates: Option<&[DeviceRates]>,
) -> Result<GraphReport, PlanError> {
    Walk::new(planned.blueprint, rates).report(planned.name, planned.purpose)
}

struct Walk<'a> {
    blueprint: &'a Blueprint,
    graph: &'a Graph,
    rates: Option<&'a [DeviceRates]>,
    prediction: Option<Prediction>,
    /// The operation that makes each version of each root's memory.
    maker: HashMap<(TensorId, u32), usize>,
}

impl<'a> Walk<'a> {
    fn new(blueprint: &'a Blueprint, rates: Option<&'a [DeviceRates]>) -> Self {
        let graph = &*blueprint.graph;
        let operations = blueprint.operations.iter().enumerate();
        let made = operations.flat_map(|(number, operation)| {
            let nodes = operation.nodes.iter();
            nodes.map(move |&id| ((graph.root(id), graph.tensor(id).version), number))
        });
        let prediction = rates.map(|rates| predict(blueprint, rates));
        Self { blueprint, graph, rates, prediction, maker: made.collect() }
    }

    fn report(&self, name: &str, purpose: &str) -> Result<GraphReport, PlanError> {
        let operations = self.operations()?;
        let copies = self.copies();
        let bytes = |copies_of: &[usize]| copies_of.iter().map(|&at| copies[at].bytes).sum();
        let splits = self.blueprint.splits.iter().enumerate().map(|(number, split)| {
            let arrivals: Vec<usize> = split.arrivals.iter().map(|index| index.0).collect();
            SplitReport {
                device: split.device.0,
                first_operation: split.steps.start,
                operations: split.steps.len(),
                copied_bytes: bytes(&arrivals),
                copies: arrivals,
                predicted: self.prediction.as_ref().and_then(|all| {
                    let time = all.splits.get(number)?;
                    let (start_ns, end_ns) = (time.start_ns, time.end_ns);
                    let (copy_ns, compute_ns) = (time.copy_ns(), time.compute_ns);
                    Some(SplitTime { start_ns, end_ns, copy_ns, compute_ns })
                }),
            }
        });
        let splits = splits.collect();
        let compute = self.blueprint.compute_bytes().into_iter();
        Ok(GraphReport {
            name: name.to_owned(),
            purpose: purpose.to_owned(),
            nodes: self.graph.live_nodes().count(),
            flops: operations.iter().map(|operation| operation.flops).sum(),
            copied_bytes: copies.iter().map(|copy| copy.bytes).sum(),
            predicted_ns: self.prediction.as_ref().map(|all| all.makespan_ns),
            compute: compute.map(|(memory, bytes)| ComputeReport { memory, bytes }).collect(),
            splits,
            copies,
            operations,
        })
    }

    fn copies(&self) -> Vec<CopyReport> {
        let times =
            self.prediction.iter().flat_map(|all| &all.splits).flat_map(|split| &split.copies);
        let times: HashMap<usize, CopyTime> = times
            .map(|time| {
                let (queue, start_ns, end_ns) = (time.queue.0, time.start_ns, time.end_ns);
                (time.arrival.0, CopyTime { queue, start_ns, end_ns })
            })
            .collect();
        let copies = self.blueprint.arrivals.iter().enumerate().map(|(number, arrival)| {
            let desc = self.graph.tensor(arrival.tensor);
            let root = self.graph.root(arrival.tensor);
            let origin = match self.graph.tensor(root).origin {
                Origin::Weight => "weight",
                Origin::State => "state",
                Origin::Input => "input",
                Origin::Op(_) => "operation",
            };
            CopyReport {
                tensor: self.name_of_copy(arrival),
                origin,
                from: self.blueprint.placement.device(root).map(|device| device.0),
                to: arrival.device.0,
                split: arrival.split,
                tensor_type: type_of(&desc.layout),
                bytes: desc.layout.data_bytes(),
                kept: arrival.kept,
                operation: self.maker.get(&(root, arrival.version)).copied(),
                predicted: times.get(&number).copied(),
            }
        });
        copies.collect()
    }

    fn operations(&self) -> Result<Vec<OperationReport>, PlanError> {
        let blueprint = self.blueprint;
        let nodes = blueprint.operations.iter().map(|operation| operation.nodes);
        let parts = parts(self.graph, nodes);
        let splits = blueprint.splits.iter().enumerate();
        let split_of = splits.flat_map(|(number, split)| split.steps.clone().map(move |_| number));
        let rows = blueprint.operations.iter().zip(split_of).zip(parts).enumerate();
        rows.map(|(number, ((operation, split), part))| {
            Ok(self.operation(operation, split, &blueprint.step(number)?, part))
        })
        .collect()
    }

    fn operation(
        &self,
        operation: Operation<'_>,
        split: usize,
        step: &Step,
        part: Part,
    ) -> OperationReport {
        let nodes: Vec<NodeReport> = operation.nodes.iter().map(|&id| self.node(id)).collect();
        let ops: Vec<&str> = operation.nodes.iter().map(|&id| word_of(self.graph, id)).collect();
        let (reason, why, because) = match self.decisive(&operation) {
            Some(id) => {
                let reason = self.blueprint.placement.reason(id);
                (reason.text(), words(reason), sentence(self.blueprint, id))
            }
            None => ("separate".to_owned(), "needed by the next", SEPARATE.to_owned()),
        };
        let sources: Vec<SourceReport> = operation
            .sources
            .iter()
            .zip(&step.sources)
            .filter_map(|(value, operand)| Some(self.source((*value)?, operand.as_ref()?)))
            .collect();
        let takes_over =
            operation.sources.iter().zip(&step.sources).find_map(|(value, operand)| {
                let aliases = operand.as_ref()?.aliasing == Aliasing::SameAsDst;
                aliases.then_some(self.value_name((*value)?))
            });
        let bytes = step.dst.layout.data_bytes();
        let work = Work::of_step(step);
        let rates = self.rates.and_then(|rates| rates.get(operation.device.0));
        OperationReport {
            name: step.name.clone(),
            group: part.group,
            label: part.label,
            op: if ops.is_empty() { step.op.name().to_owned() } else { ops.join("+") },
            family: family(&step.op),
            split,
            device: operation.device.0,
            reason,
            why,
            because,
            result: type_of(&step.dst.layout),
            bytes,
            memory: place(&step.dst, takes_over),
            flops: work.flops,
            moved_bytes: work.bytes,
            predicted_ns: rates.map(|rates| step_ns(&work, rates)),
            nodes,
            sources,
        }
    }

    /// The node whose reason tells the most: one that could not have been placed otherwise.
    fn decisive(&self, operation: &Operation<'_>) -> Option<TensorId> {
        let fixed = |id: &&TensorId| {
            let reason = self.blueprint.placement.reason(**id);
            matches!(reason, Reason::Pinned | Reason::InMemory | Reason::Weight(_))
        };
        operation.nodes.iter().find(fixed).or(operation.nodes.last()).copied()
    }

    fn node(&self, id: TensorId) -> NodeReport {
        let desc = self.graph.tensor(id);
        NodeReport {
            name: desc.name.clone(),
            op: word_of(self.graph, id),
            family: desc.op().map_or(Family::Movement, |op| family_of(op.kind())),
            parameters: desc
                .op()
                .map_or_else(String::new, |op| op.parameters())
                .split_whitespace()
                .filter(|parameter| !parameter.starts_with("kind="))
                .collect::<Vec<_>>()
                .join(" "),
            result: type_of(&desc.layout),
            reason: self.blueprint.placement.reason(id).text(),
        }
    }

    fn source(&self, value: Value, operand: &Operand) -> SourceReport {
        let (name, origin, operation, copy) = match value {
            Value::Tensor(id) => (self.shown_name(id), self.origin(id), self.producer(id), None),
            Value::Copy(index, id) => {
                (self.shown_name(id), self.origin(id), self.producer(id), Some(index.0))
            }
            Value::Temporary(number) => {
                let mut operations = self.blueprint.operations.iter();
                let at = operations.position(|operation| operation.dst == value);
                (format!("temporary.{number}"), "temporary", at, None)
            }
        };
        SourceReport {
            name,
            origin,
            tensor_type: type_of(&operand.layout),
            memory: operand.buffer_type.name().to_owned(),
            bytes: operand.layout.data_bytes(),
            operation,
            copy,
        }
    }

    fn value_name(&self, value: Value) -> String {
        match value {
            Value::Tensor(id) | Value::Copy(_, id) => self.shown_name(id),
            Value::Temporary(number) => format!("temporary.{number}"),
        }
    }

    /// The name of what made the copied version, where something did.
    fn name_of_copy(&self, arrival: &Arrival) -> String {
        let made = (self.graph.root(arrival.tensor), arrival.version);
        let maker = self.maker.get(&made).and_then(|&at| self.blueprint.operations.get(at));
        let node = maker.and_then(|operation| operation.nodes.last().copied());
        self.shown_name(node.unwrap_or(arrival.tensor))
    }

    /// What a view looks at; anything else is itself.
    fn behind_views(&self, mut id: TensorId) -> TensorId {
        while let Some(op) = self.graph.tensor(id).op()
            && op.is_view()
            && let Some(base) = self.graph.tensor(id).present_sources().next()
        {
            id = base;
        }
        id
    }

    fn shown_name(&self, id: TensorId) -> String {
        self.graph.tensor(self.behind_views(id)).name.clone()
    }

    fn producer(&self, id: TensorId) -> Option<usize> {
        self.maker.get(&(self.graph.root(id), self.graph.tensor(id).version)).copied()
    }

    fn origin(&self, id: TensorId) -> &'static str {
        match self.graph.tensor(self.behind_views(id)).origin {
            Origin::Weight => "weight",
            Origin::State => "state",
            Origin::Input => "input",
            Origin::Op(_) => "operation",
        }
    }
}

const SEPARATE: &str = "The next operation writes into the memory that it reads this from.";

fn type_of(layout: &Layout) -> TypeReport {
    let shape = layout.shape();
    TypeReport { dtype: layout.dtype().name(), shape: shape.dims()[..shape.rank()].to_vec() }
}

fn place(operand: &Operand, takes_over: Option<String>) -> PlaceReport {
    let (region, number) = match operand.region {
        Region::Weight(number) => ("weight", number),
        Region::State(number) => ("state", number),
        Region::Chunk(number) => ("compute", number),
    };
    let kind = operand.buffer_type.name().to_owned();
    PlaceReport { kind, region, number, offset_bytes: operand.offset_bytes, takes_over }
}
