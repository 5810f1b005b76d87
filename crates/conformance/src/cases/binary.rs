//! Cases of element-wise arithmetic.

use tensoryard_graph::DType;
use tensoryard_graph::ops::BinaryKind;

use super::{LENGTHS, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

/// Shapes of b that repeat into `[n, 6, 4, 2]`.
fn repeats(n: usize) -> [(&'static str, [usize; 4]); 7] {
    [
        ("same", [n, 6, 4, 2]),
        ("row", [n, 1, 1, 1]),
        ("column", [1, 6, 1, 1]),
        ("single", [1, 1, 1, 1]),
        ("rows", [n, 3, 1, 2]),
        ("matrix", [n, 6, 1, 1]),
        ("outer", [1, 1, 4, 2]),
    ]
}

pub(super) fn add(list: &mut CaseList) {
    let divisor = Fill::Range(0.5, 2.0);
    for &kind in BinaryKind::ALL {
        let name = kind.name();
        for &n in LENGTHS {
            for b_dims in [[n, 3], [n, 1]] {
                let divisor = divisor.clone();
                let b_rows = b_dims[1];
                list.add(format!("binary/{name} n={n} b_rows={b_rows}"), move |m| {
                    let b = m.input("b", &b_dims, &divisor);
                    m.input("a", &[n, 3], &Fill::Unit).binary(kind, b).output("y");
                });
            }
        }
        for (repeat, b_dims) in repeats(17) {
            let divisor = divisor.clone();
            list.add(format!("binary/{name} n=17 b={repeat}"), move |m| {
                let b = m.input("b", &b_dims, &divisor);
                m.input("a", &[17, 6, 4, 2], &Fill::Unit).binary(kind, b).output("y");
            });
        }
        for n in [12, 64] {
            let divisor = divisor.clone();
            list.add(format!("binary/{name} n={n} b=part_of_row"), move |m| {
                let b = m.input("b", &[n / 4, 1], &divisor);
                m.input("a", &[n, 3], &Fill::Unit).binary(kind, b).output("y");
            });
        }
        for &form in Form::ALL {
            for side in ["a", "b"] {
                let divisor = divisor.clone();
                list.add(format!("binary/{name} n=17 form_{side}={}", form.name()), move |m| {
                    let dims = [17, 4, 3, 2];
                    let plain = Form::Plain;
                    let (fa, fb) = if side == "a" { (form, plain) } else { (plain, form) };
                    let b = m.shaped(Leaf::Input, "b", DType::F32, dims, fb, &divisor);
                    m.shaped(Leaf::Input, "a", DType::F32, dims, fa, &Fill::Unit)
                        .binary(kind, b)
                        .output("y");
                });
            }
        }
        add_places(list, kind);
        for (n, rows) in [(0, 3), (3, 0)] {
            list.add(format!("binary/{name} n={n} rows={rows}"), move |m| {
                let b = m.input("b", &[n, 1], &Fill::Unit);
                m.input("a", &[n, rows], &Fill::Unit).binary(kind, b).output("y");
            });
        }
        list.add(format!("binary/{name} n=100 values=special"), move |m| {
            let b = m.input("b", &[100, 2], &Fill::Special);
            m.input("a", &[100, 2], &Fill::Special).binary(kind, b).output("y");
        });
        list.add(format!("binary/{name} n=33 b=weight"), move |m| {
            let b = m.leaf(Leaf::Weight, "b", DType::F32, &[33], &Fill::Range(0.5, 2.0));
            m.input("a", &[33, 5], &Fill::Unit).binary(kind, b).output("y");
        });
    }
}

fn add_places(list: &mut CaseList, kind: BinaryKind) {
    let name = kind.name();
    let away_from_zero = Fill::Range(0.5, 2.0);
    for n in [1, 17, 384] {
        let fill = away_from_zero.clone();
        list.add(format!("binary/{name} n={n} place=dst_is_a"), move |m| {
            let b = m.input("b", &[n, 3], &fill);
            computed(m.input("a", &[n, 3], &Fill::Unit)).binary(kind, b).output("y");
        })
        .in_place();
        let fill = away_from_zero.clone();
        list.add(format!("binary/{name} n={n} place=dst_is_a b=row"), move |m| {
            let b = m.input("b", &[n], &fill);
            computed(m.input("a", &[n, 3], &Fill::Unit)).binary(kind, b).output("y");
        })
        .in_place();
        let fill = away_from_zero.clone();
        list.add(format!("binary/{name} n={n} place=dst_is_b"), move |m| {
            let b = computed(m.input("b", &[n, 3], &fill));
            m.input("a", &[n, 3], &Fill::Unit).binary(kind, b).output("y");
        })
        .in_place();
        let fill = away_from_zero.clone();
        list.add(format!("binary/{name} n={n} place=a_is_b"), move |m| {
            let x = m.input("x", &[n, 3], &fill);
            x.binary(kind, x).output("y");
        });
        let fill = away_from_zero.clone();
        list.add(format!("binary/{name} n={n} place=all_one"), move |m| {
            let x = computed(m.input("x", &[n, 3], &fill));
            x.binary(kind, x).output("y");
        })
        .in_place();
    }
}
