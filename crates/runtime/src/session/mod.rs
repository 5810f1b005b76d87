//! A session: state, workspace and plan cache around shared weights.
//!
//! The one thing that programs use. It plans each graph once, keeps the plans, and runs them on
//! the devices that it was opened with. When a device fails, it can go on without it.

mod outputs;
mod recover;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::{Graph, TensorId};

pub use outputs::Outputs;
pub use recover::{FailurePolicy, Recovery};

use self::recover::Journal;
use crate::exec::{
    self, Input, Observer, RunCounters, RunOptions, SplitTiming, State, Ticket, Workspace,
};
use crate::plan::{MemoryLimits, NamedPin, assign_around};
use crate::registry::Selected;
use crate::{
    AbortSignal, Backend, Plan, PlanDevice, PlanError, PlanOptions, RunError, WeightSource,
    Weights, plan,
};

/// Plans kept at most; the shapes of a model's graphs are far fewer.
const MAX_PLANS: usize = 64;

/// How a session plans, and what it does when a device fails.
#[derive(Clone)]
pub struct SessionOptions {
    /// Options of planning.
    pub plan: PlanOptions,
    /// Runs that may overlap when they are submitted without waiting: 1, up to
    /// [`MAX_COPIES`](exec::MAX_COPIES).
    #[doc(alias = "ggml_backend_sched_get_n_copies")]
    pub overlapping_runs: usize,
    /// What to do when a device fails.
    pub on_failure: FailurePolicy,
    /// Where weights are read again that were lost with a device.
    pub weight_source: Option<Arc<dyn WeightSource>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            plan: PlanOptions::default(),
            overlapping_runs: 1,
            on_failure: FailurePolicy::default(),
            weight_source: None,
        }
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("plan", &self.plan)
            .field("overlapping_runs", &self.overlapping_runs)
            .field("on_failure", &self.on_failure)
            .field("weight_source", &self.weight_source.is_some())
            .finish()
    }
}

/// A plan with the nodes that it was made to observe.
struct KnownPlan {
    observed: Vec<TensorId>,
    plan: Arc<Plan>,
}

impl KnownPlan {
    /// Whether this is the plan of the graph, or of one that is the same.
    fn is_for(&self, graph: &Arc<Graph>, observed: &[TensorId]) -> bool {
        let same = || Arc::ptr_eq(&self.plan.graph, graph) || self.plan.graph.same_as(graph);
        self.observed == observed && same()
    }
}

