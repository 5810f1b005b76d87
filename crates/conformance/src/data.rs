//! Values of leaves: how they are made, and weights that lie in memory.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::{SharedBytes, WeightSource};

use crate::oracle::Dense;
use crate::rng::Rng;

/// How the elements of a leaf are chosen.
#[derive(Debug, Clone)]
pub enum Fill {
    /// Between −1 and 1.
    Unit,
    /// Between two values.
    Range(f32, f32),
    /// Mostly ordinary, with −0, subnormals and values up to 1e18.
    Awkward,
    /// As [`Fill::Awkward`], with NaN and both infinities.
    Special,
    /// Subnormal in f16: the exponent is the smallest there is.
    Subnormal,
    /// One of a list, at random.
    Choice(&'static [f32]),
    /// The list over and over.
    Cycle(Vec<f32>),
}

impl Fill {
    /// `count` elements.
    pub fn values(&self, rng: &mut Rng, count: usize) -> Vec<f32> {
        const AWKWARD: &[f32] = &[-0.0, 0.0, 1e-40, -3e-42, 1e18, -1e18, 6e-8, -5e-7, 1.0, -1.0];
        const SPECIAL: &[f32] = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        (0..count)
            .map(|index| match self {
                Fill::Unit => rng.uniform(-1.0, 1.0),
                Fill::Range(low, high) => rng.uniform(*low, *high),
                Fill::Awkward if rng.chance(40) => rng.pick(AWKWARD),
                Fill::Special if rng.chance(20) => rng.pick(SPECIAL),
                Fill::Special if rng.chance(20) => rng.pick(AWKWARD),
                Fill::Awkward | Fill::Special => rng.uniform(-4.0, 4.0),
                Fill::Subnormal => rng.uniform(-6e-5, 6e-5),
                Fill::Choice(list) => rng.pick(list),
                Fill::Cycle(list) => list[index % list.len()],
            })
            .collect()
    }
}

/// Contiguous bytes of `dtype` for the values, rounded.
pub fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    let values: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
    let shape = Shape::new(&[values.len()]).unwrap_or_else(|error| panic!("{error}"));
    let layout = Layout::contiguous(dtype, shape).unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = vec![0; layout.data_bytes()];
    Dense::scatter(&values, &layout, &mut bytes);
    bytes
}

/// Contiguous bytes of ids.
pub fn encode_ids(ids: &[i32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// Weights in memory, by name.
#[derive(Debug, Clone, Default)]
pub struct MemoryWeights {
    tensors: HashMap<String, (Layout, Arc<Vec<u8>>)>,
}

impl MemoryWeights {
    /// Adds a weight, or replaces it.
    pub fn insert(&mut self, name: impl Into<String>, layout: Layout, bytes: Vec<u8>) {
        self.tensors.insert(name.into(), (layout, Arc::new(bytes)));
    }

    /// The bytes of a weight.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.tensors.get(name).map(|(_, bytes)| bytes.as_slice())
    }
}

impl WeightSource for MemoryWeights {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.tensors.get(name).map(|(layout, _)| *layout)
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let (_, bytes) = self.tensors.get(name).ok_or_else(|| format!("no weight {name:?}"))?;
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::<Vec<u8>>::clone(bytes);
        SharedBytes::new(owner, 0..bytes.len()).map_err(|error| error.to_string())
    }
}
