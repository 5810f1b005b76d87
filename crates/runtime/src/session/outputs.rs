//! The outputs of a session's runs.

use std::sync::Arc;

use tensoryard_graph::DType;

use super::Session;
use crate::exec::{self, RunMark};
use crate::{Plan, RunError};

/// The outputs of a run of a session.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub(super) plan: Arc<Plan>,
    /// The run; the last one when it is not named.
    pub(super) mark: Option<RunMark>,
    pub(super) session: &'a Session,
}

impl Outputs<'_> {
    /// Values of an f32 output, elements in order, fastest dimension first.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, RunError> {
        let mut values = Vec::new();
        self.read_f32(name, &mut values)?;
        Ok(values)
    }

    /// As [`Outputs::f32`], into memory that the caller keeps.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn read_f32(&self, name: &str, dst: &mut Vec<f32>) -> Result<(), RunError> {
        self.read(name, DType::F32, dst)
    }

    /// Values of an f16 output, elements in order, as bits.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn f16_bits(&self, name: &str) -> Result<Vec<u16>, RunError> {
        let mut values = Vec::new();
        self.read(name, DType::F16, &mut values)?;
        Ok(values)
    }

    /// Values of an i32 output, elements in order.
    ///
    /// # Errors
    /// A name that is no output of the graph; another type.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>, RunError> {
        let mut values = Vec::new();
        self.read(name, DType::I32, &mut values)?;
        Ok(values)
    }

    fn read<T: bytemuck::Pod>(
        &self,
        name: &str,
        wanted: DType,
        dst: &mut Vec<T>,
    ) -> Result<(), RunError> {
        let Session { weights, state, workspace, .. } = self.session;
        exec::read_output_of(&self.plan, self.mark, name, wanted, (weights, state, workspace), dst)
    }
}
