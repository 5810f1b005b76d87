//! Conformance cases for backends, judged by an `f64` oracle that is no backend.
//!
//! * [`oracle`]: what every op means; [`mod@interpret`]: whole graphs by it, without planning.
//! * [`cases`]: named cases with awkward inputs; [`suite`]: runs them on a device.
//! * [`mod@reference`]: devices that compute by the oracle, in memory of their own.
//! * [`graphs`]: graphs made in place.
//! * [`greedy`]: the placement that planning is measured against.
//! * [`random_graph`]: seeded graphs over all ops; [`fuzz`]: runs them on any devices.
//!
//! For tests only. A backend's test file calls [`suite::run_suite`] and asserts the report.

pub mod case;
pub mod cases;
pub mod compare;
pub mod data;
pub mod expect;
pub mod fuzz;
pub mod graphs;
pub mod greedy;
pub mod interpret;
pub mod oracle;
pub mod random_graph;
pub mod reference;
pub mod rng;
pub mod suite;

pub use expect::Expectation;
pub use interpret::interpret;
pub use suite::{Fusion, Report, SuiteOptions, run_suite};
