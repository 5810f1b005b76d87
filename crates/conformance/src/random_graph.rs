//! Random graphs over all ops, each named by its seed.
//!
//! With views of views, writes into state and into results, tensors as both
//! sources, inputs and weights as outputs, several outputs, dead nodes, and
//! the chains that devices fuse. Shapes are small and often equal, so that
//! memory is reused in place.

use tensoryard_graph::ops::{
    Attention, Binary, BinaryKind, Conv1d, Copy, CopyInto, GetRows, MulMat, SetRows, SoftMax,
    UnaryKind,
};
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, Op, Tensor};

use crate::data::{Fill, MemoryWeights, encode, encode_ids};
use crate::rng::Rng;

/// A random graph with values for its leaves.
#[derive(Debug)]
pub struct RandomGraph {
    /// The graph.
    pub graph: Graph,
    /// Bytes of the inputs by name.
    pub inputs: Vec<(String, Vec<u8>)>,
    /// The weights.
    pub weights: MemoryWeights,
    /// Bytes of the states before the first run, by name.
    pub states: Vec<(String, Vec<u8>)>,
}

impl RandomGraph {
    /// Other values for the f32 inputs.
    pub fn change_inputs(&mut self, seed: u64) {
        let mut rng = Rng::new(seed);
        for (name, bytes) in &mut self.inputs {
            let leaf = self.graph.leaf(name).map(|id| self.graph.layout(id));
            if let Some(layout) = leaf
                && layout.dtype() == DType::F32
            {
                let values = Fill::Unit.values(&mut rng, layout.shape().elements());
                *bytes = encode(DType::F32, &values);
            }
        }
    }
}

/// The graph of a seed, of about `size` nodes.
///
/// # Panics
/// When the generator makes a graph that the builder refuses, which is a fault of the generator.
pub fn random_graph(seed: u64, size: usize) -> RandomGraph {
    let builder = GraphBuilder::new(format!("random {seed}"));
    let mut maker = RandomMaker {
        g: &builder,
        rng: Rng::new(seed),
        pool: Vec::new(),
        inputs: Vec::new(),
        weights: MemoryWeights::default(),
        states: Vec::new(),
        leaves: 0,
        roots: 0,
    };
    for _ in 0..3 {
        maker.add_leaf();
    }
    for _ in 0..size {
        maker.grow();
    }
    maker.mark_outputs();
    let RandomMaker { inputs, weights, states, .. } = maker;
    let graph = builder.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    RandomGraph { graph, inputs, weights, states }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Weight,
    State,
    Input,
    Computed,
}

/// A tensor that may still be read.
#[derive(Clone, Copy)]
struct Entry<'g> {
    tensor: Tensor<'g>,
    /// Number of the root, counted by the generator.
    root: usize,
    kind: Kind,
}

struct RandomMaker<'g> {
    g: &'g GraphBuilder,
    rng: Rng,
    pool: Vec<Entry<'g>>,
    inputs: Vec<(String, Vec<u8>)>,
    weights: MemoryWeights,
    states: Vec<(String, Vec<u8>)>,
    leaves: usize,
    roots: usize,
}

const WIDTHS: &[usize] = &[4, 4, 4, 6, 8, 1];
const ROWS: &[usize] = &[1, 2, 3, 3, 4, 5];

