//! Running plans: state, workspace, inputs and the order of copies and programs.

mod bind;
mod compare;
mod copy;
mod graph_data;
mod observe;
mod output;
mod route;
mod run;
mod state;
mod ticket;
mod workspace;

pub use compare::{
    CompareError, CompareOptions, CompareReport, Distance, Feed, NodeDistance, NodePair, compare,
};
pub use graph_data::GraphData;
pub use observe::{Observer, Seen, SplitTiming};
pub use output::read_output;
pub(crate) use output::read_output_of;
pub(crate) use route::Route;
pub use run::{Input, RunOptions, run, submit};
pub use state::{State, StateStatus, StateTensor};
#[cfg(all(test, loom))]
pub(crate) use ticket::Flight;
pub(crate) use ticket::RunMark;
pub use ticket::Ticket;
pub use workspace::{MAX_COPIES, RunCounters, Workspace};
