//! The queue of a reference device: runs each step at once, by the oracle.

use std::any::Any;
use std::sync::Arc;

use tensoryard_graph::{Layout, Op};
use tensoryard_runtime::{
    AbortSignal, Aliasing, Backend, Bound, BufferType, DeviceError, Operand, Program, Step, StepOp,
    Submission,
};

use super::ReferenceOptions;
use super::memory::{POISON, ReferenceMemory};
use crate::oracle::{Dense, OracleError, compute_step};

/// The queue of a reference device.
#[derive(Debug)]
pub(super) struct ReferenceBackend {
    options: Arc<ReferenceOptions>,
    buffer_type: Arc<dyn BufferType>,
}

#[derive(Debug)]
struct ReferenceProgram {
    device: String,
    steps: Vec<Step>,
}

impl Program for ReferenceProgram {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl ReferenceBackend {
    pub(super) fn new(options: &Arc<ReferenceOptions>, buffer_type: &Arc<dyn BufferType>) -> Self {
        Self { options: Arc::clone(options), buffer_type: Arc::clone(buffer_type) }
    }

    fn fail(&self, step: &Step, reason: impl Into<String>) -> DeviceError {
        DeviceError::Compile {
            device: self.options.name.clone(),
            step: step.name.clone(),
            reason: reason.into(),
        }
    }

    /// The operand that the step writes into besides computing, if it is such a step.
    fn written(step: &Step) -> Option<usize> {
        match &step.op {
            StepOp::Op(op) => op.writes(),
            StepOp::NormAffine { .. } | StepOp::Matrix { .. } => None,
        }
    }

    fn run(&self, step: &Step, bindings: &Submission) -> Result<(), DeviceError> {
        let bound = |operand: &Operand| -> Result<Bound<'_>, DeviceError> {
            let missing = || self.fail(step, format!("{:?} is not bound", operand.region));
            bindings.get(operand.region).ok_or_else(missing)
        };
        let read = |operand: &Operand| -> Result<Dense, DeviceError> {
            let bound = bound(operand)?;
            let mut bytes = vec![0; operand.layout.data_bytes()];
            let offset = bound.offset_bytes + operand.offset_bytes;
            bound.memory.read_tensor(offset, &operand.layout, &mut bytes).map_err(|error| {
                DeviceError::Memory { device: self.options.name.clone(), error }
            })?;
            let dense = Layout::contiguous(operand.layout.dtype(), operand.layout.shape())
                .map_err(|error| self.fail(step, error.to_string()))?;
            Ok(Dense::gather(&dense, &bytes))
        };
        let target = bound(&step.dst)?;
        let memory = target
            .memory
            .as_any()
            .downcast_ref::<ReferenceMemory>()
            .ok_or_else(|| self.fail(step, "the destination is memory of another family"))?;
        let start = target.offset_bytes + step.dst.offset_bytes;

        // Ids are looked at before anything is written.
        let mut sources: Vec<Option<Dense>> = Vec::with_capacity(step.sources.len());
        for source in &step.sources {
            sources.push(source.as_ref().map(read).transpose()?);
        }
        let value_error = |error: OracleError| DeviceError::Value {
            device: self.options.name.clone(),
            step: step.name.clone(),
            reason: error.to_string(),
        };
        let compute = |sources: &[Option<Dense>]| {
            compute_step(&step.op, sources, &step.dst.layout).map_err(value_error)
        };
        let writes = Self::written(step).is_some();
        let looks_up = matches!(step.op, StepOp::Op(Op::GetRows(_)));
        let mut values = if writes || looks_up { compute(&sources)? } else { Vec::new() };
        if !writes {
            // A kernel may write early: sources that claim to be disjoint must not notice.
            let end = (start + step.dst.layout.extent_bytes() + self.padding(step))
                .min(memory.lock().len());
            if start < end {
                memory.lock()[start..end].fill(POISON);
            }
            for (source, dense) in step.sources.iter().zip(&mut sources) {
                if let Some(source) = source
                    && source.aliasing == Aliasing::Disjoint
                {
                    *dense = Some(read(source)?);
                }
            }
            values = compute(&sources)?;
        }
        if let Some(fault) = self.options.fault {
            fault(&step.op, &mut values);
        }
        Dense::scatter(&values, &step.dst.layout, &mut memory.lock()[start..]);
        Ok(())
    }

    fn padding(&self, step: &Step) -> usize {
        step.dst.buffer_type.tensor_bytes(&step.dst.layout) - step.dst.layout.extent_bytes()
    }
}

// SAFETY: work is over when `submit` returns.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for ReferenceBackend {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        for step in steps {
            let layouts: Vec<Option<Layout>> =
                step.sources.iter().map(|source| source.as_ref().map(|s| s.layout)).collect();
            self.options
                .claims(&step.op, &layouts)
                .map_err(|unsupported| self.fail(step, unsupported.to_string()))?;
            for (operand, source) in step.sources.iter().enumerate() {
                let same =
                    source.as_ref().is_some_and(|source| source.aliasing == Aliasing::SameAsDst);
                let allowed =
                    step.op.may_reuse().contains(&operand) || Self::written(step) == Some(operand);
                if same && !allowed {
                    return Err(self.fail(step, format!("source {operand} lies in the result")));
                }
            }
        }
        let device = self.options.name.clone();
        Ok(Arc::new(ReferenceProgram { device, steps: steps.to_vec() }))
    }

    fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let device = &self.options.name;
        let program = program
            .as_any()
            .downcast_ref::<ReferenceProgram>()
            .filter(|program| program.device == *device)
            .ok_or_else(|| DeviceError::ForeignProgram { device: device.clone() })?;
        for step in &program.steps {
            if abort.is_aborted() {
                return Err(DeviceError::Cancelled);
            }
            self.run(step, &memory)?;
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
