//! Element-wise conversion between stored bytes and `f32`.
//!
//! The plain specification of what a stored element means, one element after
//! the other. Devices have faster ways; this one is for loading, saving,
//! printing and for tests.

use half::{bf16, f16};

use crate::{DType, TensorError};

fn check(dtype: DType, elements: usize, bytes: usize) -> Result<(), TensorError> {
    let needed = dtype.bytes(elements).ok_or(TensorError::PartialBlock {
        dtype,
        row: elements,
        block: dtype.block_len(),
    })?;
    if needed == bytes {
        Ok(())
    } else {
        Err(TensorError::ByteCount { dtype, elements, needed, bytes })
    }
}

fn decode_each<const N: usize>(src: &[u8], dst: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (element, out) in src.as_chunks::<N>().0.iter().zip(dst) {
        *out = value(*element);
    }
}

fn encode_each<const N: usize>(src: &[f32], dst: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    for (value, out) in src.iter().zip(dst.as_chunks_mut::<N>().0) {
        *out = bytes(*value);
    }
}

/// Decodes little-endian elements of `dtype` into `f32`.
///
/// # Errors
/// A byte count that does not match, or a type without a conversion.
pub fn decode_to_f32(dtype: DType, src: &[u8], dst: &mut [f32]) -> Result<(), TensorError> {
    check(dtype, dst.len(), src.len())?;
    match dtype {
        DType::F32 => decode_each(src, dst, f32::from_le_bytes),
        DType::F16 => decode_each(src, dst, |bytes| f16::from_le_bytes(bytes).to_f32()),
        DType::BF16 => decode_each(src, dst, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        DType::F64 => decode_each(src, dst, |bytes| f64::from_le_bytes(bytes) as f32),
        DType::I8 => decode_each(src, dst, |bytes| f32::from(i8::from_le_bytes(bytes))),
        DType::I16 => decode_each(src, dst, |bytes| f32::from(i16::from_le_bytes(bytes))),
        DType::I32 => decode_each(src, dst, |bytes| i32::from_le_bytes(bytes) as f32),
        DType::I64 => decode_each(src, dst, |bytes| i64::from_le_bytes(bytes) as f32),
        quantized => return Err(TensorError::NoConversion(quantized)),
    }
    Ok(())
}

/// Encodes `f32` values as little-endian elements of `dtype`, rounding to the
/// nearest value, ties to even; integers saturate and NaN becomes 0.
///
/// # Errors
/// A byte count that does not match, or a type without a conversion.
pub fn encode_from_f32(dtype: DType, src: &[f32], dst: &mut [u8]) -> Result<(), TensorError> {
    check(dtype, src.len(), dst.len())?;
    match dtype {
        DType::F32 => encode_each(src, dst, f32::to_le_bytes),
        DType::F16 => encode_each(src, dst, |value| f16::from_f32(value).to_le_bytes()),
        DType::BF16 => encode_each(src, dst, |value| bf16::from_f32(value).to_le_bytes()),
        DType::F64 => encode_each(src, dst, |value| f64::from(value).to_le_bytes()),
        DType::I8 => encode_each(src, dst, |v| (v.round_ties_even() as i8).to_le_bytes()),
        DType::I16 => encode_each(src, dst, |v| (v.round_ties_even() as i16).to_le_bytes()),
        DType::I32 => encode_each(src, dst, |v| (v.round_ties_even() as i32).to_le_bytes()),
        DType::I64 => encode_each(src, dst, |v| (v.round_ties_even() as i64).to_le_bytes()),
        quantized => return Err(TensorError::NoConversion(quantized)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bit_patterns() {
        let mut out = [0.0; 2];
        // 1.5 is 0x3e00 and -2 is 0xc000 in IEEE 754 binary16.
        decode_to_f32(DType::F16, &[0x00, 0x3e, 0x00, 0xc0], &mut out).unwrap();
        assert_eq!(out, [1.5, -2.0]);
        decode_to_f32(DType::BF16, &[0xc0, 0x3f, 0x00, 0xc0], &mut out).unwrap();
        assert_eq!(out, [1.5, -2.0]);
        let mut bytes = [0; 4];
        encode_from_f32(DType::I16, &[2.5, 1e9], &mut bytes).unwrap();
        assert_eq!(bytes, [2, 0, 0xff, 0x7f]);
    }

    #[test]
    fn wrong_sizes_and_types_are_errors() {
        let mut out = [0.0; 32];
        assert!(matches!(
            decode_to_f32(DType::F32, &[0; 3], &mut out[..1]),
            Err(TensorError::ByteCount { needed: 4, bytes: 3, .. })
        ));
        assert!(matches!(
            decode_to_f32(DType::Q8_0, &[0; 34], &mut out),
            Err(TensorError::NoConversion(DType::Q8_0))
        ));
    }
}
