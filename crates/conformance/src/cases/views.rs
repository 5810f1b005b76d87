//! Cases of views that are outputs, and of graphs without any computation.

use tensoryard_graph::DType;

use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for leaf in [Leaf::Input, Leaf::Weight, Leaf::State] {
        for &form in Form::ALL {
            // A view of a leaf without an op is a view only where it is not the leaf itself.
            if form == Form::Plain {
                continue;
            }
            let name = format!("view/of_{} form={}", leaf.name(), form.name());
            list.add(name, move |m| {
                m.shaped(leaf, "x", DType::F32, [5, 4, 3, 2], form, &Fill::Special).output("y");
            })
            .exact();
        }
    }
    list.add("view/reshape_of_a_result".to_owned(), |m| {
        let x = m.input("x", &[6, 4], &Fill::Unit).scale(2.0, 0.0);
        x.reshape([4, 3, 2]).output("y");
    })
    .exact();
    list.add("view/of_a_view_of_a_view".to_owned(), |m| {
        let x = m.input("x", &[6, 4, 3], &Fill::Unit).scale(2.0, 0.0);
        x.slice(2, 1, 2).permute([1, 0, 2, 3]).slice(0, 1, 2).output("y");
    })
    .exact();
    list.add("view/of_a_read_and_rewritten_state".to_owned(), |m| {
        let state = m.leaf(Leaf::State, "s", DType::F32, &[4, 6], &Fill::Unit);
        let before = state.slice(1, 1, 3).scale(1.0, 1.0);
        let x = m.input("x", &[4, 6], &Fill::Unit);
        let after = x.copy_into(state);
        before.add(after.slice(1, 1, 3)).output("y");
    });
}
