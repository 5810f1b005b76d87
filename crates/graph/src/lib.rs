//! Compute graphs as immutable data, and the operations in them.
//!
//! A [`GraphBuilder`] hands out copyable [`Tensor`] handles, so that model
//! code reads like the paper; [`GraphBuilder::finish`] turns the result into a
//! [`Graph`] that nobody changes afterwards. What planning learns about a
//! graph lives in [`TensorMap`]s beside it, never in it.
//!
//! This crate knows no device and no memory. Shapes are written fastest
//! dimension first throughout.
//!
//! ```
//! use tensoryard_graph::{DType, GraphBuilder};
//!
//! let g = GraphBuilder::new("linear");
//! let x = g.input("x", DType::F32, [384, 10]);
//! let weight = g.weight("weight", DType::F16, [384, 1536]);
//! let bias = g.weight("bias", DType::F32, [1536]);
//! weight.mul_mat(x).add(bias).gelu_erf().output("y"); // [1536, 10]
//! let graph = g.finish()?;
//! assert_eq!(graph.layout(graph.output("y").unwrap()).shape().dims(), [1536, 10, 1, 1]);
//! # Ok::<(), tensoryard_graph::GraphError>(())
//! ```

mod builder;
mod dump;
mod error;
mod graph;
mod id;
mod index;
pub mod ops;
mod tensor;

pub use builder::{GraphBuilder, IntoDims};
pub use error::{GraphError, OpError};
pub use graph::{Graph, Origin, TensorDesc, ViewOf};
pub use id::{TensorId, TensorMap};
pub use index::{Node, Source};
pub use ops::{Cost, Op, OpKind, OperandSpec};
pub use tensor::Tensor;
pub use tensoryard_tensor::{DType, Layout, Shape, TensorError};
