//! Shape rules: what each op accepts, what comes out, and what it refuses.

use tensoryard_graph::ops::{BinaryKind, UnaryKind};
use tensoryard_graph::{DType, GraphBuilder, Tensor};

use DType::{F16, F32, I32};

/// What an op makes of leaves of these types and dimensions: the layout as text, or the error.
fn result(
    leaves: &[(DType, &[usize])],
    op: impl for<'g> FnOnce(&[Tensor<'g>]) -> Tensor<'g>,
) -> String {
    let g = GraphBuilder::new("rule");
    let leaves: Vec<_> = leaves
        .iter()
        .enumerate()
        .map(|(n, (dtype, dims))| g.state(format!("s{n}"), *dtype, *dims))
        .collect();
    let layout = op(&leaves).layout();
    drop(leaves);
    match g.finish() {
        Ok(_) => layout.to_string(),
        Err(error) => error.error.to_string(),
    }
}

#[track_caller]
fn check(
    leaves: &[(DType, &[usize])],
    op: impl for<'g> FnOnce(&[Tensor<'g>]) -> Tensor<'g>,
    expected: &str,
) {
    assert_eq!(result(leaves, op), expected);
}

#[test]
fn element_wise() {
    check(&[(F32, &[4, 3])], |t| t[0].unary(UnaryKind::Exp), "f32 [4, 3]");
    check(&[(F32, &[4, 3])], |t| t[0].transpose().unary(UnaryKind::Exp), "f32 [3, 4]");
    check(&[(F16, &[4])], |t| t[0].unary(UnaryKind::Exp), "x is f16, wanted f32");
    check(&[(F32, &[0, 3])], |t| t[0].scale(1.0, 0.0), "f32 [0, 3]");
    check(&[(F16, &[4])], |t| t[0].scale(1.0, 0.0), "x is f16, wanted f32");
}

#[test]
fn arithmetic() {
    fn op<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].binary(BinaryKind::Sub, t[1])
    }
    check(&[(F32, &[4, 6]), (F32, &[4])], op, "f32 [4, 6]");
    check(&[(F32, &[4, 6]), (F32, &[2, 3])], op, "f32 [4, 6]");
    check(&[(F32, &[4]), (F32, &[4, 6])], op, "b [4, 6] does not repeat into [4]");
    check(&[(F32, &[4, 6]), (F32, &[3])], op, "b [3] does not repeat into [4, 6]");
    check(&[(F32, &[4, 6]), (F16, &[4])], op, "b is f16, wanted f32");
    check(&[(I32, &[4]), (F32, &[4])], op, "a is i32, wanted f32");
}

#[test]
fn products() {
    fn op<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].mul_mat(t[1])
    }
    check(&[(F16, &[4, 7]), (F32, &[4, 3])], op, "f32 [7, 3]");
    check(&[(F32, &[4, 7, 2]), (F32, &[4, 3, 6, 5])], op, "f32 [7, 3, 6, 5]");
    check(&[(F32, &[0, 7]), (F32, &[0, 3])], op, "f32 [7, 3]");
    check(&[(F32, &[4, 7]), (F32, &[5, 3])], op, "inner sizes differ, weight 4, x 5");
    check(
        &[(F32, &[4, 7, 4]), (F32, &[4, 3, 6])],
        op,
        "weight [4, 7, 4] does not repeat into [4, 3, 6]",
    );
    check(&[(I32, &[4, 7]), (F32, &[4])], op, "weight is i32, wanted f32 or f16");
    check(&[(F32, &[4, 7]), (F16, &[4])], op, "x is f16, wanted f32");
    check(
        &[(F32, &[7, 4]), (F32, &[4, 3])],
        |t| t[0].transpose().mul_mat(t[1]),
        "weight is f32 [4, 7] strides [28, 4], wanted rows without gaps",
    );
    check(
        &[(F32, &[4, 7]), (F32, &[3, 4])],
        |t| t[0].mul_mat(t[1].transpose()).reshape([1]),
        "x is f32 [4, 3] strides [12, 4], wanted rows without gaps",
    );
}

