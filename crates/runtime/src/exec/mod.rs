//! Running plans: state, workspace, inputs and the order of copies and programs.

mod run;
mod state;
mod workspace;

pub use run::{Input, read_output, run};
pub use state::{State, StateTensor};
pub use workspace::Workspace;