/// Runs graphs on opened devices, with state of its own and shared weights.
#[doc(alias = "ggml_backend_sched")]
pub struct Session {
    devices: Vec<PlanDevice>,
    backends: Vec<Box<dyn Backend>>,
    graphs: Vec<Arc<Graph>>,
    weights: Arc<Weights>,
    state: State,
    workspace: Workspace,
    /// Plans by the fingerprints of their graphs.
    plans: HashMap<u64, Vec<KnownPlan>>,
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
        mut options: SessionOptions,
    ) -> Result<Self, RunError> {
        options.overlapping_runs = options.overlapping_runs.max(options.plan.overlapping_runs);
        options.plan.overlapping_runs = options.overlapping_runs;
        if devices.is_empty() {
            return Err(PlanError::NoDevice.into());
        }
        let mut backends = Vec::with_capacity(devices.len());
        for selected in devices {
            backends.push(selected.device.open(&selected.options)?);
        }
        let devices: Vec<PlanDevice> =
            devices.iter().map(|selected| PlanDevice::new(&selected.device)).collect();
        // Plans made later must not exceed what was free when the session began.
        let (state, limits) = create_state(graphs, &devices, &weights, &options.plan)?;
        options.plan.limits = limits;
        let journal = Journal::new(options.on_failure == FailurePolicy::Replan, devices.len());
        Ok(Self {
            devices,
            backends,
            graphs: graphs.iter().map(|graph| Arc::clone(graph)).collect(),
            weights,
            state,
            workspace: Workspace::with_copies(options.overlapping_runs),
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
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
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
        self.state.forget_changes();
        self.state.accept_torn();
    }

    /// Sets all state to zero: a new stream begins. A device that fails at it is gone on without.
    ///
    /// # Errors
    /// A failed device that the session cannot or shall not go on without.
    pub fn clear_state(&mut self) -> Result<(), RunError> {
        loop {
            self.forget_state();
            match self.catch_up().and_then(|()| self.state_mut().clear()) {
                Ok(()) => return Ok(()),
                Err(error) => self.go_on_without(error)?,
            }
        }
    }

    /// Bytes of compute memory that the session holds.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.bytes()
    }

    /// Bytes of compute memory by kind.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    #[doc(alias = "ggml_backend_sched_get_buffer")]
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
    #[doc(alias = "ggml_backend_sched_set_node_backend")]
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

    /// Gives plans and compute memory back. Weights, state and pins stay. Waits for runs in
    /// flight.
    #[doc(alias = "ggml_backend_sched_reset")]
    pub fn reset(&mut self) {
        self.plans.clear();
        exec::make_ready(&mut self.backends);
        self.workspace.release();
    }

    /// The plan of a graph, made now or taken from the cache.
    ///
    /// # Errors
    /// A graph that the devices cannot run.
    #[doc(alias = "ggml_backend_sched_alloc_graph")]
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub fn plan(&mut self, graph: &Arc<Graph>) -> Result<Arc<Plan>, RunError> {
        self.plan_observing(graph, &[])
    }

    fn plan_observing(
        &mut self,
        graph: &Arc<Graph>,
        observed: &[TensorId],
    ) -> Result<Arc<Plan>, RunError> {
        let known = self.plans.get(&graph.fingerprint());
        let known = known.and_then(|plans| plans.iter().find(|k| k.is_for(graph, observed)));
        if let Some(known) = known {
            return Ok(Arc::clone(&known.plan));
        }
        let with_observed;
        let options = if observed.is_empty() {
            &self.options.plan
        } else {
            with_observed =
                PlanOptions { observed: observed.to_vec(), ..self.options.plan.clone() };
            &with_observed
        };
        let plan = Arc::new(plan::plan(
            graph,
            &self.devices,
            &self.backends,
            &self.weights,
            &self.state,
            options,
        )?);
        // All are counted: a graph with a NaN parameter never equals its like.
        if self.plans.values().map(Vec::len).sum::<usize>() >= MAX_PLANS {
            self.plans.clear();
        }
        let plans = self.plans.entry(graph.fingerprint()).or_default();
        plans.push(KnownPlan { observed: observed.to_vec(), plan: Arc::clone(&plan) });
        Ok(plan)
    }

    /// Makes the memory for a graph available before its first run.
    ///
    /// # Errors
    /// A graph that cannot be planned; memory that cannot be had.
    #[doc(alias = "ggml_backend_sched_reserve")]
    #[doc(alias = "ggml_backend_sched_init_measure")]
    pub fn reserve(&mut self, graph: &Arc<Graph>) -> Result<(), RunError> {
        let plan = self.plan(graph)?;
        Ok(self.workspace.reserve(&plan)?)
    }

    /// Runs a graph and returns its outputs, readable until the next run.
    ///
    /// # Errors
    /// A graph that cannot be planned, wrong inputs, the abort signal, or a failed device that
    /// the session cannot or shall not go on without.
    #[doc(alias = "ggml_backend_sched_graph_compute")]
    #[doc(alias = "ggml_backend_graph_compute")]
    pub fn run(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
    ) -> Result<Outputs<'_>, RunError> {
        self.run_watched(graph, inputs, None, None)
    }

    /// As [`Session::run`], and reads the outputs before the run counts as done: a device that
    /// fails before they are read is gone on without, too. `read` may be called again then.
    ///
    /// # Errors
    /// As [`Session::run`], and what `read` returns.
    pub fn run_reading<T>(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
        mut read: impl FnMut(&Outputs<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        loop {
            let outcome = self.catch_up().and_then(|()| self.attempt(graph, inputs));
            let plan = match outcome {
                Ok(plan) => plan,
                Err(error) => {
                    self.go_on_without(error)?;
                    continue;
                }
            };
            match read(&Outputs { plan: Arc::clone(&plan), mark: None, session: self }) {
                Ok(values) => {
                    self.note(&plan, graph, inputs, None);
                    return Ok(values);
                }
                Err(error) if self.can_go_on_without(&error) => self.go_on_without(error)?,
                Err(error) => {
                    // The run has happened, whatever the caller made of it.
                    self.note(&plan, graph, inputs, None);
                    return Err(error);
                }
            }
        }
    }

    fn attempt(&mut self, graph: &Arc<Graph>, inputs: &[Input<'_>]) -> Result<Arc<Plan>, RunError> {
        let mut options = RunOptions { abort: self.abort.clone(), ..RunOptions::default() };
        let (plan, ticket) = self.start(graph, &[], inputs, &mut options)?;
        ticket.wait()?;
        Ok(plan)
    }

    /// As [`Session::run`], and shows nodes to an observer as they are computed. A run that is
    /// repeated because a device failed is shown again.
    ///
    /// # Errors
    /// As [`Session::run`]; an observer that stops the run ends it as cancelled.
    #[doc(alias = "ggml_backend_sched_set_eval_callback")]
    pub fn run_observed(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Outputs<'_>, RunError> {
        self.run_watched(graph, inputs, Some(observer), None)
    }

    /// As [`Session::run`], and takes the time of each split, which costs some.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
        timings: &mut Vec<SplitTiming>,
    ) -> Result<Outputs<'_>, RunError> {
        self.run_watched(graph, inputs, None, Some(timings))
    }

    fn run_watched(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
        mut observer: Option<&mut dyn Observer>,
        mut timings: Option<&mut Vec<SplitTiming>>,
    ) -> Result<Outputs<'_>, RunError> {
        let observed: Vec<TensorId> = match observer.as_deref_mut() {
            Some(observer) => wanted(graph, observer),
            None => Vec::new(),
        };
        let plan = loop {
            if let Some(timings) = timings.as_deref_mut() {
                timings.clear();
            }
            let mut options = RunOptions {
                abort: self.abort.clone(),
                observer: observer.as_mut().map(|observer| &mut **observer as _),
                timings: timings.as_deref_mut(),
            };
            let outcome = self.catch_up().and_then(|()| {
                let (plan, ticket) = self.start(graph, &observed, inputs, &mut options)?;
                ticket.wait()?;
                Ok(plan)
            });
            match outcome {
                Ok(plan) => break plan,
                Err(error) => self.go_on_without(error)?,
            }
        };
        self.note(&plan, graph, inputs, None);
        Ok(Outputs { plan, mark: None, session: self })
    }

    /// Starts a run of a graph. Its outputs are read with [`Session::results`]. What fails after
    /// this returned is told there, and the run did not happen: the next one begins with the
    /// state before it, on the devices that are left.
    ///
    /// # Errors
    /// As [`Session::run`].
    #[doc(alias = "ggml_backend_sched_graph_compute_async")]
    pub fn submit(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
    ) -> Result<Submitted, RunError> {
        let (plan, ticket) = loop {
            let mut options = RunOptions { abort: self.abort.clone(), ..RunOptions::default() };
            let outcome =
                self.catch_up().and_then(|()| self.start(graph, &[], inputs, &mut options));
            match outcome {
                Ok(started) => break started,
                Err(error) => self.go_on_without(error)?,
            }
        };
        self.note(&plan, graph, inputs, ticket.flight());
        Ok(Submitted { plan, ticket })
    }

    /// The outputs of a run that was submitted, once it is over. They are there until the
    /// session's memory is needed again: after as many later runs as may overlap.
    ///
    /// # Errors
    /// What went wrong in the run.
    pub fn results(&self, submitted: &Submitted) -> Result<Outputs<'_>, RunError> {
        submitted.ticket.wait()?;
        let (plan, mark) = (Arc::clone(&submitted.plan), Some(submitted.ticket.mark()));
        Ok(Outputs { plan, mark, session: self })
    }

    fn start(
        &mut self,
        graph: &Arc<Graph>,
        observed: &[TensorId],
        inputs: &[Input<'_>],
        options: &mut RunOptions<'_>,
    ) -> Result<(Arc<Plan>, Ticket), RunError> {
        let plan = self.plan_observing(graph, observed)?;
        let ticket = exec::submit(
            &plan,
            &mut self.backends,
            &self.weights,
            &mut self.state,
            &mut self.workspace,
            inputs,
            options,
        )?;
        Ok((plan, ticket))
    }
}

