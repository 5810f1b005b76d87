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
pub(crate) use run::make_ready;
pub use run::{Input, RunOptions, run, submit};
pub use state::{State, StateStatus, StateTensor};
pub use ticket::Ticket;
pub(crate) use ticket::{Flight, RunMark};
pub use workspace::{MAX_COPIES, RunCounters, Workspace};
