//! Going on without a device that failed.
//!
//! A session that may replan keeps a journal: what each run that wrote state was given, since the
//! last point at which the state was known. When a device fails, weights that lay in its memory
//! are read again from their source, state is made anew from the last checkpoint and the runs
//! since, and the run that failed is done again by the devices that are left.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::Graph;

use super::{Session, create_state};
use crate::exec::{Input, Workspace};
use crate::plan::{DeviceSelector, Pins, assign};
use crate::{DeviceError, Plan, PlanOptions, RunError, WeightError, Weights};

/// Bytes of inputs that a journal keeps before it takes a checkpoint.
const MAX_JOURNAL_BYTES: usize = 64 << 20;

/// Runs that a journal keeps before it takes a checkpoint.
const MAX_JOURNAL_RUNS: usize = 4096;

/// What a session does when a device fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The run ends with an error that names the device.
    Stop,
    /// The session replans without the device, makes the state anew, and goes on, as long as
    /// another device is left and what was lost can be had again.
    #[default]
    Replan,
}

/// A device that failed and was replaced by the others.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// Name of the device.
    pub device: String,
    /// What it reported.
    pub error: RunError,
    /// Runs that were repeated to make the state anew.
    pub repeated_runs: usize,
}

/// A run that wrote state.
#[derive(Debug)]
struct Entry {
    graph: Arc<Graph>,
    inputs: Vec<(String, Vec<u8>)>,
}

/// What it takes to make the state anew.
#[derive(Debug)]
pub(super) struct Journal {
    is_kept: bool,
    /// The state before the first entry; zeros when there is none.
    checkpoint: Option<HashMap<String, Vec<u8>>>,
    entries: Vec<Arc<Entry>>,
    bytes: usize,
    /// Whether the caller may have written state, so that the next run needs a checkpoint first.
    is_stale: bool,
    /// Whether the state is behind and must be made anew before the next run.
    is_behind: bool,
}

impl Journal {
    /// A journal, which is kept only where a device can fail and leave another one.
    pub fn new(may_replan: bool, devices: usize) -> Self {
        Self {
            is_kept: may_replan && devices > 1,
            checkpoint: None,
            entries: Vec::new(),
            bytes: 0,
            is_stale: false,
            is_behind: false,
        }
    }

    pub fn state_was_changed(&mut self) {
        self.is_stale = true;
    }

    /// Whatever the state holds now counts for nothing.
    pub fn begin(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.checkpoint = None;
        self.is_stale = false;
        self.is_behind = false;
    }
}

/// Options without what they say of the device at `index`; those behind it move up.
fn without_device(options: &mut PlanOptions, index: usize, name: &str) {
    options.pins.retain(|pin| pin.device.0 != index);
    for pin in options.pins.iter_mut().filter(|pin| pin.device.0 > index) {
        pin.device.0 -= 1;
    }
    if index < options.limits.devices.len() {
        options.limits.devices.remove(index);
    }
    if index < options.rates.len() {
        options.rates.remove(index);
    }
    let mut pins = Pins::new();
    for pin in options.named_pins.iter() {
        let mut pin = pin.clone();
        match &mut pin.device {
            DeviceSelector::Index(at) if *at == index => continue,
            DeviceSelector::Index(at) if *at > index => *at -= 1,
            DeviceSelector::Index(_) => {}
            DeviceSelector::Name(pinned) if pinned.eq_ignore_ascii_case(name) => continue,
            DeviceSelector::Name(_) => {}
        }
        pins.add(pin);
    }
    options.named_pins = pins;
}

