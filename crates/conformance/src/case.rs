//! A conformance case: a small graph with the values of its leaves.
//!
//! Cases are listed by name first and built when they are run. The values
//! follow from the name alone.

use std::cell::RefCell;
use std::sync::Arc;

use tensoryard_graph::{DType, Graph, GraphBuilder, Tensor};

use crate::compare::Accuracy;
use crate::data::{Fill, MemoryWeights, encode, encode_ids};
use crate::rng::Rng;

/// What kind of leaf holds the values of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// A graph input.
    Input,
    /// A weight, kept where the device wants it.
    Weight,
    /// A state tensor.
    State,
}

impl Leaf {
    /// `input`, `weight` or `state`.
    pub fn name(self) -> &'static str {
        match self {
            Leaf::Input => "input",
            Leaf::Weight => "weight",
            Leaf::State => "state",
        }
    }
}

/// How a run of the case ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With the oracle's values in all outputs and all states.
    Values,
    /// With an error about a value, and all states as they were.
    ValueError,
}

type Build = Box<dyn for<'g> Fn(&Maker<'g>)>;

/// A case that is not built yet.
pub struct CaseSpec {
    /// Its stable name, such as `mul_mat/f16 k=33 m=65 n=7 w=weight`.
    pub name: String,
    /// How close the values must be.
    pub accuracy: Accuracy,
    /// Whether a step must take the memory of a source over.
    pub in_place: bool,
    /// How the run ends.
    pub outcome: Outcome,
    build: Build,
}

impl CaseSpec {
    /// Values must be equal to the oracle's.
    pub fn exact(&mut self) -> &mut Self {
        self.accuracy = Accuracy::Exact;
        self
    }

    /// A step must take the memory of one of its sources over.
    pub fn in_place(&mut self) -> &mut Self {
        self.in_place = true;
        self
    }

    /// The run must fail with an error about a value.
    pub fn fails(&mut self) -> &mut Self {
        self.outcome = Outcome::ValueError;
        self
    }

    /// Builds the graph and its values.
    ///
    /// # Panics
    /// When the case itself is wrong.
    pub fn build(&self) -> Case {
        let builder = GraphBuilder::new(self.name.clone());
        let maker = Maker {
            graph: &builder,
            rng: RefCell::new(Rng::of_text(&self.name)),
            leaves: RefCell::default(),
        };
        (self.build)(&maker);
        let Leaves { inputs, weights, states } = maker.leaves.into_inner();
        let graph = builder.finish().unwrap_or_else(|error| panic!("{error}"));
        Case { graph: Arc::new(graph), inputs, weights, states }
    }
}

/// A case that was built.
#[derive(Debug, Clone)]
pub struct Case {
    /// The graph.
    pub graph: Arc<Graph>,
    /// Bytes of the inputs by name.
    pub inputs: Vec<(String, Vec<u8>)>,
    /// The weights.
    pub weights: MemoryWeights,
    /// Bytes of the states before the run, by name.
    pub states: Vec<(String, Vec<u8>)>,
}

impl Case {
    /// The bytes of a leaf before the run.
    pub fn leaf(&self, name: &str) -> Option<Vec<u8>> {
        let named = |list: &[(String, Vec<u8>)]| {
            list.iter().find(|(leaf, _)| leaf == name).map(|(_, bytes)| bytes.clone())
        };
        named(&self.inputs)
            .or_else(|| named(&self.states))
            .or_else(|| self.weights.bytes(name).map(<[u8]>::to_vec))
    }
}

#[derive(Debug, Default)]
struct Leaves {
    inputs: Vec<(String, Vec<u8>)>,
    weights: MemoryWeights,
    states: Vec<(String, Vec<u8>)>,
}

/// Makes leaves with values while a case is built.
#[derive(Debug)]
pub struct Maker<'g> {
    graph: &'g GraphBuilder,
    rng: RefCell<Rng>,
    leaves: RefCell<Leaves>,
}

