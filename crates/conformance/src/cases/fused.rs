//! Cases of the chains that devices may fuse; run with and without fusion.

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Tensor};

use super::{STORED, computed};
use crate::case::{CaseList, Leaf, Maker};
use crate::data::Fill;

/// What follows a product or convolution.
#[derive(Clone, Copy)]
struct Tail {
    bias: bool,
    activation: Option<UnaryKind>,
    residual: Residual,
}

#[derive(Clone, Copy, PartialEq)]
enum Residual {
    None,
    /// An input, added from the right.
    Input,
    /// The result of an op, added from the left.
    Computed,
}

impl Tail {
    fn all() -> Vec<Tail> {
        let mut tails = Vec::new();
        for bias in [false, true] {
            for activation in
                [None, Some(UnaryKind::GeluErf), Some(UnaryKind::Gelu), Some(UnaryKind::Relu)]
            {
                for residual in [Residual::None, Residual::Input, Residual::Computed] {
                    tails.push(Tail { bias, activation, residual });
                }
            }
        }
        tails
    }

    fn name(self) -> String {
        let residual = match self.residual {
            Residual::None => "none",
            Residual::Input => "input",
            Residual::Computed => "computed",
        };
        let activation = self.activation.map_or("none", UnaryKind::name);
        format!("bias={} activation={activation} residual={residual}", self.bias)
    }

    fn append<'g>(self, m: &Maker<'g>, mut y: Tensor<'g>) -> Tensor<'g> {
        let dims = y.shape().dims();
        if self.bias {
            y = y.add(m.leaf(Leaf::Weight, "bias", DType::F32, &dims[..1], &Fill::Unit));
        }
        if let Some(kind) = self.activation {
            y = y.unary(kind);
        }
        match self.residual {
            Residual::None => y,
            Residual::Input => y.add(m.input("r", &dims, &Fill::Unit)),
            Residual::Computed => computed(m.input("r", &dims, &Fill::Unit)).add(y),
        }
    }
}

pub(super) fn add(list: &mut CaseList) {
    for n in [1, 7, 16, 33, 100, 384] {
        for rows in [1, 5] {
            list.add(format!("fused/norm_affine n={n} rows={rows}"), move |m| {
                let weight = m.leaf(Leaf::Weight, "w", DType::F32, &[n], &Fill::Unit);
                let bias = m.leaf(Leaf::Weight, "b", DType::F32, &[n], &Fill::Unit);
                let x = m.input("x", &[n, rows], &Fill::Range(-2.0, 3.0));
                x.norm(1e-5).mul(weight).add(bias).output("y");
            });
            list.add(format!("fused/norm_affine n={n} rows={rows} place=dst_is_x"), move |m| {
                let weight = m.leaf(Leaf::Weight, "w", DType::F32, &[n], &Fill::Unit);
                let bias = m.leaf(Leaf::Weight, "b", DType::F32, &[n], &Fill::Unit);
                let x = computed(m.input("x", &[n, rows], &Fill::Range(-2.0, 3.0)));
                x.norm(1e-5).mul(weight).add(bias).output("y");
            })
            .in_place();
        }
    }
    list.add("fused/norm_affine n=16 x_is_weight_and_bias".to_owned(), |m| {
        let x = computed(m.input("x", &[16], &Fill::Range(-2.0, 3.0)));
        x.norm(1e-5).mul(x).add(x).output("y");
    });
    for &dtype in STORED {
        for (k, m, n) in [(33, 17, 1), (64, 65, 13), (384, 32, 5)] {
            for leaf in [Leaf::Weight, Leaf::Input] {
                for tail in Tail::all() {
                    let name = format!(
                        "fused/mul_mat {dtype} k={k} m={m} n={n} w={} {}",
                        leaf.name(),
                        tail.name()
                    );
                    list.add(name, move |maker| {
                        let x = maker.input("x", &[k, n], &Fill::Unit);
                        let weight = maker.leaf(leaf, "w", dtype, &[k, m], &Fill::Unit);
                        tail.append(maker, weight.mul_mat(x)).output("y");
                    });
                }
            }
        }
        for tail in Tail::all() {
            for (frames, stride) in [(13, 1), (14, 2)] {
                let name = format!("fused/conv_1d {dtype} stride={stride} {}", tail.name());
                list.add(name, move |m| {
                    let x = m.input("x", &[10, frames], &Fill::Unit);
                    let weight = m.leaf(Leaf::Weight, "w", dtype, &[10, 3, 33], &Fill::Unit);
                    tail.append(m, weight.conv_1d(x, stride, 1)).output("y");
                });
            }
        }
        list.add(format!("fused/mul_mat {dtype} x_is_residual"), move |m| {
            let x = computed(m.input("x", &[16, 5], &Fill::Unit));
            let weight = m.leaf(Leaf::Weight, "w", dtype, &[16, 16], &Fill::Unit);
            weight.mul_mat(x).add(x).output("y");
        });
        list.add(format!("fused/mul_mat {dtype} inner_value_is_read_twice"), move |m| {
            let x = m.input("x", &[16, 5], &Fill::Unit);
            let weight = m.leaf(Leaf::Weight, "w", dtype, &[16, 17], &Fill::Unit);
            let product = weight.mul_mat(x);
            let biased = product.add(m.leaf(Leaf::Weight, "b", DType::F32, &[17], &Fill::Unit));
            biased.gelu_erf().add(product).output("y");
        });
        list.add(format!("fused/mul_mat {dtype} inner_value_is_output"), move |m| {
            let x = m.input("x", &[16, 5], &Fill::Unit);
            let weight = m.leaf(Leaf::Weight, "w", dtype, &[16, 17], &Fill::Unit);
            let product = weight.mul_mat(x).output("product");
            product.gelu_erf().output("y");
        });
        list.add(format!("fused/mul_mat {dtype} batches and bias"), move |m| {
            let x = m.input("x", &[16, 5, 3], &Fill::Unit);
            let weight = m.leaf(Leaf::Input, "w", dtype, &[16, 17, 3], &Fill::Unit);
            let bias = m.leaf(Leaf::Weight, "b", DType::F32, &[17], &Fill::Unit);
            weight.mul_mat(x).add(bias).gelu_erf().output("y");
        });
    }
}
