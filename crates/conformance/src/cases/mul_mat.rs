//! Cases of the matrix product.

use tensoryard_graph::DType;

use super::{LENGTHS, STORED, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for &dtype in STORED {
        for leaf in [Leaf::Weight, Leaf::Input] {
            let w = leaf.name();
            for &k in [0].iter().chain(LENGTHS) {
                let shapes =
                    [(1, 1), (5, 1), (33, 7), (65, 12), (64, 13), (100, 2), (17, 33), (384, 1)];
                for (m, n) in shapes {
                    let name = format!("mul_mat/{dtype} k={k} m={m} n={n} w={w}");
                    list.add(name, move |maker| {
                        let x = maker.input("x", &[k, n], &Fill::Unit);
                        let weight = maker.leaf(leaf, "w", dtype, &[k, m], &Fill::Unit);
                        weight.mul_mat(x).output("y");
                    });
                }
            }
            for (m, n) in [(0, 3), (3, 0), (0, 0)] {
                let name = format!("mul_mat/{dtype} k=16 m={m} n={n} w={w}");
                list.add(name, move |maker| {
                    let x = maker.input("x", &[16, n], &Fill::Unit);
                    maker.leaf(leaf, "w", dtype, &[16, m], &Fill::Unit).mul_mat(x).output("y");
                });
            }
            for (k, m, n) in [(384, 384, 65), (1536, 100, 3), (384, 1536, 1), (4096, 33, 13)] {
                let name = format!("mul_mat/{dtype} k={k} m={m} n={n} w={w}");
                list.add(name, move |maker| {
                    let x = maker.input("x", &[k, n], &Fill::Unit);
                    maker.leaf(leaf, "w", dtype, &[k, m], &Fill::Unit).mul_mat(x).output("y");
                });
            }
            for (values, fill) in [("subnormal", Fill::Subnormal), ("awkward", Fill::Awkward)] {
                let name = format!("mul_mat/{dtype} k=33 m=17 n=5 w={w} values={values}");
                list.add(name, move |maker| {
                    let fill = fill.clone();
                    let x = maker.input("x", &[33, 5], &Fill::Unit);
                    // 1e18 is infinite in f16; the awkward values of f32 stay in x.
                    if matches!(fill, Fill::Awkward) {
                        let weight = maker.leaf(leaf, "w", dtype, &[5, 17], &Fill::Unit);
                        let x = maker.input("a", &[5, 9], &fill);
                        weight.mul_mat(x).output("y");
                    } else {
                        maker.leaf(leaf, "w", dtype, &[33, 17], &fill).mul_mat(x).output("y");
                    }
                });
            }
        }
        add_layouts(list, dtype);
        add_special(list, dtype);
    }
    list.add("mul_mat/f32 k=16 m=16 n=16 place=w_is_x".to_owned(), |m| {
        let x = computed(m.input("x", &[16, 16], &Fill::Unit));
        x.mul_mat(x).output("y");
    });
}

fn add_layouts(list: &mut CaseList, dtype: DType) {
    let outer =
        [([1, 1], [3, 2]), ([2, 1], [4, 1]), ([2, 3], [2, 3]), ([1, 2], [3, 4]), ([3, 1], [6, 5])];
    for (b, c) in outer {
        for (k, m, n) in [(33, 17, 5), (64, 40, 1)] {
            let name = format!("mul_mat/{dtype} k={k} m={m} n={n} w_outer={b:?} x_outer={c:?}");
            list.add(name, move |maker| {
                let x = maker.input("x", &[k, n, c[0], c[1]], &Fill::Unit);
                maker
                    .leaf(Leaf::Input, "w", dtype, &[k, m, b[0], b[1]], &Fill::Unit)
                    .mul_mat(x)
                    .output("y");
            });
        }
    }
    for &form in Form::ROWS {
        for (k, m, n) in [(33, 18, 4), (64, 32, 12)] {
            for leaf in [Leaf::Input, Leaf::Weight] {
                let w = leaf.name();
                let name =
                    format!("mul_mat/{dtype} k={k} m={m} n={n} w={w} form_w={}", form.name());
                list.add(name, move |maker| {
                    let x = maker.input("x", &[k, n, 6], &Fill::Unit);
                    maker
                        .shaped(leaf, "w", dtype, [k, m, 3, 1], form, &Fill::Unit)
                        .mul_mat(x)
                        .output("y");
                });
            }
            let name = format!("mul_mat/{dtype} k={k} m={m} n={n} form_x={}", form.name());
            list.add(name, move |maker| {
                let dims = [k, n, 6, 2];
                let x = maker.shaped(Leaf::Input, "x", DType::F32, dims, form, &Fill::Unit);
                maker.leaf(Leaf::Weight, "w", dtype, &[k, m], &Fill::Unit).mul_mat(x).output("y");
            });
        }
    }
}

fn add_special(list: &mut CaseList, dtype: DType) {
    for (k, m, n) in [(7, 5, 3), (65, 33, 13)] {
        for value in [f32::NAN, f32::INFINITY] {
            for leaf in [Leaf::Weight, Leaf::Input] {
                let w = leaf.name();
                let name = format!("mul_mat/{dtype} k={k} m={m} n={n} w={w} w_holds={value}");
                list.add(name, move |maker| {
                    let mut values: Vec<f32> = (0..k * m).map(|i| (i % 7) as f32 - 2.5).collect();
                    values[(m / 2) * k + k / 2] = value;
                    let x = maker.input("x", &[k, n], &Fill::Range(0.5, 1.0));
                    maker
                        .leaf(leaf, "w", dtype, &[k, m], &Fill::Cycle(values))
                        .mul_mat(x)
                        .output("y");
                });
            }
            let name = format!("mul_mat/{dtype} k={k} m={m} n={n} x_holds={value}");
            list.add(name, move |maker| {
                let mut values: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32 - 1.5).collect();
                values[(n / 2) * k + k / 2] = value;
                let x = maker.input("x", &[k, n], &Fill::Cycle(values));
                maker
                    .leaf(Leaf::Weight, "w", dtype, &[k, m], &Fill::Range(0.5, 1.0))
                    .mul_mat(x)
                    .output("y");
            });
        }
    }
}
