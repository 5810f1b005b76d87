//! Going on without a device that failed.
//!
//! A session that may replan keeps a journal: what each run that wrote state was given, since the
//! last point at which the state was known. When a device fails, weights that lay in its memory
//! are read again from their source, state is made anew from the last checkpoint and the runs
//! since, and the run that failed is done again by the devices that are left. Each part can be
//! stopped by an error or by the caller; the next run goes on from there.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::Graph;

use super::{Session, create_state};
use crate::exec::{self, Flight, Input, State, StateStatus};
use crate::plan::{DeviceSelector, Pins, assign};
use crate::{
    DeviceError, MemoryError, Plan, PlanDevice, PlanError, PlanOptions, RunError, WeightError,
    Weights,
};

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
    /// The run, when it was not waited for. One that fails does not count.
    flight: Option<Arc<Flight>>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.inputs.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    fn has_failed(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.is_done() && flight.wait().is_err())
    }
}

/// What it takes to make the state anew.
#[derive(Debug, Default)]
pub(super) struct Journal {
    is_kept: bool,
    /// The state before the first entry; zeros when there is none. What is not in it was torn.
    checkpoint: Option<HashMap<String, Vec<u8>>>,
    entries: Vec<Arc<Entry>>,
    /// Runs that nobody waited for yet.
    flights: Vec<Arc<Flight>>,
    /// Whether the caller may have written state, so that the next run needs a checkpoint first.
    is_stale: bool,
    /// Whether the state is behind and must be made anew before the next run.
    is_behind: bool,
    /// What the caller wrote over state that is behind; nothing where that was lost.
    changes: HashMap<String, Option<Vec<u8>>>,
    /// What took memory of weights and state away that is not there again yet.
    lacks_memory: Option<RunError>,
    /// Kinds of memory that went with their devices.
    lost_kinds: Vec<String>,
}

impl Journal {
    /// Whether the memory that a device computes in is lost.
    fn has_lost(&self, device: &PlanDevice) -> bool {
        self.lost_kinds.iter().any(|lost| lost == device.buffer_type.name())
    }

    /// A journal, which is kept only where a device can fail and leave another one.
    pub fn new(may_replan: bool, devices: usize) -> Self {
        Self { is_kept: may_replan && devices > 1, ..Self::default() }
    }

    pub fn state_was_changed(&mut self) {
        self.is_stale = true;
    }

    /// Whatever the state holds now counts for nothing.
    pub fn begin(&mut self) {
        self.entries.clear();
        self.changes.clear();
        self.checkpoint = None;
        self.is_stale = false;
        self.is_behind = false;
    }

    fn is_full(&self) -> bool {
        self.entries.len() > MAX_JOURNAL_RUNS
            || self.entries.iter().map(|entry| entry.bytes()).sum::<usize>() > MAX_JOURNAL_BYTES
    }

    /// The runs that ended in an error since this was asked last. They count for nothing.
    fn take_failures(&mut self) -> Vec<DeviceError> {
        let mut failures = Vec::new();
        self.flights.retain(|flight| {
            let is_done = flight.is_done();
            failures.extend(is_done.then(|| flight.wait().err()).flatten());
            !is_done
        });
        if !failures.is_empty() {
            self.entries.retain(|entry| !entry.has_failed());
        }
        failures
    }
}