impl<'g> Maker<'g> {
    /// A leaf of any kind.
    #[track_caller]
    pub fn leaf(
        &self,
        leaf: Leaf,
        name: &str,
        dtype: DType,
        dims: &[usize],
        fill: &Fill,
    ) -> Tensor<'g> {
        let values = fill.values(&mut self.rng.borrow_mut(), dims.iter().product());
        let bytes = encode(dtype, &values);
        let mut leaves = self.leaves.borrow_mut();
        match leaf {
            Leaf::Input => {
                leaves.inputs.push((name.to_owned(), bytes));
                self.graph.input(name, dtype, dims)
            }
            Leaf::Weight => {
                let tensor = self.graph.weight(name, dtype, dims);
                leaves.weights.insert(name, tensor.layout(), bytes);
                tensor
            }
            Leaf::State => {
                leaves.states.push((name.to_owned(), bytes));
                self.graph.state(name, dtype, dims)
            }
        }
    }

    /// An f32 input.
    #[track_caller]
    pub fn input(&self, name: &str, dims: &[usize], fill: &Fill) -> Tensor<'g> {
        self.leaf(Leaf::Input, name, DType::F32, dims, fill)
    }

    /// An i32 input.
    #[track_caller]
    pub fn ids(&self, name: &str, dims: &[usize], ids: &[i32]) -> Tensor<'g> {
        self.leaves.borrow_mut().inputs.push((name.to_owned(), encode_ids(ids)));
        self.graph.input(name, DType::I32, dims)
    }

    /// An operand of `dims` elements in the given form.
    #[track_caller]
    pub fn shaped(
        &self,
        leaf: Leaf,
        name: &str,
        dtype: DType,
        dims: [usize; 4],
        form: Form,
        fill: &Fill,
    ) -> Tensor<'g> {
        let [d0, d1, d2, d3] = dims;
        let make = |dims: &[usize]| self.leaf(leaf, name, dtype, dims, fill);
        let size = dtype.block_bytes();
        match form {
            Form::Plain => make(&dims),
            Form::RowGaps => make(&[d0 + 3, d1, d2, d3]).slice(0, 1, d0),
            Form::RowsPermuted => make(&[d0, d2, d1, d3]).permute([0, 2, 1, 3]),
            Form::RowsShared => make(&[d0]).view(dims, [size, 0, 0, 0], 0),
            Form::Windows => {
                // Each row starts one element behind the one before it.
                let rows = d1 * d2 * d3;
                let strides = [size, size, d1 * size, d1 * d2 * size];
                make(&[d0 + rows]).view(dims, strides, size)
            }
            Form::Transposed => make(&[d1, d0, d2, d3]).permute([1, 0, 2, 3]),
            Form::Gaps => {
                let base = make(&[2 * d0 + 1, d1, d2, d3]);
                let [_, s1, s2, s3] = base.layout().strides();
                base.view(dims, [2 * size, s1, s2, s3], size)
            }
        }
    }
}

/// How an operand lies in the memory of its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without gaps.
    Plain,
    /// Rows cut out of longer rows, not starting at the first element.
    RowGaps,
    /// The second and third dimension exchanged.
    RowsPermuted,
    /// One row for all.
    RowsShared,
    /// Rows that overlap.
    Windows,
    /// The two fastest dimensions exchanged.
    Transposed,
    /// Every second element of longer rows.
    Gaps,
}

impl Form {
    /// Every form.
    pub const ALL: &'static [Form] = &[
        Form::Plain,
        Form::RowGaps,
        Form::RowsPermuted,
        Form::RowsShared,
        Form::Windows,
        Form::Transposed,
        Form::Gaps,
    ];

    /// The forms whose rows have no gaps.
    pub const ROWS: &'static [Form] =
        &[Form::Plain, Form::RowGaps, Form::RowsPermuted, Form::RowsShared, Form::Windows];

    /// The name in cases.
    pub fn name(self) -> &'static str {
        match self {
            Form::Plain => "plain",
            Form::RowGaps => "row_gaps",
            Form::RowsPermuted => "rows_permuted",
            Form::RowsShared => "rows_shared",
            Form::Windows => "windows",
            Form::Transposed => "transposed",
            Form::Gaps => "gaps",
        }
    }
}

/// The list that the files of the cases add to.
#[derive(Default)]
pub struct CaseList {
    cases: Vec<CaseSpec>,
}

impl CaseList {
    /// Adds a case; values must be within the tolerance of their type.
    pub fn add(
        &mut self,
        name: String,
        build: impl for<'g> Fn(&Maker<'g>) + 'static,
    ) -> &mut CaseSpec {
        let at = self.cases.len();
        self.cases.push(CaseSpec {
            name,
            accuracy: Accuracy::Rounded,
            in_place: false,
            outcome: Outcome::Values,
            build: Box::new(build),
        });
        &mut self.cases[at]
    }

    /// The cases.
    pub fn into_cases(self) -> Vec<CaseSpec> {
        self.cases
    }
}