/// A run that was submitted, with what it takes to read its results. Dropping it waits.
#[derive(Debug)]
pub struct Submitted {
    plan: Arc<Plan>,
    ticket: Ticket,
}

impl Submitted {
    /// Whether the run is over.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Waits until the run is over.
    ///
    /// # Errors
    /// What went wrong on a device, or the abort signal.
    #[doc(alias = "ggml_backend_sched_synchronize")]
    pub fn wait(&self) -> Result<(), RunError> {
        Ok(self.ticket.wait()?)
    }
}

/// The live nodes of a graph that an observer wants, in graph order.
fn wanted(graph: &Graph, observer: &mut dyn Observer) -> Vec<TensorId> {
    let is_node = |&id: &TensorId| graph.is_live(id) && graph.tensor(id).op().is_some();
    let nodes = graph.ids().filter(is_node);
    nodes.filter(|&id| observer.wants(graph, id)).collect()
}

/// State where planning wants it, around weights that are loaded, and the limits of memory that
/// it was planned for.
fn create_state(
    graphs: &[&Arc<Graph>],
    devices: &[PlanDevice],
    weights: &Weights,
    options: &PlanOptions,
) -> Result<(State, MemoryLimits), RunError> {
    let assignment = assign_around(graphs, devices, Some(weights), options)?;
    let graphs: Vec<&Graph> = graphs.iter().map(|graph| &***graph).collect();
    Ok((State::create(&graphs, &assignment)?, assignment.limits().clone()))
}
