//! Steps as flat structures of the C table: ops and parameters by name, element types by their
//! GGUF numbers.

use tensoryard_graph::Layout;
use tensoryard_graph::ops::ParameterValue;
use tensoryard_runtime::{Aliasing, OpCase, Operand, Step, StepOp};

use crate::abi::{self, Text};

/// Structures that point into each other and into the steps that they were made of.
#[derive(Debug, Default)]
pub(crate) struct FlatSteps {
    steps: Vec<abi::Step>,
    // Pointed to by `steps`; each vector stays where it is when this value moves.
    parameters: Vec<Vec<abi::Parameter>>,
    tensors: Vec<Vec<abi::Tensor>>,
}

impl FlatSteps {
    /// An op that a device is asked about, in no memory.
    pub fn of_case(case: &OpCase<'_>) -> Self {
        let mut flat = Self::default();
        let source = |(index, layout): (usize, &Option<Layout>)| match layout {
            Some(layout) => {
                let kind = case.buffer_type(index).map_or("", |kind| kind.name());
                tensor(layout, kind, 0, abi::NO_BINDING)
            }
            None => ABSENT,
        };
        let mut tensors = vec![tensor(case.dst, "", 0, abi::NO_BINDING)];
        tensors.extend(case.sources.iter().enumerate().map(source));
        flat.push("", case.op, tensors);
        flat
    }

    /// Steps of a program; `binding` numbers the memory of an operand.
    pub fn of_steps(steps: &[Step], mut binding: impl FnMut(&Operand, bool) -> u32) -> Self {
        let mut flat = Self::default();
        for step in steps {
            let mut place = |operand: &Operand, is_written: bool| {
                let number = binding(operand, is_written);
                let offset = operand.offset_bytes as u64;
                let mut tensor =
                    tensor(&operand.layout, operand.buffer_type.name(), offset, number);
                if !is_written && operand.aliasing == Aliasing::SameAsDst {
                    tensor.flags |= abi::SAME_AS_DST;
                }
                tensor
            };
            let mut tensors = vec![place(&step.dst, true)];
            let sources = step.sources.iter();
            tensors.extend(sources.map(|s| s.as_ref().map_or(ABSENT, |s| place(s, false))));
            flat.push(&step.name, &step.op, tensors);
        }
        flat
    }

    /// Adds a step; its destination is the first of the tensors.
    fn push(&mut self, name: &str, op: &StepOp, tensors: Vec<abi::Tensor>) {
        let mut parameters = Vec::new();
        op.describe(&mut |name, value| parameters.push(parameter(name, value)));
        let dst = tensors.as_ptr();
        self.steps.push(abi::Step {
            name: Text::lend(name),
            op: Text::lend(op.name()),
            parameters: parameters.as_ptr(),
            parameter_count: parameters.len() as u64,
            dst,
            sources: dst.wrapping_add(1),
            source_count: tensors.len() as u64 - 1,
        });
        self.parameters.push(parameters);
        self.tensors.push(tensors);
    }

    pub fn as_slice(&self) -> &[abi::Step] {
        &self.steps
    }
}

const ABSENT: abi::Tensor = abi::Tensor {
    flags: 0,
    dtype: 0,
    ne: [0; 4],
    nb: [0; 4],
    offset: 0,
    binding: 0,
    reserved: 0,
    buffer_type: Text::EMPTY,
};

fn tensor(layout: &Layout, buffer_type: &str, offset: u64, binding: u32) -> abi::Tensor {
    abi::Tensor {
        flags: abi::PRESENT,
        dtype: layout.dtype().gguf_number(),
        ne: layout.shape().dims().map(|dim| dim as u64),
        nb: layout.strides().map(|stride| stride as u64),
        offset,
        binding,
        reserved: 0,
        buffer_type: Text::lend(buffer_type),
    }
}

fn parameter(name: &'static str, value: ParameterValue) -> abi::Parameter {
    let mut flat = abi::Parameter {
        name: Text::lend(name),
        kind: abi::INTEGER,
        reserved: 0,
        integer: 0,
        number: 0.0,
        word: Text::EMPTY,
    };
    match value {
        ParameterValue::Integer(value) => flat.integer = value,
        ParameterValue::Float(value) => {
            (flat.kind, flat.number) = (abi::NUMBER, f64::from(value));
        }
        ParameterValue::Word(word) => (flat.kind, flat.word) = (abi::WORD, Text::lend(word)),
        ParameterValue::Type(dtype) => {
            (flat.kind, flat.integer) = (abi::TYPE, i64::from(dtype.gguf_number()));
        }
    }
    flat
}
