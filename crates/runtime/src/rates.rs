//! How fast a device is, and what a step or a transfer costs by that.
//!
//! The model is small enough to be computed by hand: a step takes the overhead of an op plus the
//! longer of computing and moving its operands; a transfer takes the latency and the bandwidth of
//! each end that is no host memory. Each step and each transfer is rounded up to whole
//! nanoseconds before anything is added, so that whoever adds the same parts gets the same sum,
//! in whatever order. Planning by predicted time and simulated devices share these functions.

use tensoryard_graph::ops::Op;
use tensoryard_graph::{Layout, OpKind};

use crate::{MatrixOp, Step, StepOp};

/// Kinds of arithmetic that devices do at different speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkClass {
    /// Products of matrices, convolutions and attention over f32.
    MatrixF32,
    /// The same over 16-bit floats.
    MatrixF16,
    /// The same over quantised weights.
    MatrixQuantised,
    /// Everything else.
    Other,
}

/// What one step costs, wherever it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Kind of arithmetic.
    pub class: WorkClass,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// How fast a device is. All figures are positive; infinite ones cost nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceRates {
    /// Floating-point operations a second in [`WorkClass::MatrixF32`].
    pub matrix_f32_flops_per_s: f64,
    /// Floating-point operations a second in [`WorkClass::MatrixF16`].
    pub matrix_f16_flops_per_s: f64,
    /// Floating-point operations a second in [`WorkClass::MatrixQuantised`].
    pub matrix_quantised_flops_per_s: f64,
    /// Floating-point operations a second in [`WorkClass::Other`].
    pub other_flops_per_s: f64,
    /// Bytes a second that steps read and write.
    pub memory_bytes_per_s: f64,
    /// Nanoseconds that every step takes at least.
    pub op_overhead_ns: f64,
    /// Nanoseconds that every split takes besides its steps.
    pub split_overhead_ns: f64,
    /// Bytes a second into the device's memory.
    pub to_device_bytes_per_s: f64,
    /// Bytes a second out of the device's memory.
    pub from_device_bytes_per_s: f64,
    /// Nanoseconds that every transfer into or out of the device's memory takes at least.
    pub transfer_latency_ns: f64,
}

impl Default for DeviceRates {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl DeviceRates {
    /// A device that takes no time for anything; a start for rates where only some matter.
    pub const UNLIMITED: Self = Self {
        matrix_f32_flops_per_s: f64::INFINITY,
        matrix_f16_flops_per_s: f64::INFINITY,
        matrix_quantised_flops_per_s: f64::INFINITY,
        other_flops_per_s: f64::INFINITY,
        memory_bytes_per_s: f64::INFINITY,
        op_overhead_ns: 0.0,
        split_overhead_ns: 0.0,
        to_device_bytes_per_s: f64::INFINITY,
        from_device_bytes_per_s: f64::INFINITY,
        transfer_latency_ns: 0.0,
    };

    /// Names of the figures, in the order of [`DeviceRates::figures`].
    pub const NAMES: [&'static str; 10] = [
        "matrix_f32_flops_per_s",
        "matrix_f16_flops_per_s",
        "matrix_quantised_flops_per_s",
        "other_flops_per_s",
        "memory_bytes_per_s",
        "op_overhead_ns",
        "split_overhead_ns",
        "to_device_bytes_per_s",
        "from_device_bytes_per_s",
        "transfer_latency_ns",
    ];

    /// The figures as a list, for files and reports.
    pub fn figures(&self) -> [f64; 10] {
        [
            self.matrix_f32_flops_per_s,
            self.matrix_f16_flops_per_s,
            self.matrix_quantised_flops_per_s,
            self.other_flops_per_s,
            self.memory_bytes_per_s,
            self.op_overhead_ns,
            self.split_overhead_ns,
            self.to_device_bytes_per_s,
            self.from_device_bytes_per_s,
            self.transfer_latency_ns,
        ]
    }

    /// The rates of a list in the order of [`DeviceRates::NAMES`].
    pub fn from_figures(figures: [f64; 10]) -> Self {
        let [f32_rate, f16_rate, quantised, other, memory, op, split, to, from, latency] = figures;
        Self {
            matrix_f32_flops_per_s: f32_rate,
            matrix_f16_flops_per_s: f16_rate,
            matrix_quantised_flops_per_s: quantised,
            other_flops_per_s: other,
            memory_bytes_per_s: memory,
            op_overhead_ns: op,
            split_overhead_ns: split,
            to_device_bytes_per_s: to,
            from_device_bytes_per_s: from,
            transfer_latency_ns: latency,
        }
    }