/// Whether what lay in the memory of the failed device is gone, and not only full.
fn means_lost_memory(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Device(
            DeviceError::Lost { .. } | DeviceError::Memory { error: MemoryError::Lost { .. }, .. }
        ) | RunError::Memory(MemoryError::Lost { .. })
            | RunError::Plan(PlanError::Device(DeviceError::Lost { .. }))
    )
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
    /// Remembers a run that wrote state. `flight` is one that was not waited for.
    pub(super) fn note(
        &mut self,
        plan: &Plan,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
        flight: Option<&Arc<Flight>>,
    ) {
        if !self.journal.is_kept {
            return;
        }
        self.journal.flights.extend(flight.cloned());
        if plan.writes_state() {
            let owned = |input: &Input<'_>| (input.name.to_owned(), input.bytes.to_vec());
            let inputs = inputs.iter().map(owned).collect();
            let entry = Entry { graph: Arc::clone(graph), inputs, flight: flight.cloned() };
            self.journal.entries.push(Arc::new(entry));
        }
    }

    /// Brings journal and state to where the next run can begin.
    pub(super) fn catch_up(&mut self) -> Result<(), RunError> {
        if !self.journal.is_kept {
            return Ok(());
        }
        let failures = self.journal.take_failures().into_iter().map(RunError::Device);
        if let Some(error) = failures.into_iter().find(|error| self.can_go_on_without(error)) {
            return Err(error);
        }
        self.restore_memory()?;
        if self.journal.is_behind {
            self.make_state_anew()?;
        }
        if self.journal.is_stale || self.journal.is_full() {
            let checkpoint = self.take_checkpoint()?;
            self.journal.begin();
            self.state.forget_changes();
            self.journal.checkpoint = checkpoint;
        }
        Ok(())
    }

    /// All state that can be used; nothing if it is zeros.
    fn take_checkpoint(&self) -> Result<Option<HashMap<String, Vec<u8>>>, RunError> {
        if self.state.was_cleared() {
            return Ok(None);
        }
        let mut checkpoint = HashMap::new();
        for name in self.state.names() {
            if self.state.status(name)? == StateStatus::Committed {
                checkpoint.insert(name.to_owned(), self.state.read(name)?);
            }
        }
        Ok(Some(checkpoint))
    }

    fn position_of_failed(&self, error: &RunError) -> Option<usize> {
        let name = error.failed_device().filter(|_| self.journal.is_kept)?;
        let index = self.devices.iter().position(|device| device.device.info().name == name);
        index.filter(|_| self.devices.len() > 1)
    }

    /// Whether an error is that of a device which others can stand in for.
    pub(super) fn can_go_on_without(&self, error: &RunError) -> bool {
        self.position_of_failed(error).is_some()
    }

    /// Prepares the session to go on without the device that an error names.
    ///
    /// # Errors
    /// The same error, where the session cannot or shall not go on, and where state was lost
    /// that only the caller can write again.
    pub(super) fn go_on_without(&mut self, error: RunError) -> Result<(), RunError> {
        let Some(index) = self.position_of_failed(&error) else { return Err(error) };
        let device = self.give_up(index, &error);
        // Who computes in the memory of another device has lost it, too.
        while let Some(index) = self.devices.iter().position(|other| self.journal.has_lost(other)) {
            if self.devices.len() == 1 {
                return Err(error);
            }
            self.give_up(index, &error);
        }
        // Queues of the others may have waited for the one that failed.
        exec::make_ready(&mut self.backends);
        self.journal.flights.iter().for_each(|flight| _ = flight.wait());
        // What else went wrong came of the same failure.
        _ = self.journal.take_failures();
        self.plans.clear();
        self.workspace.release();
        let has_lost = self.keep_changes();
        self.journal.is_behind = true;
        self.journal.lacks_memory = Some(error.clone());
        let repeated_runs = self.journal.entries.len();
        self.recoveries.push(Recovery { device, error: error.clone(), repeated_runs });
        self.restore_memory()?;
        if has_lost { Err(error) } else { Ok(()) }
    }

    /// Parts with a device and its own memory, and with what the options say of it.
    fn give_up(&mut self, index: usize, error: &RunError) -> String {
        let given_up = self.devices.remove(index);
        drop(self.backends.remove(index));
        let device = given_up.device.info().name.clone();
        tracing::warn!(device, %error, "a device failed; going on without it");
        without_device(&mut self.options.plan, index, &device);
        if means_lost_memory(error) {
            let own = given_up.device.buffer_types().iter().filter(|kind| !kind.is_host());
            self.journal.lost_kinds.extend(own.map(|kind| kind.name().to_owned()));
        }
        device
    }

    /// Keeps what the caller wrote into state that is made anew. Returns whether some of it is
    /// lost.
    fn keep_changes(&mut self) -> bool {
        let mut has_lost = false;
        for (name, bytes) in self.state.take_changes() {
            has_lost |= bytes.is_err();
            self.journal.changes.insert(name, bytes.ok());
        }
        has_lost
    }

    /// Creates the state on the devices that are left, and loads the weights again if some lie
    /// where none of them can use them.
    fn restore_memory(&mut self) -> Result<(), RunError> {
        let Some(cause) = self.journal.lacks_memory.clone() else { return Ok(()) };
        self.keep_changes();
        let graphs: Vec<&Arc<Graph>> = self.graphs.iter().collect();
        let is_usable = self.weights.kinds().iter().all(|(kind, _)| {
            let is_lost = self.journal.lost_kinds.iter().any(|lost| lost == kind.name());
            !is_lost && self.devices.iter().any(|device| crate::plan::can_use(device, &**kind))
        });
        // The new state may need the memory of the old one.
        self.state = State::default();
        if is_usable {
            let options = &self.options.plan;
            (self.state, _) = create_state(&graphs, &self.devices, &self.weights, options)?;
            self.journal.lacks_memory = None;
            return Ok(());
        }
        let Some(source) = self.options.weight_source.clone() else { return Err(cause) };
        let assignment = assign(&graphs, &self.devices, &self.options.plan)?;
        let graphs: Vec<&Graph> = graphs.into_iter().map(|graph| &**graph).collect();
        self.state = State::create(&graphs, &assignment)?;
        let go_on = |_, _| !self.abort.is_aborted();
        let weights = Weights::load(&*source, &graphs, &assignment, go_on);
        self.weights = Arc::new(weights.map_err(|error| match error {
            WeightError::Cancelled => RunError::Device(DeviceError::Cancelled),
            other => RunError::Weights(other),
        })?);
        self.journal.lacks_memory = None;
        Ok(())
    }

    fn write_checkpoint(&mut self) -> Result<(), RunError> {
        self.state.clear()?;
        let Some(checkpoint) = &self.journal.checkpoint else { return Ok(()) };
        let names: Vec<String> = self.state.names().map(str::to_owned).collect();
        for name in names {
            match checkpoint.get(&name) {
                Some(bytes) => self.state.write(&name, bytes)?,
                None => self.state.mark(&name, StateStatus::Torn),
            }
        }
        Ok(())
    }

    /// Writes the checkpoint, repeats the runs since, and what the caller wrote after them.
    fn make_state_anew(&mut self) -> Result<(), RunError> {
        self.keep_changes();
        let written = self.write_checkpoint();
        // The caller wrote nothing of this.
        self.state.forget_changes();
        written?;
        for number in 0..self.journal.entries.len() {
            let entry = Arc::clone(&self.journal.entries[number]);
            let inputs: Vec<Input<'_>> =
                entry.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
            self.attempt(&entry.graph, &inputs)?;
        }
        for (name, bytes) in &self.journal.changes {
            match bytes {
                Some(bytes) => self.state.write(name, bytes)?,
                None => self.state.mark(name, StateStatus::Lost),
            }
        }
        self.journal.is_stale |= !self.journal.changes.is_empty();
        self.journal.changes.clear();
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
