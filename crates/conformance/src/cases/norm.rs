//! Cases of the row normalisations.

use tensoryard_graph::{DType, Tensor};

use super::{LENGTHS, computed};
use crate::case::{CaseList, Form, Leaf};
use crate::compare::{Accuracy, Tolerance};
use crate::data::Fill;

type Norm = for<'g> fn(Tensor<'g>) -> Tensor<'g>;

pub(super) fn add(list: &mut CaseList) {
    let ops: [(&str, Norm); 2] = [("norm", |x| x.norm(1e-5)), ("rms_norm", |x| x.rms_norm(1e-6))];
    for (name, norm) in ops {
        for &n in LENGTHS {
            for rows in [1, 5] {
                list.add(format!("{name}/n={n} rows={rows}"), move |m| {
                    norm(m.input("x", &[n, rows], &Fill::Range(-2.0, 3.0))).output("y");
                });
            }
        }
        for &form in Form::ROWS {
            list.add(format!("{name}/n=33 form={}", form.name()), move |m| {
                let fill = Fill::Range(-2.0, 3.0);
                norm(m.shaped(Leaf::Input, "x", DType::F32, [33, 5, 3, 2], form, &fill))
                    .output("y");
            });
        }
        for (n, rows) in [(0, 3), (3, 0)] {
            list.add(format!("{name}/n={n} rows={rows}"), move |m| {
                norm(m.input("x", &[n, rows], &Fill::Unit)).output("y");
            });
        }
        for n in [16, 65, 384] {
            list.add(format!("{name}/n={n} place=dst_is_x"), move |m| {
                norm(computed(m.input("x", &[n, 3], &Fill::Unit))).output("y");
            })
            .in_place();
            list.add(format!("{name}/n={n} values=equal"), move |m| {
                norm(m.input("x", &[n, 2], &Fill::Choice(&[2.0]))).output("y");
            });
            list.add(format!("{name}/n={n} values=tiny"), move |m| {
                norm(m.input("x", &[n, 2], &Fill::Range(-1e-20, 1e-20))).output("y");
            });
            list.add(format!("{name}/n={n} values=far_from_zero"), move |m| {
                norm(m.input("x", &[n, 2], &Fill::Range(99.0, 101.0))).output("y");
            })
            .accuracy = Accuracy::Loose(
                Tolerance { nmse: 1e-9, max_abs: 2e-4 },
                "a mean of 100 costs two digits of the deviations",
            );
            list.add(format!("{name}/n={n} values=one_nan_row"), move |m| {
                let mut values = vec![0.5; 3 * n];
                values.iter_mut().enumerate().for_each(|(i, v)| *v += (i % 13) as f32);
                values[n + n / 2] = f32::NAN;
                norm(m.input("x", &[n, 3], &Fill::Cycle(values))).output("y");
            });
        }
    }
}
