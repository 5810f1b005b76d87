//! Cases of copies into new tensors (`cont`) and into memory that exists (`cpy`).

use tensoryard_graph::DType;

use super::{LENGTHS, STORED, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

/// Values on and between the values of f16, beyond its range, and below it.
fn rounding() -> Fill {
    Fill::Cycle(vec![
        2049.0,
        2051.0,
        2050.0,
        -2049.0,
        65504.0,
        65519.0,
        65520.0,
        -65520.0,
        1e9,
        6e-8,
        2.9e-8,
        3.1e-8,
        -6e-8,
        8.9e-8,
        6.097e-5,
        1.0,
        0.333_333_34,
        -0.0,
        0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-40,
        f32::MIN_POSITIVE,
    ])
}

pub(super) fn add(list: &mut CaseList) {
    for &from in STORED {
        for &to in STORED {
            for &n in LENGTHS {
                list.add(format!("cont/{from} to={to} n={n}"), move |m| {
                    m.leaf(Leaf::Input, "x", from, &[n, 3], &rounding())
                        .cast(to)
                        .cast(DType::F32)
                        .output("y");
                })
                .exact();
            }
            for &form in Form::ALL {
                list.add(format!("cont/{from} to={to} form={}", form.name()), move |m| {
                    m.shaped(Leaf::Input, "x", from, [17, 5, 3, 2], form, &Fill::Unit)
                        .cast(to)
                        .cast(DType::F32)
                        .output("y");
                })
                .exact();
                list.add(format!("cpy/{from} to={to} form_x={}", form.name()), move |m| {
                    let x = m.shaped(Leaf::Input, "x", from, [17, 5, 3, 2], form, &rounding());
                    let base = m.leaf(Leaf::State, "s", to, &[17, 5, 3, 2], &Fill::Unit);
                    _ = x.copy_into(base);
                })
                .exact();
            }
            for (axis, start) in [(0, 4), (1, 1), (2, 2)] {
                list.add(format!("cpy/{from} to={to} into_slice_of_axis={axis}"), move |m| {
                    let mut dims = [9, 5, 4, 2];
                    let base = m.leaf(Leaf::State, "s", to, &dims, &Fill::Unit);
                    dims[axis] = 2;
                    let x = m.leaf(Leaf::Input, "x", from, &dims, &Fill::Unit);
                    _ = x.copy_into(base.slice(axis, start, 2));
                })
                .exact();
            }
            list.add(format!("cpy/{from} to={to} into_transposed"), move |m| {
                let base = m.leaf(Leaf::State, "s", to, &[6, 17], &Fill::Unit);
                let x = m.leaf(Leaf::Input, "x", from, &[17, 6], &Fill::Unit);
                _ = x.copy_into(base.transpose());
            })
            .exact();
        }
        for (n, rows) in [(0, 3), (3, 0)] {
            list.add(format!("cont/{from} n={n} rows={rows}"), move |m| {
                m.leaf(Leaf::Input, "x", from, &[n, rows], &Fill::Unit)
                    .cont()
                    .cast(DType::F32)
                    .output("y");
            });
            list.add(format!("cpy/{from} n={n} rows={rows}"), move |m| {
                let base = m.leaf(Leaf::State, "s", from, &[5, 6], &Fill::Unit);
                let x = m.leaf(Leaf::Input, "x", from, &[n, rows], &Fill::Unit);
                _ = x.copy_into(base.slice(0, 2, n).slice(1, 1, rows));
            })
            .exact();
        }
    }
    for &form in Form::ALL {
        list.add(format!("cont/i32 form={}", form.name()), move |m| {
            let make = |dims: &[usize]| {
                let count: usize = dims.iter().product();
                let ids: Vec<i32> = (0..count).map(|i| (i * 7 % 10) as i32).collect();
                m.ids("ids", dims, &ids)
            };
            let ids = match form {
                Form::Plain | Form::Windows | Form::RowsShared => make(&[4, 3]),
                Form::RowGaps => make(&[7, 3]).slice(0, 2, 4),
                Form::RowsPermuted | Form::Transposed => make(&[3, 4]).transpose(),
                Form::Gaps => make(&[8, 3]).view([4, 3], [8, 32, 96, 96], 0),
            };
            let table = m.input("table", &[5, 10, 3], &Fill::Unit);
            table.get_rows(ids.cont()).output("y");
        })
        .exact();
    }
    list.add("cpy/into_a_result".to_owned(), |m| {
        let base = computed(m.input("base", &[8, 5], &Fill::Unit));
        let x = m.input("x", &[8, 2], &Fill::Unit);
        let written = x.copy_into(base.slice(1, 0, 2));
        written.view([8, 5], written.layout().strides(), 0).scale(2.0, 0.0).output("y");
    })
    .exact();
    list.add("cpy/base_into_its_own_other_rows".to_owned(), |m| {
        let base = m.leaf(Leaf::State, "s", DType::F32, &[8, 6], &Fill::Unit);
        _ = base.slice(1, 0, 4).copy_into(base.slice(1, 2, 4));
    })
    .exact();
    list.add("cpy/state_reversed_through_a_gather".to_owned(), |m| {
        let base = m.leaf(Leaf::State, "s", DType::F32, &[8, 4], &Fill::Unit);
        let ids = m.ids("ids", &[4], &[3, 2, 1, 0]);
        _ = base.get_rows(ids).copy_into(base);
    })
    .exact();
}
