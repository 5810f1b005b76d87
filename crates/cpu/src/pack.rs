//! Weight matrices in the layout that the matrix kernels read.
//!
//! A matrix of `rows` × `k` weights is stored as panels of [`PANEL_ROWS`]
//! rows, `k` running slowest inside a panel: element (row `r`, `k`) of panel
//! `p` lies at `p * 32 * k_total + k * 32 + r`. The last panel is filled up
//! with rows of zeros. The layout is the same for every instruction-set
//! level, so packed weights are a property of the model and not of the
//! processor. Panels are independent of one another: a loader packs them one
//! by one from a mapped file.

use std::ops::Range;

use bytemuck::try_cast_slice;
use half::{bf16, f16};
use tensoryard_tensor::DType;

use crate::span::fits;

/// Weight rows in one panel: two AVX-512 vectors.
pub const PANEL_ROWS: usize = 32;

/// Alignment in bytes that packed weights should have.
pub const PANEL_ALIGNMENT: usize = 64;

/// How the elements of panels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PanelType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats, computed with as `f32`.
    F16,
}

impl PanelType {
    /// The panel type of weights stored as `dtype`, if there is one.
    pub fn from_dtype(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(PanelType::F32),
            DType::F16 => Some(PanelType::F16),
            DType::Q4_0
            | DType::Q4_1
            | DType::Q5_0
            | DType::Q5_1
            | DType::Q8_0
            | DType::Q8_1
            | DType::Q2K
            | DType::Q3K
            | DType::Q4K
            | DType::Q5K
            | DType::Q6K
            | DType::Q8K
            | DType::Iq2Xxs
            | DType::Iq2Xs
            | DType::Iq3Xxs
            | DType::Iq1S
            | DType::Iq4Nl
            | DType::Iq3S
            | DType::Iq2S
            | DType::Iq4Xs
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::F64
            | DType::Iq1M
            | DType::BF16
            | DType::Tq1_0
            | DType::Tq2_0
            | DType::Mxfp4
            | DType::Nvfp4
            | DType::Q1_0
            | DType::Q2_0 => None,
        }
    }

    /// Bytes of one element.
    pub fn element_bytes(self) -> usize {
        match self {
            PanelType::F32 => 4,
            PanelType::F16 => 2,
        }
    }

    /// Bytes of one panel; `None` on overflow.
    pub fn panel_bytes(self, k: usize) -> Option<usize> {
        k.checked_mul(PANEL_ROWS * self.element_bytes())
    }

    /// Bytes of all panels of a `rows` × `k` matrix; `None` on overflow.
    pub fn packed_bytes(self, rows: usize, k: usize) -> Option<usize> {
        self.panel_bytes(k)?.checked_mul(rows.div_ceil(PANEL_ROWS))
    }
}

/// Weights to be packed: little-endian elements anywhere in memory, at any
/// alignment.
#[derive(Debug, Clone, Copy)]
pub struct PackSource<'a> {
    dtype: DType,
    data: &'a [u8],
    rows: usize,
    k: usize,
    row_stride_bytes: usize,
    k_stride_bytes: usize,
}

impl<'a> PackSource<'a> {
    /// Element (row, k) of type `dtype` (f32, f16 or bf16) lies at
    /// `row * row_stride_bytes + k * k_stride_bytes`. `None` for another type
    /// or when `data` ends before the last element.
    pub fn new(
        dtype: DType,
        data: &'a [u8],
        rows: usize,
        k: usize,
        row_stride_bytes: usize,
        k_stride_bytes: usize,
    ) -> Option<Self> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return None;
        }
        if rows > 0 && k > 0 {
            let last_k = (k - 1).checked_mul(k_stride_bytes)?;
            let row_len = last_k.checked_add(dtype.block_bytes())?;
            fits(data.len(), row_stride_bytes, rows, row_len)?;
        }
        Some(Self { dtype, data, rows, k, row_stride_bytes, k_stride_bytes })
    }

    /// Rows without gaps.
    pub fn contiguous(dtype: DType, data: &'a [u8], rows: usize, k: usize) -> Option<Self> {
        let element = dtype.block_bytes();
        Self::new(dtype, data, rows, k, k.checked_mul(element)?, element)
    }

    /// Number of panels that the rows fill.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }
}