impl<'g> RandomMaker<'g> {
    fn push(&mut self, tensor: Tensor<'g>, root: usize, kind: Kind) -> Tensor<'g> {
        self.pool.push(Entry { tensor, root, kind });
        tensor
    }

    fn push_new(&mut self, tensor: Tensor<'g>, kind: Kind) -> Tensor<'g> {
        self.roots += 1;
        self.push(tensor, self.roots, kind)
    }

    fn leaf(&mut self, kind: Kind, dtype: DType, dims: &[usize]) -> Tensor<'g> {
        self.leaves += 1;
        let name = format!("leaf{}", self.leaves);
        let values = Fill::Unit.values(&mut self.rng, dims.iter().product());
        let bytes = encode(dtype, &values);
        let tensor = match kind {
            Kind::Weight => {
                let tensor = self.g.weight(name.clone(), dtype, dims);
                self.weights.insert(name, tensor.layout(), bytes);
                tensor
            }
            Kind::State => {
                self.states.push((name.clone(), bytes));
                self.g.state(name, dtype, dims)
            }
            Kind::Input | Kind::Computed => {
                self.inputs.push((name.clone(), bytes));
                self.g.input(name, dtype, dims)
            }
        };
        let kind = if kind == Kind::Computed { Kind::Input } else { kind };
        self.push_new(tensor, kind)
    }

    /// Ids below `rows`, which are not ready to be computed with.
    fn ids(&mut self, dims: &[usize], rows: usize) -> Tensor<'g> {
        self.leaves += 1;
        let name = format!("ids{}", self.leaves);
        let count = dims.iter().product();
        let ids: Vec<i32> = (0..count).map(|_| self.rng.below(rows) as i32).collect();
        self.inputs.push((name.clone(), encode_ids(&ids)));
        self.g.input(name, DType::I32, dims)
    }

    fn dims(&mut self) -> Vec<usize> {
        let mut dims = vec![self.rng.pick(WIDTHS), self.rng.pick(ROWS)];
        if self.rng.chance(40) {
            dims.push(self.rng.pick(&[1, 2, 3]));
        }
        dims
    }

