//! Cases of row look-up.

use tensoryard_graph::DType;

use super::{LENGTHS, STORED};
use crate::case::{CaseList, Form, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for &dtype in STORED {
        for leaf in [Leaf::Weight, Leaf::Input, Leaf::State] {
            let kind = leaf.name();
            for &n in LENGTHS {
                list.add(format!("get_rows/{dtype} n={n} table={kind}"), move |m| {
                    let ids = m.ids("ids", &[5], &[0, 9, 4, 4, 8]);
                    m.leaf(leaf, "table", dtype, &[n, 10], &Fill::Special)
                        .get_rows(ids)
                        .output("y");
                })
                .exact();
            }
            for id in [-1, 10, 30, 999_999, i32::MIN, i32::MAX] {
                list.add(format!("get_rows/{dtype} table={kind} id={id} of=10"), move |m| {
                    let ids = m.ids("ids", &[3], &[1, id, 2]);
                    m.leaf(leaf, "table", dtype, &[7, 10], &Fill::Unit).get_rows(ids).output("y");
                })
                .fails();
            }
            list.add(format!("get_rows/{dtype} table={kind} read_by_product_too"), move |m| {
                let table = m.leaf(leaf, "table", dtype, &[33, 10], &Fill::Unit);
                let rows = table.get_rows(m.ids("ids", &[3], &[9, 0, 5]));
                table.mul_mat(rows).output("y");
                rows.output("rows");
            });
        }
        for &form in Form::ROWS {
            list.add(format!("get_rows/{dtype} form={}", form.name()), move |m| {
                let ids: Vec<i32> = (0..24).map(|i| i * 5 % 10).collect();
                let ids = m.ids("ids", &[4, 3, 2], &ids);
                m.shaped(Leaf::Input, "table", dtype, [17, 10, 3, 2], form, &Fill::Unit)
                    .get_rows(ids)
                    .output("y");
            })
            .exact();
        }
        list.add(format!("get_rows/{dtype} ids=transposed"), move |m| {
            let ids = m.ids("ids", &[2, 3], &[0, 1, 2, 3, 4, 5]).transpose();
            m.leaf(Leaf::Input, "table", dtype, &[5, 6, 2], &Fill::Unit).get_rows(ids).output("y");
        })
        .exact();
        for (n, rows, count) in [(0, 3, 2), (3, 5, 0), (3, 0, 0)] {
            list.add(format!("get_rows/{dtype} n={n} rows={rows} count={count}"), move |m| {
                let ids = m.ids("ids", &[count], &[1, 2][..count]);
                m.leaf(Leaf::Input, "table", dtype, &[n, rows], &Fill::Unit)
                    .get_rows(ids)
                    .output("y");
            });
        }
    }
    list.add("get_rows/empty_table id=0".to_owned(), |m| {
        let ids = m.ids("ids", &[1], &[0]);
        m.leaf(Leaf::Input, "table", DType::F32, &[3, 0], &Fill::Unit).get_rows(ids).output("y");
    })
    .fails();
}