/// Fills one panel with rows `32 * panel..` of `src`. Values are rounded to
/// the panel's type when it is the narrower one.
///
/// Returns `None` and writes nothing when `src` has no such panel or `dst`
/// is not exactly one panel, aligned for its elements.
pub fn pack_panel(
    panel_type: PanelType,
    src: &PackSource<'_>,
    panel: usize,
    dst: &mut [u8],
) -> Option<()> {
    if panel >= src.panels() || panel_type.panel_bytes(src.k) != Some(dst.len()) {
        return None;
    }
    let rows = panel * PANEL_ROWS..src.rows.min((panel + 1) * PANEL_ROWS);
    let f32_bytes = |bytes: [u8; 4]| f32::from_le_bytes(bytes);
    let half_bytes = |bytes: [u8; 2]| f16::from_le_bytes(bytes);
    let brain_bytes = |bytes: [u8; 2]| bf16::from_le_bytes(bytes).to_f32();
    match panel_type {
        PanelType::F32 => {
            let dst = bytemuck::try_cast_slice_mut::<u8, f32>(dst).ok()?;
            match src.dtype {
                DType::F32 => transpose(src, rows, dst, f32_bytes),
                DType::BF16 => transpose(src, rows, dst, brain_bytes),
                _ => transpose(src, rows, dst, |bytes| half_bytes(bytes).to_f32()),
            }
        }
        PanelType::F16 => {
            let dst = bytemuck::try_cast_slice_mut::<u8, f16>(dst).ok()?;
            match src.dtype {
                DType::F32 => transpose(src, rows, dst, |b| f16::from_f32(f32_bytes(b))),
                DType::BF16 => transpose(src, rows, dst, |b| f16::from_f32(brain_bytes(b))),
                _ => transpose(src, rows, dst, half_bytes),
            }
        }
    }
    Some(())
}

/// Fills all panels, one after the other; otherwise as [`pack_panel`].
pub fn pack_all(panel_type: PanelType, src: &PackSource<'_>, dst: &mut [u8]) -> Option<()> {
    if panel_type.packed_bytes(src.rows, src.k) != Some(dst.len()) {
        return None;
    }
    let panel_bytes = panel_type.panel_bytes(src.k)?.max(1);
    for (panel, dst) in dst.chunks_exact_mut(panel_bytes).enumerate() {
        pack_panel(panel_type, src, panel, dst)?;
    }
    Some(())
}

fn transpose<const N: usize, T: Copy + Default>(
    src: &PackSource<'_>,
    rows: Range<usize>,
    dst: &mut [T],
    value: impl Fn([u8; N]) -> T,
) {
    // Short pieces of k, so that the part of the panel being filled stays in the first cache.
    const PIECE: usize = 64;
    for (piece, dst) in dst.chunks_mut(PIECE * PANEL_ROWS).enumerate() {
        for lane in 0..PANEL_ROWS {
            let column = dst[lane..].iter_mut().step_by(PANEL_ROWS);
            if rows.start + lane >= rows.end {
                column.for_each(|out| *out = T::default());
                continue;
            }
            let first =
                (rows.start + lane) * src.row_stride_bytes + piece * PIECE * src.k_stride_bytes;
            if src.k_stride_bytes == N {
                let elements = src.data[first..].as_chunks::<N>().0;
                column.zip(elements).for_each(|(out, bytes)| *out = value(*bytes));
                continue;
            }
            for (k, out) in column.enumerate() {
                let at = first + k * src.k_stride_bytes;
                let mut bytes = [0; N];
                bytes.copy_from_slice(&src.data[at..at + N]);
                *out = value(bytes);
            }
        }
    }
}

