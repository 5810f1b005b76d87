//! The cases, one file an op. Names are stable: `op/what key=value …`.

mod attention;
mod binary;
mod conv_1d;
mod copy;
mod fused;
mod get_rows;
mod mul_mat;
mod norm;
mod scale;
mod set_rows;
mod soft_max;
mod unary;
mod views;

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Tensor};

use crate::case::{CaseList, CaseSpec};

/// Row lengths around the widths of vectors and tiles, and that of a small model.
pub(crate) const LENGTHS: &[usize] = &[1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 384];

/// The types that weights are stored in.
pub(crate) const STORED: &[DType] = &[DType::F32, DType::F16];

/// Every case, in a fixed order.
pub fn all() -> Vec<CaseSpec> {
    let mut list = CaseList::default();
    attention::add(&mut list);
    binary::add(&mut list);
    conv_1d::add(&mut list);
    copy::add(&mut list);
    fused::add(&mut list);
    get_rows::add(&mut list);
    mul_mat::add(&mut list);
    norm::add(&mut list);
    scale::add(&mut list);
    set_rows::add(&mut list);
    soft_max::add(&mut list);
    unary::add(&mut list);
    views::add(&mut list);
    list.into_cases()
}

/// The negated values as the result of an op, whose memory may be taken over.
#[track_caller]
pub(crate) fn computed(x: Tensor<'_>) -> Tensor<'_> {
    x.unary(UnaryKind::Neg)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tensoryard_graph::OpKind;

    #[test]
    fn names_are_unique_and_every_op_has_cases() {
        let cases = super::all();
        let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for op in OpKind::ALL {
            let prefix = format!("{}/", op.name());
            let count = names.iter().filter(|name| name.starts_with(&prefix)).count();
            assert!(count > 0, "{op:?} has no cases");
        }
    }
}
