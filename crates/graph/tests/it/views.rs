//! Views: strides, offsets, and what lies outside.

use tensoryard_graph::{DType, GraphBuilder, OpError};

#[test]
fn views_name_their_root_and_add_up_their_offsets() {
    let g = GraphBuilder::new("views");
    let x = g.input("x", DType::F32, [6, 4, 2]);
    let rows = x.slice(1, 1, 2);
    let columns = rows.slice(0, 2, 3);
    let turned = columns.permute([1, 0, 2, 3]);
    turned.output("turned");
    let ids = (x.id(), turned.id());
    let graph = g.finish().unwrap();
    assert_eq!(graph.root(ids.1), ids.0);
    assert_eq!(graph.root_offset(ids.1), 24 + 8);
    assert_eq!(graph.layout(ids.1).shape().dims(), [2, 3, 2, 1]);
    assert_eq!(graph.layout(ids.1).strides(), [24, 4, 96, 192]);
}

#[test]
fn views_stay_inside_their_root() {
    let outside = |make: fn(tensoryard_graph::Tensor<'_>)| {
        let g = GraphBuilder::new("outside");
        make(g.input("x", DType::F32, [4, 3]));
        *g.finish().unwrap_err().error
    };
    let error = outside(|x| _ = x.view([4, 3], [4, 16, 48, 48], 4));
    assert_eq!(error, OpError::OutsideBase { start: 4, end: 52, base_bytes: 48 });
    let error = outside(|x| _ = x.view([1], [4, 4, 4, 4], usize::MAX));
    assert!(matches!(error, OpError::OutsideBase { .. }));
    let error = outside(|x| _ = x.view([2, 2], [4, usize::MAX / 2, 0, 0], 0));
    assert!(matches!(error, OpError::Tensor(_) | OpError::OutsideBase { .. }));
    // A view of a view may leave the view, not the root.
    let g = GraphBuilder::new("inside");
    let x = g.input("x", DType::F32, [4, 3]);
    x.slice(1, 0, 1).view([4, 3], [4, 16, 48, 48], 0).output("all");
    assert!(g.finish().is_ok());
    let error = outside(|x| _ = x.slice(1, 2, 1).view([4, 2], [4, 16, 32, 32], 0));
    assert_eq!(error, OpError::OutsideBase { start: 32, end: 64, base_bytes: 48 });
}

#[test]
fn slices_are_inside_the_dimension_and_between_blocks() {
    let error = |dtype, dims: [usize; 2], dim, start, len| {
        let g = GraphBuilder::new("slice");
        _ = g.input("x", dtype, dims).slice(dim, start, len);
        g.finish().map(|_| ()).map_err(|error| error.error.to_string())
    };
    assert_eq!(error(DType::F32, [4, 3], 1, 3, 0), Ok(()));
    let text = error(DType::F32, [4, 3], 1, 2, 2).unwrap_err();
    assert_eq!(text, "end of slice is 4, wanted inside the dimension");
    assert!(error(DType::F32, [4, 3], 1, usize::MAX, 2).is_err());
    let text = error(DType::F32, [4, 3], 4, 0, 1).unwrap_err();
    assert_eq!(text, "dim is 4, wanted a dimension from 0 to 3");
    assert_eq!(error(DType::Q8_0, [64, 3], 0, 32, 32), Ok(()));
    let text = error(DType::Q8_0, [64, 3], 0, 16, 32).unwrap_err();
    assert_eq!(text, "start of slice is 16, wanted a whole number of blocks");
    assert!(error(DType::Q8_0, [64, 3], 0, 32, 16).is_err());
}

#[test]
fn empty_tensors_can_be_viewed() {
    let g = GraphBuilder::new("empty");
    let x = g.input("x", DType::F32, [0, 3]);
    let y = x.transpose().reshape([3, 0, 5]).slice(0, 1, 2).scale(1.0, 0.0).output("y");
    assert_eq!(y.shape().dims(), [2, 0, 5, 1]);
    assert!(g.finish().is_ok());
}