/// The elements of packed weights.
#[derive(Debug, Clone, Copy)]
pub enum PanelData<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats.
    F16(&'a [f16]),
}

/// Packed weights of a known size, for reading.
#[derive(Debug, Clone, Copy)]
pub struct Panels<'a> {
    data: PanelData<'a>,
    rows: usize,
    k: usize,
}

impl<'a> Panels<'a> {
    /// The panels of a `rows` × `k` matrix at the beginning of `bytes`.
    /// `None` when they are too short or not aligned to an element.
    pub fn from_bytes(
        panel_type: PanelType,
        bytes: &'a [u8],
        rows: usize,
        k: usize,
    ) -> Option<Self> {
        let bytes = bytes.get(..panel_type.packed_bytes(rows, k)?)?;
        let data = match panel_type {
            PanelType::F32 => PanelData::F32(try_cast_slice(bytes).ok()?),
            PanelType::F16 => PanelData::F16(try_cast_slice(bytes).ok()?),
        };
        Some(Self { data, rows, k })
    }

    /// All elements, padding included.
    pub fn data(&self) -> PanelData<'a> {
        self.data
    }

    /// How the elements are stored.
    pub fn panel_type(&self) -> PanelType {
        match self.data {
            PanelData::F32(_) => PanelType::F32,
            PanelData::F16(_) => PanelType::F16,
        }
    }

    /// Weight rows, the padding not counted.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a weight row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// Elements of one panel.
    pub fn panel_len(&self) -> usize {
        PANEL_ROWS * self.k
    }

    /// One weight row as `f32`: an embedding look-up.
    ///
    /// # Panics
    /// When there is no row `row` or `dst` does not hold `k` elements.
    pub fn gather_row(&self, row: usize, dst: &mut [f32]) {
        assert!(row < self.rows && dst.len() == self.k);
        let first = row / PANEL_ROWS * self.panel_len() + row % PANEL_ROWS;
        match self.data {
            PanelData::F32(data) => {
                let row = data[first..].iter().step_by(PANEL_ROWS);
                dst.iter_mut().zip(row).for_each(|(out, value)| *out = *value);
            }
            PanelData::F16(data) => {
                let row = data[first..].iter().step_by(PANEL_ROWS);
                dst.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_f32());
            }
        }
    }

    /// One weight row in its stored type, exactly as it was packed.
    ///
    /// # Panics
    /// When there is no row `row` or `dst` does not hold the bytes of `k` elements.
    pub fn unpack_row(&self, row: usize, dst: &mut [u8]) {
        assert!(row < self.rows && dst.len() == self.k * self.panel_type().element_bytes());
        let first = row / PANEL_ROWS * self.panel_len() + row % PANEL_ROWS;
        match self.data {
            PanelData::F32(data) => {
                let row = data[first..].iter().step_by(PANEL_ROWS);
                let dst = dst.as_chunks_mut::<4>().0;
                dst.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_le_bytes());
            }
            PanelData::F16(data) => {
                let row = data[first..].iter().step_by(PANEL_ROWS);
                let dst = dst.as_chunks_mut::<2>().0;
                dst.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row r, element k is r + k / 1000, which f16 rounds.
    fn matrix(rows: usize, k: usize) -> Vec<f32> {
        (0..rows * k).map(|i| (i / k) as f32 + (i % k) as f32 / 1000.0).collect()
    }

    fn pack(panel_type: PanelType, rows: usize, k: usize, data: &[f32]) -> Vec<u64> {
        let bytes = panel_type.packed_bytes(rows, k).unwrap();
        let mut packed = vec![u64::MAX; bytes.div_ceil(8)];
        let src = PackSource::contiguous(DType::F32, bytemuck::cast_slice(data), rows, k).unwrap();
        let dst = &mut bytemuck::cast_slice_mut(&mut packed)[..bytes];
        pack_all(panel_type, &src, dst).unwrap();
        packed
    }

    #[test]
    fn elements_lie_where_the_layout_says_and_padding_is_zero() {
        let (rows, k) = (37, 130);
        let packed = pack(PanelType::F32, rows, k, &matrix(rows, k));
        let packed: &[f32] = bytemuck::cast_slice(&packed);
        assert_eq!(packed.len(), 2 * 32 * 130);
        assert_eq!(packed[129 * 32 + 31], 31.129);
        assert_eq!(packed[32 * 130 + 7 * 32 + 4], 36.007);
        assert!((0..k).all(|k| packed[32 * 130 + k * 32 + 5..][..27] == [0.0; 27]));
    }

    #[test]
    fn unpacking_gives_the_packed_values_back() {
        for (rows, k) in [(1, 1), (31, 5), (32, 64), (65, 67)] {
            let data = matrix(rows, k);
            for panel_type in [PanelType::F32, PanelType::F16] {
                let packed = pack(panel_type, rows, k, &data);
                let panels =
                    Panels::from_bytes(panel_type, bytemuck::cast_slice(&packed), rows, k).unwrap();
                for (row, expected) in data.chunks(k).enumerate() {
                    let mut gathered = vec![0.0; k];
                    panels.gather_row(row, &mut gathered);
                    let mut bytes = vec![0; k * panel_type.element_bytes()];
                    panels.unpack_row(row, &mut bytes);
                    if panel_type == PanelType::F32 {
                        assert_eq!(gathered, expected);
                        assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(expected));
                    } else {
                        let halves: Vec<f16> = expected.iter().map(|&v| f16::from_f32(v)).collect();
                        let wide: Vec<f32> = halves.iter().map(|v| v.to_f32()).collect();
                        assert_eq!(gathered, wide);
                        assert_eq!(bytes, bytemuck::cast_slice::<f16, u8>(&halves));
                    }
                }
            }
        }
    }

    #[test]
    fn sources_may_be_unaligned_transposed_and_of_another_type() {
        // 3 × 70 bf16 weights stored with the row index fastest, from an odd address on.
        let (rows, k) = (3, 70);
        let mut bytes = vec![0_u8];
        for i in 0..rows * k {
            bytes.extend(bf16::from_f32(i as f32).to_le_bytes());
        }
        let src = PackSource::new(DType::BF16, &bytes[1..], rows, k, 2, 2 * rows).unwrap();
        let mut packed = vec![0.0_f32; 32 * k];
        let dst = bytemuck::cast_slice_mut(&mut packed);
        pack_panel(PanelType::F32, &src, 0, dst).unwrap();
        assert_eq!((packed[0], packed[1], packed[69 * 32 + 2]), (0.0, 1.0, 209.0));
        assert!(
            pack_panel(PanelType::F32, &src, 1, bytemuck::cast_slice_mut(&mut packed)).is_none()
        );
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let bytes = [0_u8; 64];
        assert!(PackSource::contiguous(DType::F32, &bytes, 4, 4).is_some());
        assert!(PackSource::contiguous(DType::F32, &bytes, 4, 5).is_none());
        assert!(PackSource::contiguous(DType::Q8_0, &bytes, 1, 1).is_none());
        assert!(PackSource::new(DType::F16, &bytes, 2, 2, usize::MAX, 2).is_none());
        assert!(Panels::from_bytes(PanelType::F16, &bytes, 32, 1).is_some());
        assert!(Panels::from_bytes(PanelType::F16, &bytes, 33, 1).is_none());
        assert!(PanelType::F32.packed_bytes(usize::MAX, 2).is_none());
        assert_eq!(PanelType::F16.packed_bytes(33, 10), Some(2 * 32 * 10 * 2));
    }
}
