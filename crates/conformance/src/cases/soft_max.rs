//! Cases of the softmax of rows.

use tensoryard_graph::DType;

use super::{LENGTHS, STORED, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

const MASK: Fill = Fill::Choice(&[0.0, 0.0, f32::NEG_INFINITY, -1.5]);
const HIDE: f32 = f32::NEG_INFINITY;

pub(super) fn add(list: &mut CaseList) {
    for &n in LENGTHS {
        list.add(format!("soft_max/n={n}"), move |m| {
            m.input("x", &[n, 5], &Fill::Range(-8.0, 8.0)).soft_max(1.0, None).output("y");
        });
        list.add(format!("soft_max/n={n} scale=0.125 mask=f32"), move |m| {
            let mask = m.input("mask", &[n, 5], &MASK);
            m.input("x", &[n, 5, 2], &Fill::Range(-30.0, 30.0))
                .soft_max(0.125, Some(mask))
                .output("y");
        });
        list.add(format!("soft_max/n={n} place=dst_is_x mask=f16"), move |m| {
            let mask = m.leaf(Leaf::Input, "mask", DType::F16, &[n, 5], &MASK);
            computed(m.input("x", &[n, 5], &Fill::Range(-8.0, 8.0)))
                .soft_max(0.5, Some(mask))
                .output("y");
        })
        .in_place();
        list.add(format!("soft_max/n={n} values=all_hidden"), move |m| {
            let mut values = vec![0.25; 3 * n];
            values[n..2 * n].fill(HIDE);
            m.input("x", &[n, 3], &Fill::Cycle(values)).soft_max(1.0, None).output("y");
        });
        list.add(format!("soft_max/n={n} mask=all_hidden"), move |m| {
            let mut values = vec![0.0; 3 * n];
            values[n..2 * n].fill(HIDE);
            let mask = m.input("mask", &[n, 3], &Fill::Cycle(values));
            m.input("x", &[n, 3], &Fill::Unit).soft_max(1.0, Some(mask)).output("y");
        });
    }
    for &form in Form::ROWS {
        list.add(format!("soft_max/n=33 form={}", form.name()), move |m| {
            m.shaped(Leaf::Input, "x", DType::F32, [33, 4, 3, 2], form, &Fill::Unit)
                .soft_max(2.0, None)
                .output("y");
        });
        for &dtype in STORED {
            list.add(format!("soft_max/n=33 mask={dtype} form_mask={}", form.name()), move |m| {
                let mask = m.shaped(Leaf::Input, "mask", dtype, [33, 4, 1, 2], form, &MASK);
                m.input("x", &[33, 4, 3, 2], &Fill::Unit).soft_max(2.0, Some(mask)).output("y");
            });
        }
    }
    for mask_dims in [[17, 1, 1, 1], [17, 4, 1, 1], [17, 2, 3, 1], [17, 1, 1, 2], [17, 4, 6, 2]] {
        list.add(format!("soft_max/n=17 mask_dims={mask_dims:?}"), move |m| {
            let mask = m.input("mask", &mask_dims, &MASK);
            m.input("x", &[17, 4, 6, 2], &Fill::Unit).soft_max(1.0, Some(mask)).output("y");
        });
    }
    for (n, rows) in [(0, 3), (3, 0)] {
        list.add(format!("soft_max/n={n} rows={rows}"), move |m| {
            m.input("x", &[n, rows], &Fill::Unit).soft_max(1.0, None).output("y");
        });
    }
    list.add("soft_max/n=16 mask=x".to_owned(), |m| {
        let x = computed(m.input("x", &[16, 4], &Fill::Unit));
        x.soft_max(0.5, Some(x)).output("y");
    });
    for n in [7, 65] {
        list.add(format!("soft_max/n={n} values=huge"), move |m| {
            let fill = Fill::Choice(&[1e30, -1e30, 3e38, -3e38, 0.0]);
            m.input("x", &[n, 6], &fill).soft_max(1.0, None).output("y");
        });
        list.add(format!("soft_max/n={n} values=one_nan_row"), move |m| {
            let mut values = vec![0.5; 3 * n];
            values[n + n / 2] = f32::NAN;
            m.input("x", &[n, 3], &Fill::Cycle(values)).soft_max(1.0, None).output("y");
        });
    }
}
