//! Steps that no planner makes are refused, each for its own reason.

use std::sync::Arc;

use tensoryard_graph::ops::{Binary, BinaryKind, MulMat, Scale, UnaryKind};
use tensoryard_graph::{DType, Shape};
use tensoryard_runtime::{Aliasing, Region, host_buffer_type};

use super::*;
use crate::packed::packed_buffer_type;

fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
}

fn operand(region: Region, offset_bytes: usize, layout: Layout) -> Operand {
    let buffer_type = Arc::clone(host_buffer_type());
    Operand { region, offset_bytes, layout, buffer_type, aliasing: Aliasing::Disjoint }
}

fn packed(region: Region, layout: Layout) -> Operand {
    let buffer_type = Arc::clone(packed_buffer_type());
    Operand { buffer_type, ..operand(region, 0, layout) }
}

fn step(op: StepOp, sources: Vec<Operand>, dst: Operand) -> Step {
    let sources = sources.into_iter().map(Some).collect();
    Step { name: "step".to_owned(), op, dst, sources }
}

fn scale(source: Operand, dst: Operand) -> Step {
    step(StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 })), vec![source], dst)
}

const CHUNK: Region = Region::Chunk(0);

fn refusal(step: &Step) -> String {
    check_step(step).unwrap_err()
}

#[test]
fn steps_that_no_device_takes_are_refused() {
    let row = layout(&[8]);
    assert_eq!(check_step(&scale(operand(CHUNK, 0, row), operand(CHUNK, 64, row))), Ok(()));
    assert!(refusal(&scale(operand(CHUNK, 0, row), operand(CHUNK, 0, row))).contains("overlaps"));
    assert!(refusal(&scale(operand(CHUNK, 2, row), operand(CHUNK, 64, row))).contains("byte 2"));
    let into_weight = scale(operand(CHUNK, 0, row), operand(Region::Weight(0), 0, row));
    assert_eq!(refusal(&into_weight), "the destination is a weight");
}

#[test]
fn panels_in_the_wrong_place_are_refused() {
    let square = layout(&[4, 4]);
    let sum = StepOp::Op(Op::from(Binary { kind: BinaryKind::Add }));
    let sources = vec![operand(CHUNK, 128, square), packed(Region::Weight(0), square)];
    assert_eq!(refusal(&step(sum, sources, operand(CHUNK, 0, square))), "operand 1 is packed");
    let row = layout(&[8]);
    let dst = packed(Region::Chunk(1), row);
    assert!(check_step(&scale(operand(CHUNK, 0, row), dst)).is_err());
    let product = |region| {
        let sources = vec![packed(region, square), operand(Region::Chunk(1), 0, square)];
        step(StepOp::Op(Op::from(MulMat)), sources, operand(CHUNK, 4096, square))
    };
    assert_eq!(check_step(&product(Region::Weight(0))), Ok(()));
    assert_eq!(refusal(&product(CHUNK)), "operand 0 is packed where the destination lies");
}

#[test]
fn functions_without_kernels_are_refused() {
    let square = layout(&[4, 4]);
    for &kind in UnaryKind::ALL {
        let op = StepOp::Matrix { base: MatrixOp::MulMat(MulMat), activation: Some(kind) };
        let sources = vec![operand(Region::Weight(0), 0, square), operand(CHUNK, 0, square)];
        let product = step(op, sources, operand(CHUNK, 64, square));
        let has_kernel = activation_of(kind).is_some();
        assert_eq!(check_step(&product).is_ok(), has_kernel, "{}", kind.name());
    }
}