impl Session {
    /// Remembers a run that wrote state.
    pub(super) fn note(&mut self, plan: &Plan, graph: &Arc<Graph>, inputs: &[Input<'_>]) {
        if !self.journal.is_kept || !plan.writes_state() {
            return;
        }
        let owned = |input: &Input<'_>| (input.name.to_owned(), input.bytes.to_vec());
        let inputs: Vec<_> = inputs.iter().map(owned).collect();
        self.journal.bytes += inputs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        self.journal.entries.push(Arc::new(Entry { graph: Arc::clone(graph), inputs }));
    }

    /// Brings journal and state to where the next run can begin.
    pub(super) fn catch_up(&mut self) -> Result<(), RunError> {
        if !self.journal.is_kept {
            return Ok(());
        }
        if self.journal.is_behind {
            return self.make_state_anew();
        }
        let is_full =
            self.journal.bytes > MAX_JOURNAL_BYTES || self.journal.entries.len() > MAX_JOURNAL_RUNS;
        if self.journal.is_stale || is_full {
            let mut checkpoint = HashMap::new();
            for name in self.state.names() {
                checkpoint.insert(name.to_owned(), self.state.read(name)?);
            }
            self.journal.begin();
            self.journal.checkpoint = Some(checkpoint);
        }
        Ok(())
    }

    /// Prepares the session to go on without the device that an error names.
    ///
    /// # Errors
    /// The same error, where the session cannot or shall not go on.
    pub(super) fn go_on_without(&mut self, error: RunError) -> Result<(), RunError> {
        let named = error.failed_device().filter(|_| self.journal.is_kept);
        let index = named.and_then(|name| {
            self.devices.iter().position(|device| device.device.info().name == name)
        });
        let Some(index) = index.filter(|_| self.devices.len() > 1) else { return Err(error) };
        let failed = self.devices.remove(index);
        drop(self.backends.remove(index));
        let device = failed.device.info().name.clone();
        tracing::warn!(device, %error, "a device failed; going on without it");
        without_device(&mut self.options.plan, index, &device);
        self.plans.clear();
        self.workspace = Workspace::with_copies(self.options.overlapping_runs);
        self.restore_weights(&error)?;
        let graphs: Vec<&Arc<Graph>> = self.graphs.iter().collect();
        let options = &self.options.plan;
        (self.state, _) = create_state(&graphs, &self.devices, &self.weights, options)?;
        self.journal.is_behind = true;
        let repeated_runs = self.journal.entries.len();
        self.recoveries.push(Recovery { device, error, repeated_runs });
        Ok(())
    }

    /// Loads the weights again, if some lie where no device that is left can use them.
    fn restore_weights(&mut self, cause: &RunError) -> Result<(), RunError> {
        let is_usable = self.weights.kinds().iter().all(|(kind, _)| {
            self.devices.iter().any(|device| crate::plan::can_use(device, &**kind))
        });
        if is_usable {
            return Ok(());
        }
        let Some(source) = self.options.weight_source.clone() else { return Err(cause.clone()) };
        let graphs: Vec<&Arc<Graph>> = self.graphs.iter().collect();
        let assignment = assign(&graphs, &self.devices, &self.options.plan)?;
        let graphs: Vec<&Graph> = graphs.into_iter().map(|graph| &**graph).collect();
        let go_on = |_, _| !self.abort.is_aborted();
        let weights = Weights::load(&*source, &graphs, &assignment, go_on);
        self.weights = Arc::new(weights.map_err(|error| match error {
            WeightError::Cancelled => RunError::Device(DeviceError::Cancelled),
            other => RunError::Weights(other),
        })?);
        Ok(())
    }

    /// Writes the checkpoint and repeats the runs since.
    fn make_state_anew(&mut self) -> Result<(), RunError> {
        match self.journal.checkpoint.take() {
            Some(checkpoint) => {
                let written =
                    checkpoint.iter().try_for_each(|(name, bytes)| self.state.write(name, bytes));
                self.journal.checkpoint = Some(checkpoint);
                written?;
            }
            None => self.state.clear()?,
        }
        for number in 0..self.journal.entries.len() {
            let entry = Arc::clone(&self.journal.entries[number]);
            let inputs: Vec<Input<'_>> =
                entry.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
            self.attempt(&entry.graph, &inputs)?;
        }
        self.journal.is_behind = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceRates;
    use crate::plan::{MemoryLimits, NamedPin};

    #[test]
    fn options_forget_a_device_and_move_the_others_up() {
        let named = |pattern: &str, device: DeviceSelector| {
            let pattern = pattern.to_owned();
            NamedPin { pattern, device }
        };
        let rates = |op_overhead_ns| DeviceRates { op_overhead_ns, ..DeviceRates::UNLIMITED };
        let mut options = PlanOptions {
            limits: MemoryLimits { devices: vec![Some(1), Some(2), Some(3)], spill: true },
            rates: [1.0, 2.0, 3.0].map(rates).to_vec(),
            ..PlanOptions::default()
        };
        options.named_pins.add(named("a", DeviceSelector::Index(0)));
        options.named_pins.add(named("b", DeviceSelector::Index(1)));
        options.named_pins.add(named("c", DeviceSelector::Index(2)));
        options.named_pins.add(named("d", DeviceSelector::Name("lost".to_owned())));
        without_device(&mut options, 1, "Lost");
        assert_eq!(options.limits.devices, [Some(1), Some(3)]);
        assert_eq!(options.rates, [rates(1.0), rates(3.0)]);
        let left: Vec<NamedPin> = options.named_pins.iter().cloned().collect();
        let expected = [named("a", DeviceSelector::Index(0)), named("c", DeviceSelector::Index(1))];
        assert_eq!(left, expected);
    }
}