#[test]
fn convolutions() {
    fn op<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].conv_1d(t[1], 2, 1)
    }
    check(&[(F16, &[80, 3, 384]), (F32, &[80, 3000])], op, "f32 [384, 1500]");
    check(&[(F32, &[8, 3, 5]), (F32, &[8, 7, 2])], op, "f32 [5, 4, 2]");
    check(&[(F32, &[8, 3, 5]), (F32, &[9, 7])], op, "channels differ, weight 8, x 9");
    check(
        &[(F32, &[8, 5, 5]), (F32, &[8, 2])],
        op,
        "kernel and padded frames differ, weight 5, x 4",
    );
    check(
        &[(F32, &[8, 3, 5]), (F32, &[8, 7])],
        |t| t[0].conv_1d(t[1], 0, 1),
        "stride is 0, wanted at least 1",
    );
    check(
        &[(F32, &[8, 3, 5]), (F32, &[7, 8])],
        |t| t[0].conv_1d(t[1].transpose(), 1, 1),
        "x is f32 [8, 7] strides [28, 4], wanted three dimensions without gaps",
    );
    check(
        &[(F32, &[8, 3, 5]), (F32, &[8, 7])],
        |t| t[0].conv_1d(t[1], 1, u32::MAX).slice(1, 0, 2),
        "f32 [5, 2]",
    );
}

#[test]
fn rows_and_tables() {
    fn get<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].get_rows(t[1])
    }
    check(&[(F16, &[8, 100]), (I32, &[5])], get, "f32 [8, 5]");
    check(&[(F32, &[8, 100, 3]), (I32, &[5, 3])], get, "f32 [8, 5, 3]");
    check(&[(F32, &[8, 100]), (F32, &[5])], get, "ids is f32, wanted i32");
    check(&[(F32, &[8, 100, 3]), (I32, &[5])], get, "batches differ, table 3, ids 1");
    fn set<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].set_rows(t[1], t[2])
    }
    check(&[(F16, &[8, 100]), (F32, &[8, 5]), (I32, &[5])], set, "f16 [8, 100]");
    check(&[(F16, &[8, 9, 4]), (F32, &[8, 5, 4]), (I32, &[5, 2])], set, "f16 [8, 9, 4]");
    check(&[(F32, &[8, 9]), (F16, &[8, 5]), (I32, &[5])], set, "x is f16, wanted f32");
    check(&[(F32, &[8, 9]), (F32, &[7, 5]), (I32, &[5])], set, "row lengths differ, base 8, x 7");
    check(&[(F32, &[8, 9]), (F32, &[8, 5]), (I32, &[4])], set, "counts of rows differ, x 5, ids 4");
    check(
        &[(F32, &[8, 9, 4]), (F32, &[8, 5, 4]), (I32, &[5, 3])],
        set,
        "ids [5, 3] does not repeat into [8, 5, 4]",
    );
}

#[test]
fn copies() {
    check(&[(F32, &[4, 3])], |t| t[0].transpose().cont(), "f32 [3, 4]");
    check(&[(F32, &[4, 3])], |t| t[0].cast(F16), "f16 [4, 3]");
    check(&[(I32, &[4])], |t| t[0].cont(), "i32 [4]");
    check(&[(I32, &[4])], |t| t[0].cast(F32), "result is f32, wanted f32 or f16, or i32 for i32");
    check(
        &[(F32, &[32])],
        |t| t[0].cast(DType::Q8_0),
        "result is q8_0, wanted f32 or f16, or i32 for i32",
    );
    check(&[(F32, &[4, 3]), (F16, &[4, 3])], |t| t[0].copy_into(t[1]), "f16 [4, 3]");
    check(
        &[(F32, &[4, 3]), (F16, &[4, 2])],
        |t| t[0].copy_into(t[1]),
        "second differ, x 3, base 2",
    );
    check(&[(I32, &[4]), (F32, &[4])], |t| t[0].copy_into(t[1]), "x is i32, wanted f32 or f16");
}

