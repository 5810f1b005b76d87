//! Products against an `f64` reference at every level, whole and split
//! between two threads, with sizes around the edges of tiles and panels.

use bytemuck::cast_slice;
use half::f16;
use tensoryard_tensor::DType;

use super::*;
use crate::kernels::testing::{assert_close, isas, noise};
use crate::pack::{PackSource, pack_all};
use crate::span::SharedSlice;
use crate::team::{ChunkCounter, Team};

struct Case {
    m: usize,
    n: usize,
    k: usize,
    weights: Vec<f32>,
    rows: Vec<f32>,
    stride: usize,
}

impl Case {
    /// Weights are exact in f16, so that both panel types have one reference.
    fn new(m: usize, n: usize, k: usize, stride: usize) -> Self {
        let weights = noise(m as u64 + 1, m * k);
        let weights = weights.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
        let len = if n == 0 { 0 } else { (n - 1) * stride + k };
        Self { m, n, k, weights, rows: noise(n as u64 + 77, len), stride }
    }

    fn rows(&self) -> Rows<'_> {
        Rows::new(&self.rows, self.stride, self.n, self.k).unwrap()
    }

    fn packed(&self, panel_type: PanelType) -> Vec<u64> {
        let bytes = panel_type.packed_bytes(self.m, self.k).unwrap();
        let mut packed = vec![0_u64; bytes.div_ceil(8)];
        let src = PackSource::contiguous(DType::F32, cast_slice(&self.weights), self.m, self.k);
        let dst = &mut bytemuck::cast_slice_mut(&mut packed)[..bytes];
        pack_all(panel_type, &src.unwrap(), dst).unwrap();
        packed
    }

    fn product(&self) -> Vec<f64> {
        let mut out = Vec::new();
        for n in 0..self.n {
            for m in 0..self.m {
                let w = &self.weights[m * self.k..][..self.k];
                let x = &self.rows[n * self.stride..][..self.k];
                out.push(w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum());
            }
        }
        out
    }

    /// Sums of k products of values below 1, each step rounded to f32.
    fn tolerance(&self) -> f64 {
        1e-7 * (self.k as f64 + 10.0)
    }
}

fn multiply(isa: Isa, case: &Case, panel_type: PanelType, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let packed = case.packed(panel_type);
    let panels = Panels::from_bytes(panel_type, cast_slice(&packed), case.m, case.k).unwrap();
    let mut scratch = vec![f32::NAN; mat_mul_scratch_len(panel_type, case.k)];
    // Memory between the rows of the result stays as it is.
    let dst_stride = case.m + 3;
    let mut out = vec![0.25; case.n * dst_stride];
    let mut dst = DstRows::from_slice(&mut out, dst_stride, case.n, case.m).unwrap();
    let all = 0..panels.panels();
    mat_mul(isa, &panels, all, &case.rows(), epilogue, &mut dst, &mut scratch);
    let mut result = Vec::new();
    for row in out.chunks(dst_stride) {
        assert_eq!(row[case.m..], [0.25; 3]);
        result.extend(&row[..case.m]);
    }
    result
}

const SIZES: [(usize, usize); 12] = [
    (1, 1),
    (33, 2),
    (31, 3),
    (32, 4),
    (70, 5),
    (64, 6),
    (33, 7),
    (96, 11),
    (17, 12),
    (40, 13),
    (65, 25),
    (32, 50),
];

#[test]
fn products_at_the_edges_of_tiles() {
    for isa in isas() {
        for (m, n) in SIZES {
            for k in [0, 1, 2, 3, 5, 64, 131] {
                let case = Case::new(m, n, k, k + 2);
                let expected = case.product();
                for panel_type in [PanelType::F32, PanelType::F16] {
                    let out = multiply(isa, &case, panel_type, &Epilogue::default());
                    let what = format!("{m}x{n}x{k} {panel_type:?} {isa}");
                    assert_close(&out, &expected, case.tolerance(), &what);
                }
            }
        }
    }
}

#[test]
fn every_number_of_activation_rows_up_to_two_tiles() {
    for isa in isas() {
        for n in 0..=25 {
            let case = Case::new(34, n, 19, 19);
            for panel_type in [PanelType::F32, PanelType::F16] {
                let out = multiply(isa, &case, panel_type, &Epilogue::default());
                assert_close(&out, &case.product(), case.tolerance(), &format!("{n} {isa}"));
            }
        }
    }
}

#[test]
fn more_rows_than_one_block_holds() {
    for isa in isas() {
        // 512 KiB are 128 rows of 1024.
        let case = Case::new(35, 150, 1024, 1024);
        let expected = case.product();
        for panel_type in [PanelType::F32, PanelType::F16] {
            let out = multiply(isa, &case, panel_type, &Epilogue::default());
            assert_close(&out, &expected, case.tolerance(), &format!("{isa}"));
        }
    }
}

#[test]
fn overlapping_rows_are_a_convolution() {
    for isa in isas() {
        // Kernel width 3 over 8 channels, stride 2: rows of 24 every 16 values.
        let case = Case::new(40, 30, 24, 16);
        for panel_type in [PanelType::F32, PanelType::F16] {
            let out = multiply(isa, &case, panel_type, &Epilogue::default());
            assert_close(&out, &case.product(), case.tolerance(), &format!("{isa}"));
        }
    }
}

