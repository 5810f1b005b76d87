//! The plan of a model, from the header of its file: no weight is read.

use std::path::Path;
use std::sync::Arc;

use tensoryard_formats::OpenOptions;
use tensoryard_graph::{Graph, GraphError};
use tensoryard_models::whisper::graphs::{ModelGraph, graph_config, graphs};
use tensoryard_models::whisper::{LoadOptions, open_checkpoint};
use tensoryard_runtime::plan::strategy::rates_of;
use tensoryard_runtime::plan::{Assignment, MemoryLimits, MemoryUse, Strategy, assign, draft};
use tensoryard_runtime::{Blueprint, PlanDevice, PlanError, PlanOptions, Selected};

use super::{PlannedGraph, Report};

/// A model could not be planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanModelError {
    /// A file that is no Whisper model, or is damaged, or cannot be computed with.
    #[error(transparent)]
    Model(#[from] tensoryard_models::Error),
    /// Sizes in the file that do not fit each other.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An op that no device runs, a pin that cannot be honoured, a tensor that no device can hold.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Report {
    /// Plans all graphs of a model file for these devices, in order of priority, as a session
    /// would, and reports it.
    ///
    /// A model that does not fit is reported, too, with what lies beyond the limits of the last
    /// device, or of all where the others are too small even to compute.
    ///
    /// # Errors
    /// [`PlanModelError`].
    pub fn of_model(
        path: &Path,
        devices: &[Selected],
        options: &LoadOptions,
    ) -> Result<Self, PlanModelError> {
        let checkpoint = open_checkpoint(path, OpenOptions::new().mmap(true))?;
        let graphs = graphs(&graph_config(&checkpoint, options)?)?;
        let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let title = checkpoint.name.clone().or_else(stem).unwrap_or_default();
        Self::of_graphs(&title, &graphs, devices, &options.session.plan)
    }

    /// As [`Report::of_model`], from the graphs.
    ///
    /// # Errors
    /// [`PlanModelError::Plan`].
    pub fn of_graphs(
        title: &str,
        graphs: &[ModelGraph],
        devices: &[Selected],
        options: &PlanOptions,
    ) -> Result<Self, PlanModelError> {
        let plain: Vec<&Graph> = graphs.iter().map(|graph| &*graph.graph).collect();
        let mut unmeasured = devices.iter().skip(options.rates.len());
        let unmeasured = unmeasured.find(|selected| selected.device.rates().is_none());
        let unmatched = options.named_pins.unmatched(&plain);
        let devices = plan_devices(devices)?;
        let planned = Planned::new(graphs, &devices, options)?;
        let rates = rates_of(&devices, options).ok();
        let rows: Vec<PlannedGraph<'_>> = graphs
            .iter()
            .zip(&planned.blueprints)
            .map(|(graph, blueprint)| PlannedGraph {
                name: graph.name,
                purpose: &graph.purpose,
                blueprint,
            })
            .collect();
        let mut report = Self::new(
            title,
            strategy_name(options.strategy),
            &planned.memory,
            rates.as_deref(),
            &rows,
        )?;
        report.threads = unmeasured.map_or(0, |selected| selected.options.threads);
        report.unmatched_pins = unmatched.iter().map(|pin| pin.pattern.clone()).collect();
        report.problem = planned.problem.map(|error| error.to_string());
        report.fits &= report.problem.is_none();
        Ok(report)
    }
}

fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Priority => "priority",
        Strategy::Cost => "cost",
    }
}

fn plan_devices(devices: &[Selected]) -> Result<Vec<PlanDevice>, PlanError> {
    let with_memory = |selected: &Selected| {
        let buffer_type = selected.device.buffer_types().first().ok_or(PlanError::NoDevice)?;
        Ok(PlanDevice {
            device: Arc::clone(&selected.device),
            buffer_type: Arc::clone(buffer_type),
        })
    };
    devices.iter().map(with_memory).collect()
}

/// The plans of all graphs, also where they do not fit.
struct Planned {
    blueprints: Vec<Blueprint>,
    memory: Vec<MemoryUse>,
    /// Why it does not fit.
    problem: Option<PlanError>,
}

impl Planned {
    fn new(
        graphs: &[ModelGraph],
        devices: &[PlanDevice],
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let list: Vec<&Arc<Graph>> = graphs.iter().map(|graph| &graph.graph).collect();
        let problem = match assign(&list, devices, options) {
            Ok(assignment) => {
                let memory = assignment.memory().to_vec();
                let blueprints = draft_all(&list, devices, &assignment, options)?;
                return Ok(Self { blueprints, memory, problem: None });
            }
            Err(error @ (PlanError::NoRoom { .. } | PlanError::DoesNotFit { .. })) => error,
            Err(error) => return Err(error),
        };
        let limits = options.limits.or_free(devices);
        let unlimited = Some(usize::MAX);
        let mut last = limits.clone();
        if let Some(limit) = last.devices.last_mut() {
            *limit = unlimited;
        }
        let all = MemoryLimits { devices: vec![unlimited; devices.len()], ..limits.clone() };
        for relaxed in [last, all] {
            let relaxed = PlanOptions { limits: relaxed, ..options.clone() };
            let Ok(assignment) = assign(&list, devices, &relaxed) else { continue };
            let mut memory = assignment.memory().to_vec();
            for memory in &mut memory {
                memory.limit = memory.devices.iter().filter_map(|&at| limits.of(at)).min();
            }
            let blueprints = draft_all(&list, devices, &assignment, &relaxed)?;
            return Ok(Self { blueprints, memory, problem: Some(problem) });
        }
        Err(problem)
    }
}

fn draft_all(
    graphs: &[&Arc<Graph>],
    devices: &[PlanDevice],
    assignment: &Assignment,
    options: &PlanOptions,
) -> Result<Vec<Blueprint>, PlanError> {
    // As a session does: under the limits that the assignment was made for.
    let options = PlanOptions { limits: assignment.limits().clone(), ..options.clone() };
    let draft = |graph: &&Arc<Graph>| draft(graph, devices, assignment.residence(graph)?, &options);
    graphs.iter().map(draft).collect()
}
