//! Two devices, or two settings of one, compared node by node.
//!
//! For everybody who writes or distrusts a device: the first node whose results are too far
//! apart is where to look.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use tensoryard::compare::{CompareOptions, GraphData, compare};
//! use tensoryard::cpu::{CpuDevice, Isa};
//! use tensoryard::graph::{DType, GraphBuilder};
//! use tensoryard::runtime::{
//!     BackendOptions, Device, Input, State, Weights, host_buffer_type,
//! };
//!
//! let g = GraphBuilder::new("activation");
//! g.input("x", DType::F32, [4]).gelu_erf().named("gelu").scale(2.0, 0.0).output("y");
//! let graph = Arc::new(g.finish()?);
//!
//! let options = BackendOptions { threads: 1 };
//! let mut scalar = CpuDevice::new(Isa::scalar()).open(&options)?;
//! let mut fastest = CpuDevice::new(Isa::detect()).open(&options)?;
//! let memory = host_buffer_type();
//! let (weights, state) = (Weights::default(), State::default());
//! let x = Input::f32("x", &[-1.0, 0.0, 0.5, 2.0]);
//! let mut data = GraphData::load(&graph, memory, &weights, &state, &[x])?;
//! let how = CompareOptions::default();
//! let report = compare(&mut data, &mut *scalar, &mut *fastest, memory, &how, |pair| {
//!     println!("{} {}: {:?}", pair.index, pair.name, pair.distance);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(report.nodes.len(), 2);
//! assert!(report.first_beyond(1e-10).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use tensoryard_runtime::exec::{
    CompareError, CompareOptions, CompareReport, Distance, Feed, GraphData, NodeDistance, NodePair,
    compare,
};