#[test]
fn plain_rows_as_weights() {
    for isa in isas() {
        for (m, n) in SIZES {
            for k in [1, 33, 130] {
                let case = Case::new(m, n, k, k);
                // Weight rows one element further apart than they are long.
                let mut wide = vec![f32::NAN; m * (k + 1)];
                for (row, values) in wide.chunks_mut(k + 1).zip(case.weights.chunks(k)) {
                    row[..k].copy_from_slice(values);
                }
                let halves: Vec<f16> = wide.iter().map(|v| f16::from_f32(*v)).collect();
                let kinds = [
                    AnyRows::F32(Rows::new(&wide, k + 1, m, k).unwrap()),
                    AnyRows::F16(Rows::new(&halves, k + 1, m, k).unwrap()),
                ];
                for weights in kinds {
                    let mut out = vec![0.0; n * m];
                    let mut dst = DstRows::from_slice(&mut out, m, n, m).unwrap();
                    let mut scratch = vec![f32::NAN; unpacked_scratch_len(k)];
                    let (rows, epilogue) = (case.rows(), Epilogue::default());
                    let all = 0..m.div_ceil(PANEL_ROWS);
                    mat_mul_unpacked(isa, &weights, all, &rows, &epilogue, &mut dst, &mut scratch);
                    assert_close(&out, &case.product(), case.tolerance(), &format!("{isa}"));
                }
            }
        }
    }
}

#[test]
fn epilogues_compute_what_they_say() {
    let case = Case::new(45, 14, 40, 40);
    let bias = noise(91, case.m);
    let residual = noise(92, case.n * (case.m + 1));
    let residual_rows = Rows::new(&residual, case.m + 1, case.n, case.m).unwrap();
    let activations = [
        None,
        Some(Activation::GeluErf),
        Some(Activation::GeluTanh),
        Some(Activation::Silu),
        Some(Activation::Relu),
    ];
    let activate = |activation: Option<Activation>, x: f64| match activation {
        None => x,
        Some(Activation::GeluErf) => {
            0.5 * x * (1.0 + crate::kernels::unary::erf(x / 2.0_f64.sqrt()))
        }
        Some(Activation::GeluTanh) => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Some(Activation::Silu) => x / (1.0 + (-x).exp()),
        Some(Activation::Relu) => x.max(0.0),
    };
    for isa in isas() {
        for activation in activations {
            for bias in [None, Some(bias.as_slice())] {
                for kind in [Residual::None, Residual::InPlace, Residual::Rows(residual_rows)] {
                    let epilogue = Epilogue { scale: 0.5, bias, activation, residual: kind };
                    let expected: Vec<f64> = case
                        .product()
                        .iter()
                        .enumerate()
                        .map(|(i, product)| {
                            let (n, m) = (i / case.m, i % case.m);
                            let bias = bias.map_or(0.0, |bias| f64::from(bias[m]));
                            let added = match kind {
                                Residual::None => 0.0,
                                Residual::InPlace => 0.25,
                                Residual::Rows(rows) => f64::from(rows.row(n)[m]),
                            };
                            activate(activation, product * 0.5 + bias) + added
                        })
                        .collect();
                    let out = multiply(isa, &case, PanelType::F16, &epilogue);
                    let tolerance = 1e-6 + case.tolerance();
                    assert_close(&out, &expected, tolerance, &format!("{activation:?} {isa}"));
                }
            }
        }
    }
}

#[test]
fn two_threads_compute_the_bits_of_one() {
    let mut team = Team::new(2).unwrap();
    for isa in isas() {
        for (m, n) in [(100, 1), (100, 7), (70, 100), (5, 2)] {
            let case = Case::new(m, n, 50, 50);
            let epilogue = Epilogue { residual: Residual::InPlace, ..Epilogue::default() };
            let packed = case.packed(PanelType::F16);
            let panels = Panels::from_bytes(PanelType::F16, cast_slice(&packed), m, 50).unwrap();
            let mut out = vec![0.25; n * m];
            let shared = SharedSlice::new(&mut out);
            let scratch_len = mat_mul_scratch_len(PanelType::F16, 50);
            let mut scratch = vec![0.0; 2 * scratch_len];
            let scratches = SharedSlice::new(&mut scratch);
            let split = MatMulSplit::new(n, panels.panels(), team.size());
            let counter = ChunkCounter::new();
            team.run(|member| {
                let mine = member.index() * scratch_len..(member.index() + 1) * scratch_len;
                // SAFETY: each member has its own part.
                let scratch = unsafe { scratches.slice_mut(mine) };
                while let Some(chunk) = counter.next(split.chunks()) {
                    let (rows, panel_range) = split.chunk(chunk);
                    let first = shared.as_mut_ptr().wrapping_add(rows.start * m);
                    let columns =
                        panel_range.start * PANEL_ROWS..m.min(panel_range.end * PANEL_ROWS);
                    // SAFETY: chunks are disjoint rectangles of the result.
                    let mut dst = unsafe { DstRows::from_raw(first, m, rows.len(), columns) };
                    let rows = case.rows().slice(rows);
                    mat_mul(isa, &panels, panel_range, &rows, &epilogue, &mut dst, scratch);
                }
                Ok(())
            })
            .unwrap();
            assert_eq!(out, multiply(isa, &case, PanelType::F16, &epilogue), "{m} {n} {isa}");
        }
    }
}

#[test]
fn nan_and_infinity_reach_only_their_own_results() {
    for isa in isas() {
        let mut case = Case::new(40, 13, 8, 8);
        case.rows[3 * 8 + 2] = f32::NAN;
        case.weights[35 * 8] = f32::INFINITY;
        let out = multiply(isa, &case, PanelType::F32, &Epilogue::default());
        for n in 0..13 {
            for m in 0..40 {
                assert_eq!(out[n * 40 + m].is_finite(), n != 3 && m != 35, "{n} {m} {isa}");
            }
        }
    }
}
