//! Element types and the geometry of their blocks.
//!
//! The numbers and block sizes are those of the GGUF format, so that a file's
//! type number names a [`DType`] directly. Knowing a type here means that its
//! tensors can be sized, listed and moved; which ops compute with it is each
//! device's answer.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $block_len:literal, $block_bytes:literal;)*) => {
        /// How the elements of a tensor are stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[doc(alias = "ggml_type")]
        #[allow(
            missing_docs,
            non_camel_case_types,
            reason = "the variants are the names that the field uses"
        )]
        pub enum DType {
            $($variant,)*
        }

        impl DType {
            /// Every type, in the order of its number.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The number of the type in GGUF files.
            pub fn gguf_number(self) -> u32 {
                match self {
                    $(DType::$variant => $number,)*
                }
            }

            /// The type of a number in a GGUF file, if there is one.
            pub fn from_gguf_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(DType::$variant),)*
                    _ => None,
                }
            }

            /// The field's name of the type, such as `f16` or `q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(DType::$variant => $name,)*
                }
            }

            /// Elements in one block; 1 for plain types.
            pub const fn block_len(self) -> usize {
                match self {
                    $(DType::$variant => $block_len,)*
                }
            }

            /// Bytes of one block; the size of an element for plain types.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(DType::$variant => $block_bytes,)*
                }
            }
        }
    };
}

dtypes! {
    F32 = 0, "f32", 1, 4;
    F16 = 1, "f16", 1, 2;
    Q4_0 = 2, "q4_0", 32, 18;
    Q4_1 = 3, "q4_1", 32, 20;
    Q5_0 = 6, "q5_0", 32, 22;
    Q5_1 = 7, "q5_1", 32, 24;
    Q8_0 = 8, "q8_0", 32, 34;
    Q8_1 = 9, "q8_1", 32, 36;
    Q2K = 10, "q2_K", 256, 84;
    Q3K = 11, "q3_K", 256, 110;
    Q4K = 12, "q4_K", 256, 144;
    Q5K = 13, "q5_K", 256, 176;
    Q6K = 14, "q6_K", 256, 210;
    Q8K = 15, "q8_K", 256, 292;
    Iq2Xxs = 16, "iq2_xxs", 256, 66;
    Iq2Xs = 17, "iq2_xs", 256, 74;
    Iq3Xxs = 18, "iq3_xxs", 256, 98;
    Iq1S = 19, "iq1_s", 256, 50;
    Iq4Nl = 20, "iq4_nl", 32, 18;
    Iq3S = 21, "iq3_s", 256, 110;
    Iq2S = 22, "iq2_s", 256, 82;
    Iq4Xs = 23, "iq4_xs", 256, 136;
    I8 = 24, "i8", 1, 1;
    I16 = 25, "i16", 1, 2;
    I32 = 26, "i32", 1, 4;
    I64 = 27, "i64", 1, 8;
    F64 = 28, "f64", 1, 8;
    Iq1M = 29, "iq1_m", 256, 56;
    BF16 = 30, "bf16", 1, 2;
    Tq1_0 = 34, "tq1_0", 256, 54;
    Tq2_0 = 35, "tq2_0", 256, 66;
    Mxfp4 = 39, "mxfp4", 32, 17;
    Nvfp4 = 40, "nvfp4", 64, 36;
    Q1_0 = 41, "q1_0", 128, 18;
    Q2_0 = 42, "q2_0", 64, 18;
}

impl DType {
    /// Whether elements come in blocks of more than one.
    pub fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Alignment in bytes that a pointer to elements of this type needs on the host.
    pub const fn alignment(self) -> usize {
        // Blocks begin with an f16 scale at most.
        if self.block_len() > 1 { 2 } else { self.block_bytes() }
    }

    /// Bytes of `elements` neighbouring elements, `None` when they are not
    /// whole blocks or the size overflows.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_removed_ones_are_unknown() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_gguf_number(dtype.gguf_number()), Some(dtype));
        }
        for removed in [4, 5, 31, 32, 33, 36, 37, 38, 43] {
            assert_eq!(DType::from_gguf_number(removed), None);
        }
    }

    #[test]
    fn bytes_need_whole_blocks() {
        assert_eq!(DType::F32.bytes(3), Some(12));
        assert_eq!(DType::Q4_0.bytes(64), Some(36));
        assert_eq!(DType::Q4_0.bytes(33), None);
        assert_eq!(DType::F64.bytes(usize::MAX), None);
    }
}
