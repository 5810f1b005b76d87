//! Cases of the element-wise functions.

use tensoryard_graph::DType;
use tensoryard_graph::ops::UnaryKind;

use super::{LENGTHS, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::compare::Accuracy;
use crate::data::Fill;

/// NaN, infinities, zeros, subnormals, and where the functions saturate.
fn special() -> Fill {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let mut values = vec![nan, inf, -inf, -0.0, 0.0, 1e-40, -1e-40, 1e-7, -1e-7, 0.5, -0.5];
    values.extend([5.5, -5.5, 9.25, -9.25, 20.0, -20.0, 80.0, -80.0, 87.0, -87.0]);
    values.extend([3e4, -3e4, 1e19, -1e19]);
    Fill::Cycle(values)
}

fn accuracy(kind: UnaryKind) -> Accuracy {
    match kind {
        UnaryKind::Abs | UnaryKind::Neg => Accuracy::Exact,
        UnaryKind::Exp
        | UnaryKind::Gelu
        | UnaryKind::GeluErf
        | UnaryKind::Relu
        | UnaryKind::Sigmoid
        | UnaryKind::Silu
        | UnaryKind::Sqr
        | UnaryKind::Sqrt
        | UnaryKind::Tanh => Accuracy::Rounded,
    }
}

pub(super) fn add(list: &mut CaseList) {
    for &kind in UnaryKind::ALL {
        let name = kind.name();
        let range = match kind {
            UnaryKind::Sqrt => Fill::Range(0.0, 9.0),
            _ => Fill::Range(-6.0, 6.0),
        };
        for &n in LENGTHS {
            let fill = range.clone();
            list.add(format!("unary/{name} n={n}"), move |m| {
                m.input("x", &[n, 3], &fill).unary(kind).output("y");
            })
            .accuracy = accuracy(kind);
        }
        for &form in Form::ALL {
            let fill = range.clone();
            list.add(format!("unary/{name} n=17 form={}", form.name()), move |m| {
                m.shaped(Leaf::Input, "x", DType::F32, [17, 5, 2, 3], form, &fill)
                    .unary(kind)
                    .output("y");
            })
            .accuracy = accuracy(kind);
        }
        for (n, rows) in [(0, 3), (3, 0)] {
            let fill = range.clone();
            list.add(format!("unary/{name} n={n} rows={rows}"), move |m| {
                m.input("x", &[n, rows], &fill).unary(kind).output("y");
            });
        }
        let fill = range.clone();
        list.add(format!("unary/{name} n=33 place=dst_is_x"), move |m| {
            // √ of a negated value would be NaN throughout.
            computed(computed(m.input("x", &[33, 4], &fill))).unary(kind).output("y");
        })
        .in_place()
        .accuracy = accuracy(kind);
        for n in [19, 100] {
            list.add(format!("unary/{name} n={n} values=special"), move |m| {
                m.input("x", &[n, 2], &special()).unary(kind).output("y");
            })
            .accuracy = accuracy(kind);
        }
    }
}
