//! A session: state, workspace and plan cache around shared weights.
//!
//! The one thing that programs use. It plans each graph once, keeps the plans, and runs them on
//! the devices that it was opened with.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::{DType, Graph};

use crate::exec::{self, Input, State, Workspace};
use crate::registry::Selected;
use crate::{AbortSignal, Backend, Plan, PlanDevice, PlanOptions, RunError, Weights, plan};

/// Plans kept at most; the shapes of a model's graphs are far fewer.
const MAX_PLANS: usize = 64;

/// How a session plans.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Options of planning.
    pub plan: PlanOptions,
}

/// Runs graphs on opened devices, with state of its own and shared weights.
pub struct Session {
    devices: Vec<PlanDevice>,
    backends: Vec<Box<dyn Backend>>,
    weights: Arc<Weights>,
    state: State,
    workspace: Workspace,
    plans: HashMap<u64, Vec<Arc<Plan>>>,
    options: SessionOptions,
    abort: AbortSignal,
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
    pub fn open(
        devices: &[Selected],
        weights: Arc<Weights>,
        graphs: &[&Graph],
        options: SessionOptions,
    ) -> Result<Self, RunError> {
        let first = devices.first().ok_or(crate::PlanError::NoDevice)?;
        let state = State::create_on(graphs, &*first.device)?;
        let mut backends = Vec::with_capacity(devices.len());
        for selected in devices {
            backends.push(selected.device.open(&selected.options)?);
        }
        let devices = devices
            .iter()
            .map(|selected| PlanDevice {
                buffer_type: Arc::clone(&selected.device.buffer_types()[0]),
                device: Arc::clone(&selected.device),
            })
            .collect();
        Ok(Self {
            devices,
            backends,
            weights,
            state,
            workspace: Workspace::new(),
            plans: HashMap::new(),
            options,
            abort: AbortSignal::new(),
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

    /// The state tensors.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state tensors, to be written.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Bytes of compute memory that the session holds.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.bytes()
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
    pub fn reserve(&mut self, graph: &Arc<Graph>) -> Result<(), RunError> {
        let plan = self.plan(graph)?;
        Ok(self.workspace.reserve(&plan)?)
    }

    /// Runs a graph and returns its outputs, readable until the next run.
    ///
    /// # Errors
    /// A graph that cannot be planned, wrong inputs, a failed device, the abort signal.
    pub fn run(
        &mut self,
        graph: &Arc<Graph>,
        inputs: &[Input<'_>],
    ) -> Result<Outputs<'_>, RunError> {
        let plan = self.plan(graph)?;
        exec::run(
            &plan,
            &mut self.backends,
            &self.weights,
            &mut self.state,
            &mut self.workspace,
            inputs,
            &self.abort,
        )?;
        Ok(Outputs { plan, session: self })
    }
}

/// The outputs of the last run of a session.
#[derive(Debug)]
pub struct Outputs<'a> {
    plan: Arc<Plan>,
    session: &'a Session,
}

impl Outputs<'_> {
    /// Values of an f32 output, elements in order, fastest dimension first.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, RunError> {
        let mut values = Vec::new();
        self.read_f32(name, &mut values)?;
        Ok(values)
    }

    /// As [`Outputs::f32`], into memory that the caller keeps.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn read_f32(&self, name: &str, dst: &mut Vec<f32>) -> Result<(), RunError> {
        self.read(name, DType::F32, dst)
    }

    /// Values of an f16 output, elements in order, as bits.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn f16_bits(&self, name: &str) -> Result<Vec<u16>, RunError> {
        let mut values = Vec::new();
        self.read(name, DType::F16, &mut values)?;
        Ok(values)
    }

    /// Values of an i32 output, elements in order.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>, RunError> {
        let mut values = Vec::new();
        self.read(name, DType::I32, &mut values)?;
        Ok(values)
    }

    fn read<T: bytemuck::Pod>(
        &self,
        name: &str,
        wanted: DType,
        dst: &mut Vec<T>,
    ) -> Result<(), RunError> {
        let Session { weights, state, workspace, .. } = self.session;
        exec::read_output(&self.plan, name, wanted, weights, state, workspace, dst)
    }
}
