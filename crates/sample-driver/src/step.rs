//! Steps as this device understands them, and what they compute.
//!
//! Tensors are f32 at any strides that are whole elements apart. Each op is a plain loop; values
//! are read and written through functions that know nothing of where the memory lies.

use crate::{Failure, unsupported};

/// A tensor of f32 elements in one of the program's bindings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tensor {
    pub binding: usize,
    pub offset: usize,
    pub ne: [usize; 4],
    pub nb: [usize; 4],
}

impl Tensor {
    fn at(&self, index: [usize; 4]) -> usize {
        let distances = index.iter().zip(self.nb).map(|(&i, stride)| i * stride);
        self.offset + distances.sum::<usize>()
    }

    /// Bytes from the start of the binding that the tensor reaches.
    pub fn end(&self) -> usize {
        if self.ne.contains(&0) {
            return self.offset;
        }
        self.at(self.ne.map(|n| n - 1)) + 4
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    Add,
    Mul,
    Scale { factor: f32, offset: f32 },
    MulMat,
}

/// One op with its tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub op: Op,
    pub dst: Tensor,
    pub sources: Vec<Tensor>,
}

/// The op of a name with parameters.
pub fn op(
    name: &str,
    word: Option<&str>,
    number: impl Fn(&str) -> Option<f32>,
) -> Result<Op, Failure> {
    match (name, word) {
        ("binary", Some("add")) => Ok(Op::Add),
        ("binary", Some("mul")) => Ok(Op::Mul),
        ("scale", None) => match (number("factor"), number("offset")) {
            (Some(factor), Some(offset)) => Ok(Op::Scale { factor, offset }),
            _ => unsupported("scale without factor and offset"),
        },
        ("mul_mat", None) => Ok(Op::MulMat),
        (name, word) => unsupported(&format!("no kernel for {name} {}", word.unwrap_or_default())),
    }
}

impl Step {
    /// Whether the tensors fit the op.
    pub fn check(&self) -> Result<(), Failure> {
        let (dst, sources) = (&self.dst, self.sources.as_slice());
        let repeats = |small: [usize; 4], large: [usize; 4]| {
            small.iter().zip(large).all(|(&s, l)| s == l || s != 0 && l.is_multiple_of(s))
        };
        let fits = match (self.op, sources) {
            (Op::Add | Op::Mul, [a, b]) => dst.ne == a.ne && repeats(b.ne, a.ne),
            (Op::Scale { .. }, [x]) => dst.ne == x.ne,
            (Op::MulMat, [weight, x]) => {
                let ([k, m, b2, b3], [xk, n, c2, c3]) = (weight.ne, x.ne);
                k == xk && dst.ne == [m, n, c2, c3] && repeats([1, 1, b2, b3], [1, 1, c2, c3])
            }
            _ => false,
        };
        if fits { Ok(()) } else { unsupported("operands that do not fit the op") }
    }

    /// Computes the step; `stop` is asked before each row. Says whether it came to the end.
    pub fn run(
        &self,
        read: impl Fn(usize, usize) -> f32,
        write: impl Fn(usize, usize, f32),
        stop: impl Fn() -> bool,
    ) -> bool {
        let dst = &self.dst;
        let load = |source: usize, index: [usize; 4]| {
            let tensor = &self.sources[source];
            read(tensor.binding, tensor.at(index))
        };
        let wrapped = |source: usize, index: [usize; 4]| {
            let ne = self.sources[source].ne;
            load(source, std::array::from_fn(|dim| index[dim] % ne[dim]))
        };
        for row in 0..dst.ne[1] * dst.ne[2] * dst.ne[3] {
            if stop() {
                return false;
            }
            let (i1, rest) = (row % dst.ne[1], row / dst.ne[1]);
            let (i2, i3) = (rest % dst.ne[2], rest / dst.ne[2]);
            for i0 in 0..dst.ne[0] {
                let index = [i0, i1, i2, i3];
                let value = match self.op {
                    Op::Add => load(0, index) + wrapped(1, index),
                    Op::Mul => load(0, index) * wrapped(1, index),
                    Op::Scale { factor, offset } => load(0, index) * factor + offset,
                    Op::MulMat => {
                        let (weight, x) = (&self.sources[0], &self.sources[1]);
                        // Neighbouring matrices of x share one of weight.
                        let (w2, w3) = (i2 * weight.ne[2] / x.ne[2], i3 * weight.ne[3] / x.ne[3]);
                        let products = (0..x.ne[0]).map(|k| {
                            f64::from(load(0, [k, i0, w2, w3]))
                                * f64::from(load(1, [k, i1, i2, i3]))
                        });
                        products.sum::<f64>() as f32
                    }
                };
                write(dst.binding, dst.at(index), value);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_product_is_that_of_the_matrices() {
        let matrix = |binding, ne: [usize; 4]| {
            let nb = [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
            Tensor { binding, offset: 0, ne, nb }
        };
        let sources = vec![matrix(0, [2, 3, 1, 1]), matrix(1, [2, 1, 1, 1])];
        let step = Step { op: Op::MulMat, dst: matrix(2, [3, 1, 1, 1]), sources };
        assert!(step.check().is_ok());
        let memory =
            RefCell::new([vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![10.0, 1.0], vec![0.0; 3]]);
        let read = |binding: usize, at: usize| memory.borrow()[binding][at / 4];
        let write = |binding: usize, at: usize, value| memory.borrow_mut()[binding][at / 4] = value;
        assert!(step.run(read, write, || false));
        assert_eq!(memory.borrow()[2], [12.0, 34.0, 56.0]);
        assert!(!step.run(read, write, || true), "it stops when asked");
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let row = |n: usize| Tensor { binding: 0, offset: 0, ne: [n, 1, 1, 1], nb: [4; 4] };
        let step = |op, n: usize, sources: &[usize]| Step {
            op,
            dst: row(n),
            sources: sources.iter().map(|&n| row(n)).collect(),
        };
        assert!(step(Op::Add, 4, &[4, 2]).check().is_ok());
        assert!(step(Op::Add, 4, &[4, 3]).check().is_err());
        assert!(step(Op::Add, 4, &[4]).check().is_err());
        assert!(step(Op::Add, 4, &[4, 0]).check().is_err());
        assert!(step(Op::Scale { factor: 1.0, offset: 0.0 }, 4, &[3]).check().is_err());
        assert!(op("soft_max", None, |_| None).is_err());
        assert!(op("binary", Some("div"), |_| None).is_err());
    }
}
