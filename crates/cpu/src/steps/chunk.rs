//! How much one chunk of work may be.
//!
//! The abort signal is looked at before each chunk, so a chunk is done within
//! a few milliseconds, also on slow processors of its level; and it is large
//! enough that what is done once a chunk does not count.

use crate::isa::{Isa, Level};

/// Elements of a chunk of an element-wise step.
pub(super) const CHUNK_ELEMENTS: usize = 64 * 1024;

/// Bytes of weights that a chunk of a product streams when there are few activation rows.
const CHUNK_BYTES: f64 = 8e6;

/// Activation rows that the matrix kernels keep in the second cache, roughly.
const BLOCK_BYTES: usize = 512 * 1024;

/// Operations of a chunk of a matrix product.
fn mat_mul_flops(isa: Isa) -> f64 {
    match isa.level() {
        // It widens every weight for every row.
        Level::Scalar => 1e6,
        Level::Avx2 | Level::Neon => 50e6,
        Level::Avx512 => 100e6,
    }
}

/// Into how many chunks a product of `m` weight rows and `n` activation rows of `k` elements is
/// cut at least.
pub(super) fn mat_mul_chunks(isa: Isa, [m, n, k]: [usize; 3], element_bytes: usize) -> usize {
    let weights = m as f64 * k as f64;
    let by_flops = 2.0 * weights * n as f64 / mat_mul_flops(isa);
    let by_bytes = weights * element_bytes as f64 / CHUNK_BYTES;
    by_flops.max(by_bytes).ceil() as usize
}

/// Activation rows of `k` elements that should stay together.
pub(super) fn block_rows(k: usize) -> usize {
    (BLOCK_BYTES / 4 / k.max(1)).max(48)
}

/// Queries of a chunk of attention, with `n_kv` keys and values of `dims` elements together.
pub(super) fn attention_queries(isa: Isa, n_kv: usize, dims: usize) -> usize {
    // Every chunk packs keys and values anew, so it has more to do than one of a product.
    let flops = match isa.level() {
        Level::Scalar => 2e6,
        Level::Avx2 | Level::Neon => 100e6,
        Level::Avx512 => 200e6,
    };
    let of_query = 2.0 * n_kv.max(1) as f64 * dims.max(1) as f64;
    (flops / of_query).max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_are_cut_by_operations_and_long_ones_by_bytes() {
        let scalar = Isa::scalar();
        assert_eq!(mat_mul_chunks(scalar, [1000, 50, 100], 4), 10);
        assert_eq!(mat_mul_chunks(scalar, [1000, 0, 100], 4), 1);
        // 40 MB of weights for a single row.
        let chunks = |isa| mat_mul_chunks(isa, [51_864, 1, 384], 2);
        assert!(Isa::available().into_iter().all(|isa| chunks(isa) >= 5));
        assert_eq!(mat_mul_chunks(scalar, [0, 7, 8], 4), 0);
    }

    #[test]
    fn attention_has_at_least_a_query() {
        assert_eq!(attention_queries(Isa::scalar(), 1000, 100), 10);
        assert_eq!(attention_queries(Isa::scalar(), usize::MAX, 128), 1);
        assert!(attention_queries(Isa::scalar(), 0, 0) > 0);
    }
}
