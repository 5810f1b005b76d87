//! Cases of row writes.

use tensoryard_graph::DType;

use super::{LENGTHS, STORED, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for &dtype in STORED {
        for &n in LENGTHS {
            list.add(format!("set_rows/{dtype} n={n}"), move |m| {
                let base = m.leaf(Leaf::State, "s", dtype, &[n, 10], &Fill::Unit);
                let ids = m.ids("ids", &[4], &[9, 0, 4, 7]);
                _ = base.set_rows(m.input("x", &[n, 4], &Fill::Special), ids);
            })
            .exact();
        }
        list.add(format!("set_rows/{dtype} read_after"), move |m| {
            let base = m.leaf(Leaf::State, "s", dtype, &[16, 10], &Fill::Unit);
            let ids = m.ids("ids", &[2], &[3, 8]);
            let written = base.set_rows(m.input("x", &[16, 2], &Fill::Unit), ids);
            written.mul_mat(m.input("q", &[16, 3], &Fill::Unit)).output("y");
        });
        list.add(format!("set_rows/{dtype} equal_ids_last_wins"), move |m| {
            let base = m.leaf(Leaf::State, "s", dtype, &[33, 5], &Fill::Unit);
            let ids = m.ids("ids", &[6], &[2, 2, 1, 2, 1, 2]);
            _ = base.set_rows(m.input("x", &[33, 6], &Fill::Unit), ids);
        })
        .exact();
        for id in [-1, 10, 30, 999_999, i32::MIN, i32::MAX] {
            for at in [0, 2] {
                list.add(format!("set_rows/{dtype} id={id} of=10 at={at}"), move |m| {
                    let base = m.leaf(Leaf::State, "s", dtype, &[7, 10], &Fill::Unit);
                    let mut ids = [1, 2, 3];
                    ids[at] = id;
                    let ids = m.ids("ids", &[3], &ids);
                    _ = base.set_rows(m.input("x", &[7, 3], &Fill::Unit), ids);
                })
                .fails();
            }
        }
        for c in [[1, 1], [3, 1], [1, 2], [3, 2]] {
            list.add(format!("set_rows/{dtype} batch=[3, 2] ids_batch={c:?}"), move |m| {
                let base = m.leaf(Leaf::State, "s", dtype, &[9, 6, 3, 2], &Fill::Unit);
                let ids: Vec<i32> = (0..4 * c[0] * c[1]).map(|i| (i * 5 % 6) as i32).collect();
                let ids = m.ids("ids", &[4, c[0], c[1]], &ids);
                _ = base.set_rows(m.input("x", &[9, 4, 3, 2], &Fill::Unit), ids);
            })
            .exact();
        }
        for &form in Form::ROWS {
            list.add(format!("set_rows/{dtype} form_x={}", form.name()), move |m| {
                let base = m.leaf(Leaf::State, "s", dtype, &[17, 6, 3, 2], &Fill::Unit);
                let ids = m.ids("ids", &[4], &[5, 0, 3, 1]);
                let dims = [17, 4, 3, 2];
                let x = m.shaped(Leaf::Input, "x", DType::F32, dims, form, &Fill::Unit);
                _ = base.set_rows(x, ids);
            })
            .exact();
        }
        list.add(format!("set_rows/{dtype} base=slice_of_heads"), move |m| {
            // A cache of all heads side by side; rows of one head are written.
            let base = m.leaf(Leaf::State, "s", dtype, &[24, 6], &Fill::Unit);
            let ids = m.ids("ids", &[2], &[5, 2]);
            _ = base.slice(0, 8, 8).set_rows(m.input("x", &[8, 2], &Fill::Unit), ids);
        })
        .exact();
        list.add(format!("set_rows/{dtype} base=permuted"), move |m| {
            let base = m.leaf(Leaf::State, "s", dtype, &[8, 3, 6], &Fill::Unit);
            let ids = m.ids("ids", &[2], &[5, 2]);
            let x = m.input("x", &[8, 2, 3], &Fill::Unit);
            _ = base.permute([0, 2, 1, 3]).set_rows(x, ids);
        })
        .exact();
        for (n, count) in [(0, 2), (3, 0)] {
            list.add(format!("set_rows/{dtype} n={n} count={count}"), move |m| {
                let base = m.leaf(Leaf::State, "s", dtype, &[n, 5], &Fill::Unit);
                let ids = m.ids("ids", &[count], &[1, 2][..count]);
                _ = base.set_rows(m.input("x", &[n, count], &Fill::Unit), ids);
            })
            .exact();
        }
        list.add(format!("set_rows/{dtype} two_writes_in_order"), move |m| {
            let base = m.leaf(Leaf::State, "s", dtype, &[5, 5], &Fill::Unit);
            let ids = m.ids("ids", &[2], &[1, 2]);
            let first = base.set_rows(m.input("x", &[5, 2], &Fill::Unit), ids);
            _ = first.set_rows(m.input("z", &[5, 2], &Fill::Unit), ids);
        })
        .exact();
    }
    list.add("set_rows/x_from_the_state_itself".to_owned(), |m| {
        let base = m.leaf(Leaf::State, "s", DType::F32, &[5, 6], &Fill::Unit);
        let ids = m.ids("ids", &[3], &[2, 1, 0]);
        _ = base.set_rows(base.slice(1, 0, 3), ids);
    })
    .exact();
    list.add("set_rows/into_a_result".to_owned(), |m| {
        let base = computed(m.input("base", &[17, 6], &Fill::Unit));
        let ids = m.ids("ids", &[2], &[5, 1]);
        base.set_rows(m.input("x", &[17, 2], &Fill::Unit), ids).output("y");
    })
    .exact();
}