#[test]
fn norms_and_softmax() {
    check(&[(F32, &[4, 3])], |t| t[0].norm(0.0), "f32 [4, 3]");
    check(&[(F32, &[4])], |t| t[0].norm(-1.0), "epsilon is -1, wanted a finite number, 0 or more");
    check(
        &[(F32, &[4])],
        |t| t[0].rms_norm(f32::NAN),
        "epsilon is NaN, wanted a finite number, 0 or more",
    );
    check(&[(F16, &[4])], |t| t[0].norm(0.0), "x is f16, wanted f32");
    check(
        &[(F32, &[4, 3])],
        |t| t[0].transpose().rms_norm(0.0),
        "x is f32 [3, 4] strides [16, 4], wanted rows without gaps",
    );
    fn op<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].soft_max(1.0, t.get(1).copied())
    }
    check(&[(F32, &[4, 3])], op, "f32 [4, 3]");
    check(&[(F32, &[4, 3, 2]), (F16, &[4, 3])], op, "f32 [4, 3, 2]");
    check(&[(F32, &[4, 3]), (F16, &[2, 3])], op, "row lengths differ, x 4, mask 2");
    check(&[(F32, &[4, 3]), (F16, &[4, 2])], op, "mask [4, 2] does not repeat into [4, 3]");
    check(&[(F32, &[4, 3]), (I32, &[4, 3])], op, "mask is i32, wanted f32 or f16");
}

#[test]
fn attention() {
    fn op<'g>(t: &[Tensor<'g>]) -> Tensor<'g> {
        t[0].attention(t[1], t[2], t.get(3).copied(), 0.125)
    }
    let q: (DType, &[usize]) = (F32, &[64, 5, 6]);
    check(&[q, (F16, &[64, 9, 6]), (F16, &[32, 9, 6])], op, "f32 [32, 6, 5]");
    check(&[q, (F16, &[64, 9, 2]), (F32, &[64, 9, 2]), (F16, &[9, 5])], op, "f32 [64, 6, 5]");
    check(&[q, (F16, &[32, 9, 6]), (F16, &[64, 9, 6])], op, "head sizes differ, q 64, k 32");
    check(&[q, (F16, &[64, 9, 6]), (F16, &[64, 8, 6])], op, "numbers of slots differ, k 9, v 8");
    check(&[q, (F16, &[64, 9, 6]), (F16, &[64, 9, 3])], op, "numbers of heads differ, k 6, v 3");
    check(&[q, (F16, &[64, 9, 4]), (F16, &[64, 9, 4])], op, "numbers of heads differ, q 6, k 4");
    check(&[q, (F16, &[64, 9, 0]), (F16, &[64, 9, 0])], op, "numbers of heads differ, q 6, k 0");
    check(&[q, (F16, &[64, 9, 6, 2]), (F16, &[64, 9, 6, 2])], op, "batches differ, q 1, k 2");
    check(&[q, (I32, &[64, 9, 6]), (F16, &[64, 9, 6])], op, "k is i32, wanted f32 or f16");
    let kv: (DType, &[usize]) = (F32, &[64, 9, 6]);
    check(&[q, kv, kv, (F32, &[8, 5])], op, "numbers of slots differ, k 9, mask 8");
    check(&[q, kv, kv, (F32, &[9, 4])], op, "numbers of queries differ, q 5, mask 4");
    check(&[q, kv, kv, (F32, &[9, 5, 6])], op, "outer dimensions differ, q 1, mask 6");
}

#[test]
fn cost_counts_multiplications_and_bytes() {
    use tensoryard_graph::Op;
    use tensoryard_graph::ops::MulMat;
    let g = GraphBuilder::new("cost");
    let w = g.weight("w", F16, [4, 7]).layout();
    let x = g.input("x", F32, [4, 3]).layout();
    let op = Op::from(MulMat);
    let dst = op.infer(&[Some(w), Some(x)]).unwrap();
    let cost = op.cost(&[Some(w), Some(x)], &dst);
    assert_eq!(cost.flops, 2.0 * 4.0 * 7.0 * 3.0);
    assert_eq!(cost.bytes, (4 * 7 * 2 + 4 * 3 * 4 + 7 * 3 * 4) as f64);
}
