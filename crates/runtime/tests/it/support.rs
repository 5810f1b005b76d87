//! Devices, opened and planned for, as the tests need them.

use std::error::Error;
use std::sync::Arc;

use tensoryard_conformance::data::MemoryWeights;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::{
    AbortSignal, Backend, BackendOptions, Device, Input, Plan, PlanDevice, PlanError, PlanOptions,
    RunError, State, Weights, Workspace, exec, plan,
};

/// Opened devices with weights and state, wherever the test wants them.
pub struct Bench {
    pub devices: Vec<PlanDevice>,
    pub backends: Vec<Box<dyn Backend>>,
    pub weights: Weights,
    pub state: State,
    pub workspace: Workspace,
}

/// A device that claims everything.
pub fn full(name: &str) -> ReferenceOptions {
    ReferenceOptions::new(name)
}

/// A device that claims some ops only.
pub fn only(name: &str, ops: &[OpKind]) -> ReferenceOptions {
    ReferenceOptions { ops: ops.to_vec(), ..ReferenceOptions::new(name) }
}

/// A device that claims all ops but some.
pub fn without(name: &str, ops: &[OpKind]) -> ReferenceOptions {
    let mut options = ReferenceOptions::new(name);
    options.ops.retain(|op| !ops.contains(op));
    options
}

impl Bench {
    /// Weights on the device numbered `weights`, state on the one numbered `state`.
    pub fn open(
        graphs: &[&Graph],
        devices: &[Arc<dyn Device>],
        source: &MemoryWeights,
        weights: usize,
        state: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let mut backends = Vec::new();
        for device in devices {
            backends.push(device.open(&BackendOptions::default())?);
        }
        Ok(Self {
            backends,
            weights: Weights::load_on(source, graphs, &*devices[weights], |_, _| true)?,
            state: State::create_on(graphs, &*devices[state])?,
            workspace: Workspace::new(),
            devices: devices
                .iter()
                .map(|device| PlanDevice {
                    device: Arc::clone(device),
                    buffer_type: Arc::clone(&device.buffer_types()[0]),
                })
                .collect(),
        })
    }

    /// A bench of these devices with weights and state on the first, without any weights.
    pub fn new(graph: &Graph, devices: Vec<ReferenceOptions>) -> Self {
        let devices: Vec<_> = devices.into_iter().map(ReferenceOptions::build).collect();
        Self::open(&[graph], &devices, &MemoryWeights::default(), 0, 0).unwrap()
    }

    pub fn plan_unverified(
        &self,
        graph: &Arc<Graph>,
        options: &PlanOptions,
    ) -> Result<Plan, PlanError> {
        plan::plan(graph, &self.devices, &self.backends, &self.weights, &self.state, options)
    }

    /// The plan, verified.
    pub fn plan_with(&self, graph: &Arc<Graph>, options: &PlanOptions) -> Result<Plan, PlanError> {
        let plan = self.plan_unverified(graph, options)?;
        if let Err(violations) = verify(&plan) {
            panic!("{}\n{}\n{violations:#?}", graph.dump(), plan.dump());
        }
        Ok(plan)
    }

    /// The plan without fusion, verified.
    pub fn plan(&self, graph: &Arc<Graph>) -> Plan {
        let options = PlanOptions { fusion: false, ..PlanOptions::default() };
        self.plan_with(graph, &options).unwrap()
    }

    pub fn run(&mut self, plan: &Plan, inputs: &[Input<'_>]) -> Result<(), RunError> {
        exec::run(
            plan,
            &mut self.backends,
            &self.weights,
            &mut self.state,
            &mut self.workspace,
            inputs,
            &AbortSignal::new(),
        )
    }

    pub fn output(&self, plan: &Plan, name: &str) -> Vec<f32> {
        let mut values = Vec::new();
        let Self { weights, state, workspace, .. } = self;
        exec::read_output(plan, name, DType::F32, weights, state, workspace, &mut values).unwrap();
        values
    }
}
