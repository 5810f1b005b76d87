//! A session: state, workspace and plan cache around shared weights.
//!
//! The one thing that programs use. It plans each graph once, keeps the plans, and runs them on
//! the devices that it was opened with. When a device fails, it can go on without it.

mod outputs;
mod recover;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::Graph;

pub use outputs::Outputs;
pub use recover::{FailurePolicy, Recovery};

use self::recover::Journal;
use crate::exec::{self, Input, RunCounters, State, Ticket, Workspace};
use crate::plan::{NamedPin, assign_around};
use crate::registry::Selected;
use crate::{
    AbortSignal, Backend, Plan, PlanDevice, PlanError, PlanOptions, RunError, WeightSource,
    Weights, plan,
};

/// Plans kept at most; the shapes of a model's graphs are far fewer.
const MAX_PLANS: usize = 64;

/// How a session plans, and what it does when a device fails.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// Options of planning.
    pub plan: PlanOptions,
    /// What to do when a device fails.
    pub on_failure: FailurePolicy,
    /// Where weights are read again that were lost with a device.
    pub weight_source: Option<Arc<dyn WeightSource>>,
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("plan", &self.plan)
            .field("on_failure", &self.on_failure)
            .field("weight_source", &self.weight_source.is_some())
            .finish()
    }
}

/// Runs graphs on opened devices, with state of its own and shared weights.
pub struct Session {
    devices: Vec<PlanDevice>,
    backends: Vec<Box<dyn Backend>>,
    graphs: Vec<Arc<Graph>>,
    weights: Arc<Weights>,
    state: State,
    workspace: Workspace,
    plans: HashMap<u64, Vec<Arc<Plan>>>,
    options: SessionOptions,
    abort: AbortSignal,
    journal: Journal,
    recoveries: Vec<Recovery>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("devices", &self.devices)
            .field("state_bytes", &self.state.bytes())
            .field("workspace_bytes", &self.workspace.bytes())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Opens the devices, in order of priority, and creates the state that the graphs name.
    ///
    /// # Errors
    /// No devices, one that cannot be opened, or memory that cannot be had.
    #[doc(alias = "ggml_backend_sched_new")]
    pub fn open(
        devices: &[Selected],
        weights: Arc<Weights>,
        graphs: &[&Arc<Graph>],
        options: SessionOptions,
    ) -> Result<Self, RunError> {
        if devices.is_empty() {
            return Err(PlanError::NoDevice.into());
        }
        let mut backends = Vec::with_capacity(devices.len());
        for selected in devices {
            backends.push(selected.device.open(&selected.options)?);
        }
        let devices: Vec<PlanDevice> =
            devices.iter().map(|selected| PlanDevice::new(&selected.device)).collect();
        let state = create_state(graphs, &devices, &weights, &options.plan)?;
        let journal = Journal::new(options.on_failure == FailurePolicy::Replan, devices.len());
        Ok(Self {
            devices,
            backends,
            graphs: graphs.iter().map(|graph| Arc::clone(graph)).collect(),
            weights,
            state,
            workspace: Workspace::new(),
            plans: HashMap::new(),
            options,
            abort: AbortSignal::new(),
            journal,
            recoveries: Vec::new(),
        })
    }

    /// The signal that stops a run of this session from another thread.
    pub fn abort_signal(&self) -> AbortSignal {
        self.abort.clone()
    }

    /// Uses the given signal instead of the session's own.
    pub fn set_abort_signal(&mut self, signal: AbortSignal) {
        self.abort = signal;
    }

    /// The devices in order of priority, without those that failed.
    #[doc(alias = "ggml_backend_sched_get_backend")]
    pub fn devices(&self) -> &[PlanDevice] {
        &self.devices
    }

    /// The state tensors.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state tensors, to be written.
    pub fn state_mut(&mut self) -> &mut State {
        self.journal.state_was_changed();
        &mut self.state
    }

    /// Says that nothing which follows looks at what the state holds now: a new stream begins.
    /// What a stopped run left half written is no obstacle any more.
    pub fn forget_state(&mut self) {
        self.journal.begin();
        self.state.accept_torn();
    }

