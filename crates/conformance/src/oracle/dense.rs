//! Values of a tensor as a dense list of `f64`, read and stored through any layout.

use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_tensor::{bf16, f16};

/// The elements of a tensor in order, fastest dimension first.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// The four dimensions.
    pub dims: [usize; 4],
    /// The elements.
    pub data: Vec<f64>,
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (DType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (DType::I32, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
        (DType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (DType::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        _ => panic!("the oracle has no elements of type {dtype}"),
    }
}

fn encode(dtype: DType, value: f64, bytes: &mut [u8]) {
    match dtype {
        DType::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
        DType::I32 => bytes.copy_from_slice(&(value as i32).to_le_bytes()),
        DType::F16 => bytes.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::BF16 => bytes.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        _ => panic!("the oracle has no elements of type {dtype}"),
    }
}

/// Calls `each(number of the element, its byte offset)` in element order.
fn for_each_element(layout: &Layout, mut each: impl FnMut(usize, usize)) {
    let [n0, n1, n2, n3] = layout.shape().dims();
    let [s0, s1, s2, s3] = layout.strides();
    let mut number = 0;
    for i3 in 0..n3 {
        for i2 in 0..n2 {
            for i1 in 0..n1 {
                let row = i1 * s1 + i2 * s2 + i3 * s3;
                for i0 in 0..n0 {
                    each(number, row + i0 * s0);
                    number += 1;
                }
            }
        }
    }
}

impl Dense {
    /// Elements of `shape`, in order.
    pub fn new(shape: Shape, data: Vec<f64>) -> Self {
        Self { dims: shape.dims(), data }
    }

    /// Reads a tensor whose first element is at the start of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than the layout reaches.
    pub fn gather(layout: &Layout, bytes: &[u8]) -> Self {
        let size = layout.dtype().block_bytes();
        let mut data = vec![0.0; layout.shape().elements()];
        for_each_element(layout, |number, at| {
            data[number] = decode(layout.dtype(), &bytes[at..at + size]);
        });
        Self { dims: layout.shape().dims(), data }
    }

    /// Stores elements, in order, into a tensor whose first element is at the start of `bytes`,
    /// rounding to the nearest value of its type, ties to even.
    ///
    /// # Panics
    /// When `bytes` is shorter than the layout reaches or the counts differ.
    pub fn scatter(values: &[f64], layout: &Layout, bytes: &mut [u8]) {
        assert_eq!(values.len(), layout.shape().elements());
        let size = layout.dtype().block_bytes();
        for_each_element(layout, |number, at| {
            encode(layout.dtype(), values[number], &mut bytes[at..at + size]);
        });
    }

    /// The element at an index, each index taken modulo its dimension.
    pub fn wrapped(&self, index: [usize; 4]) -> f64 {
        let [n0, n1, n2, n3] = self.dims;
        let [i0, i1, i2, i3] = index;
        self.data[i0 % n0 + n0 * (i1 % n1 + n1 * (i2 % n2 + n2 * (i3 % n3)))]
    }

    /// The elements of row `(i1, i2, i3)`.
    pub fn row(&self, [i1, i2, i3]: [usize; 3]) -> &[f64] {
        let [n0, n1, n2, _] = self.dims;
        let start = n0 * (i1 + n1 * (i2 + n2 * i3));
        &self.data[start..start + n0]
    }

    /// Indices of all rows in order.
    pub fn rows(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [_, n1, n2, n3] = self.dims;
        (0..n3).flat_map(move |i3| (0..n2).flat_map(move |i2| (0..n1).map(move |i1| [i1, i2, i3])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_elements_are_read_and_stored_in_order() {
        let shape = Shape::new(&[2, 3]).unwrap();
        let layout = Layout::contiguous(DType::F16, shape).unwrap().permute([1, 0, 2, 3]).unwrap();
        let mut bytes = [0; 12];
        Dense::scatter(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &layout, &mut bytes);
        let stored: Vec<f32> =
            bytes.as_chunks::<2>().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect();
        assert_eq!(stored, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let dense = Dense::gather(&layout, &bytes);
        assert_eq!(dense.dims, [3, 2, 1, 1]);
        assert_eq!(dense.data, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(dense.wrapped([4, 3, 7, 9]), 5.0);
        assert_eq!(dense.row([1, 0, 0]), [4.0, 5.0, 6.0]);
    }

    #[test]
    fn storing_rounds_once_to_nearest_even() {
        let layout = Layout::contiguous(DType::F16, Shape::new(&[3]).unwrap()).unwrap();
        let mut bytes = [0; 6];
        // 2049 lies midway between the f16 values 2048 and 2050; 2051 between 2050 and 2052.
        Dense::scatter(&[2049.0, 2051.0, 1e6], &layout, &mut bytes);
        assert_eq!(Dense::gather(&layout, &bytes).data, [2048.0, 2052.0, f64::INFINITY]);
    }
}
