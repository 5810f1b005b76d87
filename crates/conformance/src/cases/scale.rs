//! Cases of multiplication by, and addition of, constants.

use tensoryard_graph::DType;

use super::{LENGTHS, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for &n in LENGTHS {
        for (factor, offset) in [(0.125, 0.0), (-3.5, 1.25), (0.0, 2.0)] {
            list.add(format!("scale/factor={factor} offset={offset} n={n}"), move |m| {
                m.input("x", &[n, 3], &Fill::Unit).scale(factor, offset).output("y");
            });
        }
    }
    for &form in Form::ALL {
        list.add(format!("scale/n=33 form={}", form.name()), move |m| {
            m.shaped(Leaf::Input, "x", DType::F32, [33, 5, 2, 3], form, &Fill::Unit)
                .scale(1.5, -0.5)
                .output("y");
        });
    }
    for (n, rows) in [(0, 3), (3, 0)] {
        list.add(format!("scale/n={n} rows={rows}"), move |m| {
            m.input("x", &[n, rows], &Fill::Unit).scale(2.0, 1.0).output("y");
        });
    }
    list.add("scale/n=65 place=dst_is_x".to_owned(), |m| {
        computed(m.input("x", &[65, 3], &Fill::Unit)).scale(2.0, 1.0).output("y");
    })
    .in_place();
    list.add("scale/n=100 values=special".to_owned(), |m| {
        m.input("x", &[100, 2], &Fill::Special).scale(0.5, 1.0).output("y");
    });
}
