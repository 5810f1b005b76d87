//! The steps of a blueprint in the form that devices receive.
//!
//! A blueprint keeps operations and places in dense lists; a [`Step`] stands for itself. It is
//! made when a device compiles it.

use std::sync::Arc;

use tensoryard_graph::Layout;

use super::lower::Located;
use super::{Blueprint, Value};
use crate::{BufferType, Operand, PlanError, Region, Step};

impl Blueprint {
    /// The layout of a value; `None` for one that the blueprint does not have.
    pub fn layout(&self, value: Value) -> Option<&Layout> {
        match value {
            Value::Tensor(id) | Value::Copy(_, id) => {
                (id.index() < self.graph.len()).then(|| self.graph.layout(id))
            }
            Value::Temporary(number) => self.temporaries.get(number),
        }
    }

    /// The kind of memory that a region stands for.
    pub fn buffer_type(&self, region: Region) -> Option<&Arc<dyn BufferType>> {
        let leaf = |id: Option<&_>| self.residence.of(*id?);
        match region {
            Region::Weight(number) => leaf(self.weights.get(number as usize)),
            Region::State(number) => leaf(self.states.get(number as usize)),
            Region::Chunk(number) => self.memory.buffer_type(number as usize),
        }
    }

    /// A step by the number of its operation.
    ///
    /// # Errors
    /// Tables that do not fit each other.
    pub fn step(&self, number: usize) -> Result<Step, PlanError> {
        let broken = || PlanError::Blueprint(format!("step {number} is not whole"));
        let entry = self.operations.entries.get(number).ok_or_else(broken)?;
        let operation = self.operations.get(number).ok_or_else(broken)?;
        let places = self.places.sources.get(entry.sources.clone()).ok_or_else(broken)?;
        let result = self.places.results.get(number).ok_or_else(broken)?;
        let operand = |value: Value, located: &Located| {
            Some(Operand {
                region: located.region,
                offset_bytes: located.offset_bytes,
                layout: *self.layout(value)?,
                buffer_type: Arc::clone(self.buffer_type(located.region)?),
                aliasing: located.aliasing,
            })
        };
        let sources =
            operation.sources.iter().zip(places).map(|(value, place)| match (value, place) {
                (Some(value), Some(place)) => operand(*value, place).map(Some),
                (None, None) => Some(None),
                (Some(_), None) | (None, Some(_)) => None,
            });
        Ok(Step {
            name: self.step_name(number).ok_or_else(broken)?,
            op: operation.op,
            dst: operand(operation.dst, result).ok_or_else(broken)?,
            sources: sources.collect::<Option<Vec<_>>>().ok_or_else(broken)?,
        })
    }

    /// The steps of a split in order.
    ///
    /// # Errors
    /// Tables that do not fit each other.
    pub fn steps(&self, split: usize) -> Result<Vec<Step>, PlanError> {
        let range = self.splits.get(split).map(|split| split.steps.clone()).unwrap_or_default();
        range.map(|number| self.step(number)).collect()
    }

    /// The name of the tensor that a step computes.
    pub fn step_name(&self, number: usize) -> Option<String> {
        let operation = self.operations.get(number)?;
        Some(match (operation.nodes.last(), operation.dst) {
            (Some(&node), _) => self.graph.tensor(node).name.clone(),
            (None, Value::Temporary(number)) => format!("temporary.{number}"),
            (None, Value::Tensor(_) | Value::Copy(..)) => String::new(),
        })
    }
}
