//! Arithmetic of two rows, element by element.
//!
//! Either operand may be one value for the whole row, which is how the
//! fastest dimension is broadcast; slower dimensions are the caller's loops.
//! Results are those of IEEE 754 in every lane.

use crate::isa::Isa;
use crate::kernels::rows::{Operand, Source, store};
use crate::simd::{Kernel, Simd};

/// Which operation [`binary_row`] applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
}

impl BinaryOp {
    /// Every operation.
    pub const ALL: &'static [BinaryOp] =
        &[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div];
}

/// `dst[i] = a[i] op b[i]`.
///
/// # Panics
/// When the lengths differ.
pub fn binary_row(isa: Isa, op: BinaryOp, a: Operand<'_>, b: Operand<'_>, dst: &mut [f32]) {
    apply(isa, op, Source::Operand(a), Source::Operand(b), dst);
}

/// `a[i] = a[i] op b[i]`.
///
/// # Panics
/// When the lengths differ.
pub fn binary_row_in_place(isa: Isa, op: BinaryOp, a: &mut [f32], b: Operand<'_>) {
    apply(isa, op, Source::Dst, Source::Operand(b), a);
}

/// `b[i] = a[i] op b[i]`.
///
/// # Panics
/// When the lengths differ.
pub fn binary_row_in_place_right(isa: Isa, op: BinaryOp, a: Operand<'_>, b: &mut [f32]) {
    apply(isa, op, Source::Operand(a), Source::Dst, b);
}

/// `row[i] = row[i] op row[i]`: both operands are the result.
pub fn binary_row_with_itself(isa: Isa, op: BinaryOp, row: &mut [f32]) {
    apply(isa, op, Source::Dst, Source::Dst, row);
}

fn apply(isa: Isa, op: BinaryOp, a: Source<'_>, b: Source<'_>, dst: &mut [f32]) {
    a.check(dst.len());
    b.check(dst.len());
    match op {
        BinaryOp::Add => isa.run(Combine { op: Add, a, b, dst }),
        BinaryOp::Sub => isa.run(Combine { op: Sub, a, b, dst }),
        BinaryOp::Mul => isa.run(Combine { op: Mul, a, b, dst }),
        BinaryOp::Div => isa.run(Combine { op: Div, a, b, dst }),
    }
}

trait Operation: Copy {
    fn scalar(self, a: f32, b: f32) -> f32;
    fn simd<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F;
}

macro_rules! operations {
    ($($name:ident: $operator:tt, $method:ident;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;

            impl Operation for $name {
                fn scalar(self, a: f32, b: f32) -> f32 {
                    a $operator b
                }

                #[inline(always)]
                fn simd<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
                    s.$method(a, b)
                }
            }
        )*
    };
}

operations! {
    Add: +, add;
    Sub: -, sub;
    Mul: *, mul;
    Div: /, div;
}

struct Combine<'a, O> {
    op: O,
    a: Source<'a>,
    b: Source<'a>,
    dst: &'a mut [f32],
}

impl<O: Operation> Kernel for Combine<'_, O> {
    type Output = ();

    fn scalar(self) {
        for i in 0..self.dst.len() {
            self.dst[i] = self.op.scalar(self.a.value(i, self.dst), self.b.value(i, self.dst));
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let len = self.dst.len();
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let a = self.a.load(s, first, count, self.dst);
            let b = self.b.load(s, first, count, self.dst);
            store(s, self.op.simd(s, a, b), self.dst, first, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, isas, noise};

    fn reference(op: BinaryOp, a: f32, b: f32) -> f32 {
        match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
        }
    }

    fn bits(row: &[f32]) -> Vec<u32> {
        // One NaN for all.
        row.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
    }

    #[test]
    fn all_forms_give_the_bits_of_ieee_arithmetic() {
        let special =
            [0.0, -0.0, 1.0, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-42, f32::MAX];
        for isa in isas() {
            for &op in BinaryOp::ALL {
                for len in AWKWARD_LENGTHS {
                    let mut a = noise(1, len + 1);
                    let mut b = noise(2, len + 1);
                    for (i, value) in special.iter().enumerate().take(len) {
                        a[1 + i] = *value;
                        b[len - i] = *value;
                    }
                    let (a, b) = (&a[1..], &b[1..]);
                    let mut out = vec![0.0; len];
                    let expected: Vec<f32> =
                        a.iter().zip(b).map(|(a, b)| reference(op, *a, *b)).collect();
                    binary_row(isa, op, Operand::Row(a), Operand::Row(b), &mut out);
                    assert_eq!(bits(&out), bits(&expected), "{op:?} {len} {isa}");
                    out.copy_from_slice(a);
                    binary_row_in_place(isa, op, &mut out, Operand::Row(b));
                    assert_eq!(bits(&out), bits(&expected));
                    out.copy_from_slice(b);
                    binary_row_in_place_right(isa, op, Operand::Row(a), &mut out);
                    assert_eq!(bits(&out), bits(&expected));
                    for value in special {
                        let expected: Vec<f32> =
                            b.iter().map(|b| reference(op, value, *b)).collect();
                        binary_row(isa, op, Operand::Scalar(value), Operand::Row(b), &mut out);
                        assert_eq!(bits(&out), bits(&expected));
                        let expected: Vec<f32> =
                            a.iter().map(|a| reference(op, *a, value)).collect();
                        binary_row(isa, op, Operand::Row(a), Operand::Scalar(value), &mut out);
                        assert_eq!(bits(&out), bits(&expected));
                    }
                    out.copy_from_slice(a);
                    binary_row_with_itself(isa, op, &mut out);
                    let expected: Vec<f32> = a.iter().map(|a| reference(op, *a, *a)).collect();
                    assert_eq!(bits(&out), bits(&expected));
                }
            }
        }
    }
}
