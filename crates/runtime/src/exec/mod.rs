//! Running plans: state, workspace, inputs and the order of copies and programs.

mod bind;
mod copy;
mod output;
mod route;
mod run;
mod state;
mod ticket;
mod workspace;

pub use output::read_output;
pub(crate) use route::Route;
pub use run::{Input, run, submit};
pub use state::{State, StateStatus, StateTensor};
pub use ticket::Ticket;
pub use workspace::{RunCounters, Workspace};
