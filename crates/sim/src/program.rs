//! Programs of simulated devices: the host device's program for the same steps.

use std::any::Any;
use std::sync::Arc;

use tensoryard_graph::Layout;
use tensoryard_runtime::rates::{Work, split_ns, step_ns};
use tensoryard_runtime::{
    Backend, DeviceError, OpCase, Operand, Program, Region, Step, same_buffer_type,
};

use crate::device::Core;
use crate::faults::Fate;

/// Steps of a simulated device.
#[derive(Debug)]
pub(crate) struct SimProgram {
    /// Whose program it is.
    owner: Arc<Fate>,
    /// The steps as the host device sees them.
    steps: Vec<Step>,
    pub inner: Arc<dyn Program>,
    /// What the steps touch, each once.
    pub regions: Vec<Region>,
    /// Virtual time of all steps.
    pub compute_ns: u64,
}

impl Program for SimProgram {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl SimProgram {
    /// Compiles steps through the host device.
    pub fn compile(core: &Core, host: &dyn Backend, steps: &[Step]) -> Result<Self, DeviceError> {
        let mut regions = Vec::new();
        let mut compute_ns = split_ns(&core.options.rates);
        let mut translated = Vec::with_capacity(steps.len());
        for step in steps {
            check(core, step)?;
            compute_ns =
                compute_ns.saturating_add(step_ns(&Work::of_step(step), &core.options.rates));
            for operand in step.sources.iter().flatten().chain([&step.dst]) {
                if !regions.contains(&operand.region) {
                    regions.push(operand.region);
                }
            }
            let sources = step.sources.iter().map(|source| source.as_ref().map(|s| core.inner(s)));
            translated.push(Step {
                name: step.name.clone(),
                op: step.op,
                dst: core.inner(&step.dst),
                sources: sources.collect(),
            });
        }
        let inner = host.compile(&translated)?;
        Ok(Self { owner: Arc::clone(&core.fate), steps: translated, inner, regions, compute_ns })
    }

    /// Whether a device compiled it.
    pub fn is_of(&self, core: &Core) -> bool {
        Arc::ptr_eq(&self.owner, &core.fate)
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// The host device's program for the first steps only.
    pub fn first(&self, host: &dyn Backend, steps: usize) -> Result<Arc<dyn Program>, DeviceError> {
        host.compile(&self.steps[..steps])
    }
}

/// Whether the device would claim the step.
fn check(core: &Core, step: &Step) -> Result<(), DeviceError> {
    let refuse = |reason: String| {
        let (device, step) = (core.info.name.clone(), step.name.clone());
        DeviceError::Compile { device, step, reason }
    };
    let layouts: Vec<Option<Layout>> =
        step.sources.iter().map(|source| source.as_ref().map(|source| source.layout)).collect();
    let kinds: Vec<_> =
        step.sources.iter().map(|source| source.as_ref().map(|s| &*s.buffer_type)).collect();
    let case =
        OpCase { op: &step.op, sources: &layouts, buffer_types: &kinds, dst: &step.dst.layout };
    core.claims(&case).map_err(|unsupported| refuse(unsupported.to_string()))?;
    for operand in step.sources.iter().flatten().chain([&step.dst]) {
        if !core.uses(&*operand.buffer_type) {
            let kind = operand.buffer_type.name();
            return Err(refuse(format!("it does not compute in {kind}")));
        }
    }
    Ok(())
}

impl Core {
    /// An operand as the host device sees it.
    fn inner(&self, operand: &Operand) -> Operand {
        let mut operand = operand.clone();
        if same_buffer_type(&*operand.buffer_type, &*self.buffer_types[0]) {
            operand.buffer_type = Arc::clone(&self.host.buffer_types()[0]);
        }
        operand
    }
}