    /// Floating-point operations a second in a class.
    pub fn flops_per_s(&self, class: WorkClass) -> f64 {
        match class {
            WorkClass::MatrixF32 => self.matrix_f32_flops_per_s,
            WorkClass::MatrixF16 => self.matrix_f16_flops_per_s,
            WorkClass::MatrixQuantised => self.matrix_quantised_flops_per_s,
            WorkClass::Other => self.other_flops_per_s,
        }
    }
}

impl Work {
    /// What an op costs for operands that its shape rule accepts.
    pub fn of(op: &StepOp, sources: &[Option<Layout>], dst: &Layout) -> Self {
        let bytes = |layouts: &[Option<Layout>]| -> f64 {
            layouts.iter().flatten().map(|layout| layout.data_bytes() as f64).sum()
        };
        let elements = dst.shape().elements() as f64;
        match op {
            StepOp::Op(op) => {
                let cost = op.cost(sources, dst);
                Self {
                    class: class_of(op, sources),
                    flops: cost.flops,
                    bytes: moved(op, sources, dst),
                }
            }
            StepOp::NormAffine { epsilon } => {
                let norm = Op::from(tensoryard_graph::ops::LayerNorm { epsilon: *epsilon });
                let flops = norm.cost(sources.get(..1).unwrap_or_default(), dst).flops;
                let bytes = bytes(sources) + dst.data_bytes() as f64;
                Self { class: WorkClass::Other, flops: flops + 2.0 * elements, bytes }
            }
            StepOp::Matrix { base, activation } => {
                let op = match base {
                    MatrixOp::MulMat(op) => Op::from(*op),
                    MatrixOp::Conv1d(op) => Op::from(*op),
                };
                let operands = sources.get(..2).unwrap_or_default();
                let mut flops = op.cost(operands, dst).flops;
                flops += elements * sources.iter().skip(2).flatten().count() as f64;
                if let Some(kind) = activation {
                    let unary = Op::from(tensoryard_graph::ops::Unary { kind: *kind });
                    flops += unary.cost(&[Some(*dst)], dst).flops;
                }
                let bytes = bytes(sources) + dst.data_bytes() as f64;
                Self { class: class_of(&op, operands), flops, bytes }
            }
        }
    }

    /// What a resolved step costs.
    pub fn of_step(step: &Step) -> Self {
        let layouts: Vec<Option<Layout>> =
            step.sources.iter().map(|source| source.as_ref().map(|source| source.layout)).collect();
        Self::of(&step.op, &layouts, &step.dst.layout)
    }
}

/// Bytes that an op reads and writes: of a table only the rows that it looks up, of memory that
/// it writes into only the part that it writes.
fn moved(op: &Op, sources: &[Option<Layout>], dst: &Layout) -> f64 {
    let bytes = |layout: &Layout| layout.data_bytes() as f64;
    let all_but = |left_out: usize| -> f64 {
        let others = sources.iter().enumerate().filter(|(operand, _)| *operand != left_out);
        others.filter_map(|(_, layout)| layout.as_ref()).map(bytes).sum()
    };
    if let Some(written) = op.writes() {
        // What is written is as long as the longest of what is read.
        let others = sources.iter().enumerate().filter(|(operand, _)| *operand != written);
        let longest = others
            .filter_map(|(_, layout)| layout.as_ref())
            .map(|layout| layout.shape().elements())
            .max()
            .unwrap_or(0);
        let share = longest as f64 / (dst.shape().elements().max(1)) as f64;
        return all_but(written) + bytes(dst) * share.min(1.0);
    }
    if op.kind() == OpKind::GetRows {
        let table = sources.first().and_then(Option::as_ref);
        let share = table.map_or(0.0, |table| {
            bytes(table) * dst.shape().elements() as f64 / table.shape().elements().max(1) as f64
        });
        return all_but(0) + share + bytes(dst);
    }
    op.cost(sources, dst).bytes
}

fn class_of(op: &Op, sources: &[Option<Layout>]) -> WorkClass {
    let matrix = match op.kind() {
        OpKind::MulMat | OpKind::Conv1d => 0,
        OpKind::Attention => 1,
        OpKind::View
        | OpKind::Binary
        | OpKind::Copy
        | OpKind::CopyInto
        | OpKind::GetRows
        | OpKind::LayerNorm
        | OpKind::RmsNorm
        | OpKind::Scale
        | OpKind::SetRows
        | OpKind::SoftMax
        | OpKind::Unary => return WorkClass::Other,
    };
    match sources.get(matrix).and_then(Option::as_ref).map(|layout| layout.dtype()) {
        Some(dtype) if dtype.is_quantized() || dtype.block_bytes() == 1 => {
            WorkClass::MatrixQuantised
        }
        Some(dtype) if dtype.block_bytes() == 2 => WorkClass::MatrixF16,
        Some(_) | None => WorkClass::MatrixF32,
    }
}

/// Seconds that `amount` takes at `per_s`; nothing takes none, however slow the device.
fn seconds(amount: f64, per_s: f64) -> f64 {
    if amount > 0.0 { amount / per_s } else { 0.0 }
}

/// Whole nanoseconds, rounded up. What is no time at all, such as a rate that is no number, is 0.
fn whole_ns(ns: f64) -> u64 {
    ns.ceil() as u64
}

/// Nanoseconds that a step takes: the overhead of an op, and the longer of computing and of
/// moving its bytes.
pub fn step_ns(work: &Work, rates: &DeviceRates) -> u64 {
    let compute = seconds(work.flops, rates.flops_per_s(work.class));
    let memory = seconds(work.bytes, rates.memory_bytes_per_s);
    whole_ns(rates.op_overhead_ns + compute.max(memory) * 1e9)
}

/// Nanoseconds that a split takes besides its steps.
pub fn split_ns(rates: &DeviceRates) -> u64 {
    whole_ns(rates.split_overhead_ns)
}

/// Nanoseconds that a transfer takes: latency and bandwidth out of the memory of `from`, then
/// into that of `to`. `None` is host memory, which adds nothing of its own.
pub fn transfer_ns(bytes: usize, from: Option<&DeviceRates>, to: Option<&DeviceRates>) -> u64 {
    let leg = |rates: &DeviceRates, per_s: f64| {
        whole_ns(rates.transfer_latency_ns + seconds(bytes as f64, per_s) * 1e9)
    };
    let out = from.map_or(0, |rates| leg(rates, rates.from_device_bytes_per_s));
    let into = to.map_or(0, |rates| leg(rates, rates.to_device_bytes_per_s));
    out.saturating_add(into)
}