    /// Bytes of compute memory that the session holds.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.bytes()
    }

    /// Bytes of compute memory by kind.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    pub fn workspace_sizes(&self) -> Vec<(String, usize)> {
        self.workspace.sizes()
    }

    /// What runs have cost so far besides computing.
    pub fn counters(&self) -> RunCounters {
        self.workspace.counters()
    }

    /// The devices that failed so far, and were replaced by the others.
    pub fn recoveries(&self) -> &[Recovery] {
        &self.recoveries
    }

    /// Pins tensors by name, in plans made from now on.
    #[doc(alias = "ggml_backend_sched_set_tensor_backend")]
    pub fn pin(&mut self, pin: NamedPin) {
        self.options.plan.named_pins.add(pin);
        self.plans.clear();
    }

    /// Removes the pin of a pattern. Tells whether it was there.
    pub fn unpin(&mut self, pattern: &str) -> bool {
        self.plans.clear();
        self.options.plan.named_pins.remove(pattern)
    }

    /// Pins that match nothing in the session's graphs.
    pub fn unmatched_pins(&self) -> Vec<NamedPin> {
        let graphs: Vec<&Graph> = self.graphs.iter().map(|graph| &**graph).collect();
        self.options.plan.named_pins.unmatched(&graphs).into_iter().cloned().collect()
    }

    /// Gives plans and compute memory back. Weights, state and pins stay.
    #[doc(alias = "ggml_backend_sched_reset")]
    pub fn reset(&mut self) {
        self.plans.clear();
        self.workspace = Workspace::new();
    }

    /// The plan of a graph, made now or taken from the cache.
    ///
    /// # Errors
    /// A graph that the devices cannot run.
    pub fn plan(&mut self, graph: &Arc<Graph>) -> Result<Arc<Plan>, RunError> {
        let known = self.plans.get(&graph.fingerprint()).and_then(|plans| {
            plans.iter().find(|p| Arc::ptr_eq(&p.graph, graph) || p.graph.same_as(graph))
        });
        if let Some(plan) = known {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(plan::plan(
            graph,
            &self.devices,
            &self.backends,
            &self.weights,
            &self.state,
            &self.options.plan,
        )?);
        // All are counted: a graph with a NaN parameter never equals its like.
        if self.plans.values().map(Vec::len).sum::<usize>() >= MAX_PLANS {
            self.plans.clear();
        }
        self.plans.entry(graph.fingerprint()).or_default().push(Arc::clone(&plan));
        Ok(plan)
    }

    /// Makes the memory for a graph available before its first run.
    ///
    /// # Errors
    /// A graph that cannot be planned; memory that cannot be had.
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, graph: &Arc<Graph>) -> Result<(), RunError> {
        let plan = self.plan(graph)?;
        Ok(self.workspace.reserve(&plan)?)
    }

    /// Runs a graph and returns its outputs, readable until the next run.
    ///
    /// # Errors
    /// A graph that cannot be planned, wrong inputs, the abort signal, or a failed device that
    /// the session cannot or shall not go on without.
    pub fn run(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
    ) -> Result<Outputs<'_>, RunError> {
        let plan = loop {
            let outcome = self.catch_up().and_then(|()| self.attempt(graph, inputs));
            match outcome {
                Ok(plan) => break plan,
                Err(error) => self.go_on_without(error)?,
            }
        };
        self.note(&plan, graph, inputs);
        Ok(Outputs { plan, session: self })
    }

    /// Starts a run of a graph. Its outputs are read with [`Session::outputs`] once the ticket
    /// was waited for. What fails after this returned is told by the ticket; the session does
    /// not go on by itself then.
    ///
    /// # Errors
    /// As [`Session::run`].
    #[doc(alias = "ggml_backend_sched_graph_compute_async")]
    pub fn submit(&mut self, graph: &Arc<Graph>, inputs: &[Input<'_>]) -> Result<Ticket, RunError> {
        let (plan, ticket) = loop {
            let outcome = self.catch_up().and_then(|()| self.start(graph, inputs));
            match outcome {
                Ok(started) => break started,
                Err(error) => self.go_on_without(error)?,
            }
        };
        self.note(&plan, graph, inputs);
        Ok(ticket)
    }

    /// The outputs of a graph that was run last. Waits for the run.
    ///
    /// # Errors
    /// A graph that cannot be planned. Reading tells whether its results are there.
    pub fn outputs(&mut self, graph: &Arc<Graph>) -> Result<Outputs<'_>, RunError> {
        let plan = self.plan(graph)?;
        Ok(Outputs { plan, session: self })
    }

    fn attempt(&mut self, graph: &Arc<Graph>, inputs: &[Input<'_>]) -> Result<Arc<Plan>, RunError> {
        let (plan, ticket) = self.start(graph, inputs)?;
        ticket.wait()?;
        Ok(plan)
    }

    fn start(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
    ) -> Result<(Arc<Plan>, Ticket), RunError> {
        let plan = self.plan(graph)?;
        let ticket = exec::submit(
            &plan,
            &mut self.backends,
            &self.weights,
            &mut self.state,
            &mut self.workspace,
            inputs,
            &self.abort,
        )?;
        Ok((plan, ticket))
    }
}

/// State where planning wants it, around weights that are loaded.
fn create_state(
    graphs: &[&Arc<Graph>],
    devices: &[PlanDevice],
    weights: &Weights,
    options: &PlanOptions,
) -> Result<State, RunError> {
    let assignment = assign_around(graphs, devices, Some(weights), options)?;
    let graphs: Vec<&Graph> = graphs.iter().map(|graph| &***graph).collect();
    State::create(&graphs, &assignment)
}
