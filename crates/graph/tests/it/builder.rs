//! Errors are located at the caller, deferred to the end, and the first one counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use tensoryard_graph::{DType, GraphBuilder, GraphError, OpError};

/// The error of a builder.
fn error_of(g: GraphBuilder) -> GraphError {
    g.finish().unwrap_err()
}

#[test]
fn an_error_tells_graph_file_line_op_tensor_and_numbers() {
    let g = GraphBuilder::new("decoder");
    let x = g.input("x", DType::F32, [384, 2]);
    let w = g.weight("blk.3.attn_q", DType::F16, [512, 64]);
    let line = line!() + 1;
    _ = w.mul_mat(x);
    let error = error_of(g);
    assert_eq!(error.location.file(), file!());
    assert_eq!(error.location.line(), line);
    let text = error.to_string();
    let expected = format!(
        r#"graph "decoder", {}: mul_mat "blk.3.attn_q": inner sizes differ, weight 512, x 384"#,
        error.location
    );
    assert_eq!(text, expected);
}

#[test]
fn every_method_names_the_line_of_its_caller() {
    macro_rules! located {
        ($($make:expr),* $(,)?) => {
            $({
                let g = GraphBuilder::new("located");
                let line = line!();
                let make = $make;
                make(&g);
                let error = error_of(g);
                assert_eq!(error.location.file(), file!(), "{error}");
                assert!(error.location.line() >= line, "{error}");
            })*
        };
    }
    static LEAVES: AtomicUsize = AtomicUsize::new(0);
    fn leaf(g: &GraphBuilder, dtype: DType, dims: [usize; 2]) -> tensoryard_graph::Tensor<'_> {
        let number = LEAVES.fetch_add(1, Ordering::Relaxed);
        g.state(format!("s{number}"), dtype, dims)
    }
    fn x(g: &GraphBuilder) -> tensoryard_graph::Tensor<'_> {
        leaf(g, DType::F32, [4, 3])
    }
    fn ids(g: &GraphBuilder) -> tensoryard_graph::Tensor<'_> {
        leaf(g, DType::I32, [3, 1])
    }
    located!(
        |g: &GraphBuilder| _ = g.input("a", DType::F32, [1, 1, 1, 1, 1]),
        |g: &GraphBuilder| _ = g.weight("a", DType::Q8_0, [33]),
        |g: &GraphBuilder| _ = g.state("a", DType::F32, [usize::MAX, 2]),
        |g: &GraphBuilder| _ = x(g).reshape([5]),
        |g: &GraphBuilder| _ = x(g).permute([0, 0, 1, 2]),
        |g: &GraphBuilder| _ = x(g).transpose().reshape([12]),
        |g: &GraphBuilder| _ = x(g).view([4, 4], [4, 16, 64, 64], 0),
        |g: &GraphBuilder| _ = x(g).slice(1, 2, 2),
        |g: &GraphBuilder| _ = ids(g).add(x(g)),
        |g: &GraphBuilder| _ = ids(g).mul(x(g)),
        |g: &GraphBuilder| _ = ids(g).gelu_erf(),
        |g: &GraphBuilder| _ = ids(g).scale(1.0, 0.0),
        |g: &GraphBuilder| _ = ids(g).norm(1e-5),
        |g: &GraphBuilder| _ = ids(g).rms_norm(1e-5),
        |g: &GraphBuilder| _ = ids(g).soft_max(1.0, None),
        |g: &GraphBuilder| _ = ids(g).mul_mat(x(g)),
        |g: &GraphBuilder| _ = ids(g).conv_1d(x(g), 1, 0),
        |g: &GraphBuilder| _ = ids(g).attention(x(g), x(g), None, 1.0),
        |g: &GraphBuilder| _ = ids(g).get_rows(x(g)),
        |g: &GraphBuilder| _ = ids(g).set_rows(x(g), x(g)),
        |g: &GraphBuilder| _ = ids(g).cast(DType::F32),
        |g: &GraphBuilder| _ = ids(g).copy_into(x(g)),
        |g: &GraphBuilder| _ = x(g).output("y").output("y"),
    );
}

#[test]
fn the_first_error_counts_and_building_goes_on() {
    let g = GraphBuilder::new("deferred");
    let x = g.input("x", DType::F32, [4]);
    let first = line!() + 1;
    let broken = x.reshape([5]);
    // The placeholder is used as if nothing had happened.
    let y = broken.gelu_erf().add(x).permute([9, 9, 9, 9]);
    _ = g.weight("w", DType::F32, [4, 4]).mul_mat(y).output("y");
    let error = error_of(g);
    assert_eq!(error.location.line(), first);
    assert_eq!(error.op, "view");
}

#[test]
fn names_of_leaves_and_outputs_are_unique() {
    let g = GraphBuilder::new("names");
    _ = g.input("x", DType::F32, [4]);
    _ = g.weight("x", DType::F32, [4]);
    let error = error_of(g);
    assert_eq!((error.op, *error.error), ("weight", OpError::NameTaken));
    let g = GraphBuilder::new("names");
    let x = g.input("x", DType::F32, [4]);
    x.scale(1.0, 0.0).output("y");
    x.scale(2.0, 0.0).output("y");
    let error = error_of(g);
    assert_eq!((error.op, error.tensor.as_str()), ("output", "y"));
    // A leaf may be an output under another name, and keeps its own.
    let g = GraphBuilder::new("names");
    let x = g.input("x", DType::F32, [4]);
    x.named("other").output("y");
    let graph = g.finish().unwrap();
    let id = graph.output("y").unwrap();
    assert_eq!(graph.tensor(id).name, "x");
    assert_eq!(graph.leaf("x"), Some(id));
}

#[test]
fn a_tensor_of_another_builder_is_refused() {
    let other = GraphBuilder::new("other");
    let foreign = other.input("x", DType::F32, [4]);
    let g = GraphBuilder::new("own");
    _ = g.input("x", DType::F32, [4]).add(foreign);
    let error = error_of(g);
    assert_eq!(*error.error, OpError::OtherGraph("b"));
    assert!(other.finish().is_ok());
    // The op belongs to the builder of the tensor that it is called on.
    let (a, b) = (GraphBuilder::new("a"), GraphBuilder::new("b"));
    _ = a.weight("w", DType::F32, [4, 4]).mul_mat(b.input("x", DType::F32, [4]));
    assert_eq!(*error_of(a).error, OpError::OtherGraph("x"));
}

#[test]
fn a_finished_graph_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let g = GraphBuilder::new("shared");
    _ = g.input("x", DType::F32, [4]).scale(1.0, 0.0).output("y");
    shared(&g.finish().unwrap());
}