    fn add_leaf(&mut self) -> Tensor<'g> {
        let kind = self.rng.pick(&[Kind::Input, Kind::Input, Kind::Weight, Kind::State]);
        let half = matches!(kind, Kind::Weight | Kind::State) && self.rng.chance(30);
        let dims = self.dims();
        self.leaf(kind, if half { DType::F16 } else { DType::F32 }, &dims)
    }

    /// A tensor of the pool for which `fits` holds, newer ones preferred.
    fn find(&mut self, fits: impl Fn(&Layout) -> bool) -> Option<Entry<'g>> {
        let fitting: Vec<Entry<'g>> =
            self.pool.iter().copied().filter(|entry| fits(&entry.tensor.layout())).collect();
        if fitting.is_empty() {
            return None;
        }
        let newest = fitting.len().saturating_sub(3);
        let at = if self.rng.chance(60) {
            newest + self.rng.below(fitting.len() - newest)
        } else {
            self.rng.below(fitting.len())
        };
        Some(fitting[at])
    }

    fn find_f32(&mut self) -> Tensor<'g> {
        match self.find(|layout| layout.dtype() == DType::F32 && !layout.shape().is_empty()) {
            Some(entry) => entry.tensor,
            None => {
                let dims = self.dims();
                self.leaf(Kind::Input, DType::F32, &dims)
            }
        }
    }

    /// An f32 tensor whose rows have no gaps.
    fn find_rows(&mut self) -> Tensor<'g> {
        let x = self.find_f32();
        if x.layout().has_contiguous_rows() {
            return x;
        }
        let x = x.cont();
        self.push_new(x, Kind::Computed)
    }

    /// An f32 tensor that `op` takes beside `a`, as operand number 1.
    fn find_beside(&mut self, op: &Op, a: Tensor<'g>) -> Option<Tensor<'g>> {
        if self.rng.chance(15) && op.infer(&[Some(a.layout()), Some(a.layout())]).is_ok() {
            return Some(a);
        }
        let a = a.layout();
        self.find(|b| op.infer(&[Some(a), Some(*b)]).is_ok()).map(|entry| entry.tensor)
    }

    fn grow(&mut self) {
        match self.rng.below(20) {
            0 => _ = self.add_leaf(),
            1..4 => self.view(),
            4..6 => self.element_wise(),
            6..9 => self.arithmetic(),
            9 => self.copy(),
            10 => self.copy_into(),
            11 => self.set_rows(),
            12 => self.get_rows(),
            13 => self.norm(),
            14..17 => self.product(),
            17 => self.soft_max(),
            18 => self.attention(),
            _ => self.conv(),
        }
    }

    fn view(&mut self) {
        let Some(entry) = self.find(|layout| layout.dtype() != DType::I32) else { return };
        let x = entry.tensor;
        let layout = x.layout();
        let [d0, d1, d2, d3] = layout.shape().dims();
        let tensor = match self.rng.below(5) {
            0 if layout.is_contiguous() => x.reshape([d0 * d1, d2, d3]),
            1 => x.transpose(),
            2 => x.permute([0, 2, 1, 3]),
            3 => {
                let dim = self.rng.below(3);
                let size = layout.shape()[dim];
                let start = self.rng.below(size);
                let len = 1 + self.rng.below(size - start);
                x.slice(dim, start, len)
            }
            4 if d1 > 2 => {
                // Windows of two rows that overlap by one.
                let [s0, s1, s2, s3] = layout.strides();
                // Strides of single elements do not matter to a layout, but to this view.
                if Layout::contiguous(layout.dtype(), layout.shape()) != Ok(layout) {
                    return;
                }
                x.view([2 * d0, d1 - 1, d2, d3], [s0, s1, s2, s3], 0)
            }
            _ => x.slice(0, 0, d0),
        };
        self.push(tensor, entry.root, entry.kind);
    }

    fn element_wise(&mut self) {
        let x = self.find_f32();
        let y = if self.rng.chance(25) {
            x.scale(self.rng.pick(&[0.5, -1.0, 2.0]), self.rng.pick(&[0.0, 0.25]))
        } else {
            let kind = self.rng.pick(UnaryKind::ALL);
            x.unary(kind)
        };
        self.push_new(y, Kind::Computed);
    }

    fn arithmetic(&mut self) {
        let kind = self.rng.pick(BinaryKind::ALL);
        let op = Op::from(Binary { kind });
        let a = self.find_f32();
        let b = match self.find_beside(&op, a) {
            Some(b) => b,
            None => {
                let n = a.dim(0);
                self.leaf(Kind::Weight, DType::F32, &[n])
            }
        };
        self.push_new(a.binary(kind, b), Kind::Computed);
    }

    fn copy(&mut self) {
        let Some(entry) = self.find(|layout| layout.dtype() != DType::I32) else { return };
        let dtype = self.rng.pick(&[DType::F32, DType::F16]);
        debug_assert!(Op::from(Copy { dtype }).infer(&[Some(entry.tensor.layout())]).is_ok());
        self.push_new(entry.tensor.cast(dtype), Kind::Computed);
    }

    /// Takes every older handle of the written memory out and adds the new version.
    fn wrote(&mut self, base: Entry<'g>, tensor: Tensor<'g>) {
        self.pool.retain(|entry| entry.root != base.root);
        self.push(tensor, base.root, base.kind);
    }

    fn find_base(&mut self, fits: impl Fn(&Layout) -> bool) -> Option<Entry<'g>> {
        let writable: Vec<Entry<'g>> = self
            .pool
            .iter()
            .copied()
            .filter(|entry| matches!(entry.kind, Kind::State | Kind::Computed))
            .filter(|entry| {
                let layout = entry.tensor.layout();
                !layout.overlaps_itself() && fits(&layout)
            })
            .collect();
        let states: Vec<Entry<'g>> =
            writable.iter().copied().filter(|entry| entry.kind == Kind::State).collect();
        let from = if self.rng.chance(50) && !states.is_empty() { states } else { writable };
        (!from.is_empty()).then(|| self.rng.pick(&from))
    }

    fn copy_into(&mut self) {
        let Some(base) = self.find_base(|layout| layout.dtype() != DType::I32) else { return };
        let to = base.tensor.layout();
        let fits = |x: &Layout| Op::from(CopyInto).infer(&[Some(*x), Some(to)]).is_ok();
        let x = match self.find(fits) {
            Some(entry) => entry.tensor,
            None => self.leaf(Kind::Input, DType::F32, &to.shape().dims()),
        };
        let written = x.copy_into(base.tensor);
        self.wrote(base, written);
    }

    fn set_rows(&mut self) {
        let fits = |layout: &Layout| layout.dtype() != DType::I32 && layout.has_contiguous_rows();
        let Some(base) = self.find_base(fits) else { return };
        let to = base.tensor.layout();
        let [n, rows, b2, b3] = to.shape().dims();
        let op = Op::from(SetRows);
        let ids_of = |count: usize| Layout::contiguous(DType::I32, shape(&[count])).ok();
        let fits = |x: &Layout| op.infer(&[Some(to), Some(*x), ids_of(x.shape()[1])]).is_ok();
        let x = match self.find(fits) {
            Some(entry) => entry.tensor,
            None => {
                let count = 1 + self.rng.below(rows);
                self.leaf(Kind::Input, DType::F32, &[n, count, b2, b3])
            }
        };
        let ids = self.ids(&[x.dim(1)], rows);
        let written = base.tensor.set_rows(x, ids);
        self.wrote(base, written);
    }

    fn get_rows(&mut self) {
        let fits = |table: &Layout| {
            let [_, _, b2, b3] = table.shape().dims();
            let ids = Layout::contiguous(DType::I32, shape(&[1, b2, b3])).ok();
            Op::from(GetRows).infer(&[Some(*table), ids]).is_ok() && !table.shape().is_empty()
        };
        let Some(table) = self.find(fits) else { return };
        let [_, rows, b2, b3] = table.tensor.shape().dims();
        let count = 1 + self.rng.below(4);
        let ids = self.ids(&[count, b2, b3], rows);
        self.push_new(table.tensor.get_rows(ids), Kind::Computed);
    }

    fn norm(&mut self) {
        let x = self.find_rows();
        let n = x.dim(0);
        if self.rng.chance(30) {
            self.push_new(x.rms_norm(1e-6), Kind::Computed);
            return;
        }
        let mut y = x.norm(1e-5);
        if self.rng.chance(70) {
            let weight = self.row(n);
            let scaled = y.mul(weight);
            if self.rng.chance(15) {
                self.push_new(y, Kind::Computed);
            }
            let bias = self.row(n);
            y = scaled.add(bias);
        }
        self.push_new(y, Kind::Computed);
    }

    /// One row of `n` values: a known one, or a new weight.
    fn row(&mut self, n: usize) -> Tensor<'g> {
        let wanted = shape(&[n]);
        let row = self.find(|layout| layout.dtype() == DType::F32 && layout.shape() == wanted);
        match row {
            Some(entry) if self.rng.chance(50) => entry.tensor,
            Some(_) | None => self.leaf(Kind::Weight, DType::F32, &[n]),
        }
    }

    /// Perhaps a bias, a function and a residual behind a product.
    fn epilogue(&mut self, mut y: Tensor<'g>) {
        if self.rng.chance(50) {
            let bias = self.row(y.dim(0));
            y = y.add(bias);
        }
        if self.rng.chance(40) {
            y = y.unary(self.rng.pick(&[UnaryKind::GeluErf, UnaryKind::Relu, UnaryKind::Tanh]));
        }
        let inner = y;
        if self.rng.chance(50) {
            let layout = y.layout();
            if let Some(other) =
                self.find(|b| b.dtype() == DType::F32 && b.shape() == layout.shape())
            {
                let other = other.tensor;
                y = if self.rng.chance(50) { y.add(other) } else { other.add(y) };
            }
        }
        if y.id() != inner.id() && self.rng.chance(15) {
            self.push_new(inner, Kind::Computed);
        }
        self.push_new(y, Kind::Computed);
    }

    fn product(&mut self) {
        let x = self.find_rows();
        let layout = x.layout();
        let fits = |w: &Layout| Op::from(MulMat).infer(&[Some(*w), Some(layout)]).is_ok();
        let known = if self.rng.chance(40) { self.find(fits) } else { None };
        let weight = match known {
            Some(entry) => entry.tensor,
            None => {
                let m = self.rng.pick(&[x.dim(0), 4, 3, 6]);
                let dtype = self.rng.pick(&[DType::F32, DType::F16]);
                self.leaf(Kind::Weight, dtype, &[x.dim(0), m])
            }
        };
        self.epilogue(weight.mul_mat(x));
    }

    fn conv(&mut self) {
        let fits = |x: &Layout| {
            let shape = x.shape();
            x.dtype() == DType::F32 && x.is_contiguous() && shape.rank() <= 3 && !shape.is_empty()
        };
        let Some(entry) = self.find(fits) else { return };
        let x = entry.tensor;
        let dims = [x.dim(0), 1 + self.rng.below(3), 3];
        let dtype = self.rng.pick(&[DType::F32, DType::F16]);
        let weight = self.leaf(Kind::Weight, dtype, &dims);
        let op = Conv1d { stride: 1 + self.rng.below(2) as u32, padding: 1 };
        if Op::from(op).infer(&[Some(weight.layout()), Some(x.layout())]).is_ok() {
            self.epilogue(weight.conv_1d(x, op.stride, op.padding));
        }
    }

    fn soft_max(&mut self) {
        let x = self.find_rows();
        let op = Op::from(SoftMax { scale: 0.5 });
        let mask = if self.rng.chance(50) { self.find_beside(&op, x) } else { None };
        self.push_new(x.soft_max(0.5, mask), Kind::Computed);
    }

    fn attention(&mut self) {
        let q = self.find_rows();
        let op = Op::from(Attention { scale: 0.5 });
        let layout = q.layout();
        let takes = |k: &Layout, v: &Layout| op.infer(&[Some(layout), Some(*k), Some(*v), None]);
        let k = match self.find(|k| takes(k, k).is_ok()) {
            Some(entry) => entry.tensor,
            None => {
                let [d, _, h, b] = layout.shape().dims();
                let dtype = self.rng.pick(&[DType::F32, DType::F16]);
                self.leaf(Kind::State, dtype, &[d, 3, h, b])
            }
        };
        let k_layout = k.layout();
        let v = self.find(|v| takes(&k_layout, v).is_ok()).map_or(k, |entry| entry.tensor);
        let dims = shape(&[k.dim(1), q.dim(1)]);
        let mask =
            self.find(|m| m.dtype() != DType::I32 && m.shape() == dims && m.has_contiguous_rows());
        let mask = mask.map(|entry| entry.tensor);
        self.push_new(q.attention(k, v, mask, 0.5), Kind::Computed);
    }

    /// The newest f32 tensors and some others; what no output needs is dead.
    fn mark_outputs(&mut self) {
        let entries: Vec<Entry<'g>> = self
            .pool
            .iter()
            .copied()
            .filter(|entry| entry.tensor.layout().dtype() == DType::F32)
            .collect();
        for (number, entry) in entries.iter().rev().enumerate() {
            if number == 0 || self.rng.chance(20) {
                entry.tensor.output(format!("out{number}"));
            }
        }
    }
}

fn shape(dims: &[usize]) -> tensoryard_graph::Shape {
    tensoryard_graph::Shape::new(dims).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_names_one_graph_and_all_ops_occur() {
        let mut kinds = HashSet::new();
        for seed in 0..300 {
            let a = random_graph(seed, 15);
            assert!(a.graph.same_as(&random_graph(seed, 15).graph));
            kinds.extend(
                a.graph.live_nodes().filter_map(|id| a.graph.tensor(id).op()).map(Op::kind),
            );
        }
        // Views compute nothing and are no nodes.
        assert_eq!(kinds.len(), tensoryard_graph::OpKind::ALL.len() - 1);
    }
}
