//! A plan that a person can look at, made before anything is loaded.
//!
//! [`Report::new`] turns blueprints into plain data; [`Report::text`],
//! [`Report::json`], [`Report::dot`], [`Report::svg`] and [`Report::html`] show
//! it. Renderers read nothing but the report, and trust no name in it: what
//! comes from a model file is escaped for the form that it is written in.

mod build;
mod dot;
mod escape;
mod html;
mod lanes;
mod memory;
mod model;
mod names;
mod reasons;
mod report;
mod svg;
mod text;

use tensoryard_runtime::plan::MemoryUse;
use tensoryard_runtime::{Blueprint, DeviceRates, PlanError};

pub use model::PlanModelError;
pub use report::{
    ComputeReport, CopyReport, CopyTime, DeviceReport, Family, GraphReport, MemoryReport,
    NodeReport, OperationReport, PlaceReport, REPORT_VERSION, Report, SourceReport, SplitReport,
    SplitTime, TypeReport,
};
pub use text::Detail;

/// A graph with its plan, as a report is made of them.
#[derive(Debug, Clone, Copy)]
pub struct PlannedGraph<'a> {
    /// Short name, unique among the graphs of the report.
    pub name: &'a str,
    /// What the graph computes, in words.
    pub purpose: &'a str,
    /// What planning decided.
    pub blueprint: &'a Blueprint,
}

impl Report {
    /// The report of graphs that were planned for the same devices, weights and state.
    ///
    /// `memory` is what each memory must hold for all of them; `rates` are those of the devices,
    /// in order, if all are known. Without them no time is predicted.
    ///
    /// # Errors
    /// A blueprint whose tables do not fit each other.
    pub fn new(
        title: &str,
        strategy: &str,
        memory: &[MemoryUse],
        rates: Option<&[DeviceRates]>,
        graphs: &[PlannedGraph<'_>],
    ) -> Result<Self, PlanError> {
        let memory = memory::memory(memory);
        let devices = graphs.first().map(|graph| build::devices(graph.blueprint, rates));
        Ok(Self {
            version: REPORT_VERSION,
            title: title.to_owned(),
            strategy: strategy.to_owned(),
            fits: memory.iter().all(|memory| memory.over_bytes == 0),
            problem: None,
            threads: 0,
            unmatched_pins: Vec::new(),
            devices: devices.unwrap_or_default(),
            memory,
            graphs: graphs
                .iter()
                .map(|graph| build::graph(graph, rates))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The report as JSON: its fields under their own names.
    pub fn json(&self) -> String {
        // A report holds only strings, numbers and lists of them, which always serialise.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
