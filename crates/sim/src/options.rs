//! What a simulated device is, as fields and as parameters of a registry.

use std::time::Duration;

use tensoryard_graph::OpKind;
use tensoryard_graph::ops::{BinaryKind, UnaryKind};
use tensoryard_runtime::{DeviceKind, DeviceRates, ParameterSpec, Parameters, RegistryError};

use crate::Faults;

/// Whose memory a simulated device computes in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Shares {
    /// Its own.
    #[default]
    Own,
    /// That of the host device, as an integrated GPU does.
    Host,
    /// That of another simulated device of the same driver, by name.
    Device(String),
}

/// A simulated device. The defaults are those of a middling graphics card that works on its own.
#[derive(Debug, Clone, PartialEq)]
pub struct SimOptions {
    /// Name; the driver gives one where this is empty.
    pub name: String,
    /// Kind of device that it says it is.
    pub kind: DeviceKind,
    /// Bytes of its memory. A device that shares memory reports this and does not enforce it.
    pub memory: usize,
    /// Size of its largest buffer.
    pub max_buffer: usize,
    /// Alignment of its memory, a power of two.
    pub alignment: usize,
    /// Bytes added to every tensor.
    pub padding: usize,
    /// What new memory is filled with. Without it memory is zeroed, and takes none before it is
    /// used.
    pub fill: Option<u8>,
    /// The ops that it claims, where the host device runs them too.
    pub ops: Vec<OpKind>,
    /// The arithmetic that it claims, where `ops` has [`OpKind::Binary`].
    pub binary: Vec<BinaryKind>,
    /// The functions that it claims, where `ops` has [`OpKind::Unary`].
    pub unary: Vec<UnaryKind>,
    /// The longest row of a source that it claims.
    pub max_row: usize,
    /// Whose memory it computes in.
    pub shares: Shares,
    /// Whether it also computes with weights and other tensors that lie in the host's memory.
    pub reads_host: bool,
    /// Whether it works while the host goes on.
    pub asynchronous: bool,
    /// Whether it makes no copies in its queue, so that they go through the host.
    pub slow_copies: bool,
    /// Whether writes from the host take virtual time. Predictions begin when all inputs are in
    /// memory.
    pub counts_writes: bool,
    /// How many times the bandwidth of transfers is with pinned host memory.
    pub pinned_speedup: f64,
    /// How fast it is in virtual time.
    pub rates: DeviceRates,
    /// Real time that each piece of work waits before it begins.
    pub delay: Duration,
    /// Upper bound of a random time that is added to the delay.
    pub jitter: Duration,
    /// Decides about the random times.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
}

/// Figures of a middling graphics card.
const RATES: DeviceRates = DeviceRates {
    matrix_f32_flops_per_s: 5e12,
    matrix_f16_flops_per_s: 1e13,
    matrix_quantised_flops_per_s: 1e13,
    other_flops_per_s: 1e12,
    memory_bytes_per_s: 2e11,
    op_overhead_ns: 5e3,
    split_overhead_ns: 2e4,
    to_device_bytes_per_s: 1.2e10,
    from_device_bytes_per_s: 1.2e10,
    transfer_latency_ns: 1e4,
};

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: DeviceKind::Gpu,
            memory: 8 << 30,
            max_buffer: usize::MAX,
            alignment: 256,
            padding: 0,
            fill: None,
            ops: OpKind::ALL.to_vec(),
            binary: BinaryKind::ALL.to_vec(),
            unary: UnaryKind::ALL.to_vec(),
            max_row: usize::MAX,
            shares: Shares::Own,
            reads_host: false,
            asynchronous: true,
            slow_copies: false,
            counts_writes: false,
            pinned_speedup: 2.0,
            rates: RATES,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            seed: 0,
            faults: Faults::default(),
        }
    }
}

const SIZE: &str = "a size in bytes, such as 64MiB";
const TIME: &str = "a time, such as 0.2ms";
const NUMBER: &str = "a whole number";
const RATE: &str = "a positive number a second, such as 5e12 or 12G";

/// What may stand behind `sim:`.
pub(crate) const PARAMETERS: &[ParameterSpec] = &[
    ParameterSpec::new("name", "a name that no other simulated device has"),
    ParameterSpec::new("kind", "cpu, gpu, igpu or accelerator"),
    ParameterSpec::new("memory", SIZE),
    ParameterSpec::new("max_buffer", SIZE),
    ParameterSpec::new("alignment", "a power of two, such as 256"),
    ParameterSpec::new("padding", SIZE),
    ParameterSpec::new("ops", "names of ops joined by +, such as mul_mat+add, or `all`"),
    ParameterSpec::new("max_row", "a whole number, the longest row that its ops read"),
    ParameterSpec::new("shares", "own, host, or the name of a simulated device made before"),
    ParameterSpec::new("reads", "own, or host for weights in host memory, too"),
    ParameterSpec::new("asynchronous", "true or false, whether it works on its own"),
    ParameterSpec::new("slow_copies", "true or false, whether copies go through the host"),
    ParameterSpec::new("counts_writes", "true or false, whether inputs take time, too"),
    ParameterSpec::new("pinned_speedup", "a number of at least 1"),
    ParameterSpec::new("flops", RATE),
    ParameterSpec::new("matrix_f32_flops", RATE),
    ParameterSpec::new("matrix_f16_flops", RATE),
    ParameterSpec::new("matrix_quantised_flops", RATE),
    ParameterSpec::new("other_flops", RATE),
    ParameterSpec::new("bandwidth", RATE),
    ParameterSpec::new("to_device", RATE),
    ParameterSpec::new("from_device", RATE),
    ParameterSpec::new("latency", TIME),
    ParameterSpec::new("op_overhead", TIME),
    ParameterSpec::new("split_overhead", TIME),
    ParameterSpec::new("delay", "a real time that work waits, such as 0.2ms"),
    ParameterSpec::new("jitter", "a real time of which a random part is added, such as 0.2ms"),
    ParameterSpec::new("seed", NUMBER),
    ParameterSpec::new("fail_allocation_at", "a whole number, the allocation that fails, from 0"),
    ParameterSpec::new("lost_at_step", "a whole number, the operation at which it is lost, from 0"),
    ParameterSpec::new(
        "lost_at_transfer",
        "a whole number, the transfer at which it is lost, from 0",
    ),
];

impl SimOptions {
    /// A device of that name.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The device that parameters of a registry stand for. What they leave open is as in
    /// [`SimOptions::default`].
    ///
    /// # Errors
    /// A value that cannot be read, or does not do.
    pub fn from_parameters(parameters: &Parameters) -> Result<Self, RegistryError> {
        let mut options = Self::default();
        let set_number = |key, to: &mut usize| set(to, parameters.number(key));
        let set_bytes = |key, to: &mut usize| set(to, parameters.bytes(key));
        let set_switch = |key, to: &mut bool| set(to, parameters.boolean(key));
        let set_time = |key, to: &mut Duration| set(to, parameters.duration(key));
        let set_rate = |key, to: &mut f64| set(to, rate(parameters, key));
        let set_ns = |key, to: &mut f64| {
            let nanoseconds = |time: Duration| time.as_secs_f64() * 1e9;
            set(to, parameters.duration(key).map(|time| time.map(nanoseconds)))
        };
        let text = |key| parameters.text(key).map(str::trim);
        set(&mut options.name, Ok(text("name").map(str::to_owned)))?;
        set(&mut options.kind, kind(parameters))?;
        set_bytes("memory", &mut options.memory)?;
        set_bytes("max_buffer", &mut options.max_buffer)?;
        set_number("alignment", &mut options.alignment)?;
        set_bytes("padding", &mut options.padding)?;
        choose_ops(&mut options, parameters)?;
        set_number("max_row", &mut options.max_row)?;
        set(&mut options.shares, Ok(text("shares").map(shares)))?;
        set(&mut options.reads_host, reads_host(parameters))?;
        set_switch("asynchronous", &mut options.asynchronous)?;
        set_switch("slow_copies", &mut options.slow_copies)?;
        set_switch("counts_writes", &mut options.counts_writes)?;
        set(&mut options.pinned_speedup, parameters.number("pinned_speedup"))?;
        let rates = &mut options.rates;
        if let Some(flops) = rate(parameters, "flops")? {
            rates.matrix_f32_flops_per_s = flops;
            rates.matrix_f16_flops_per_s = flops;
            rates.matrix_quantised_flops_per_s = flops;
            rates.other_flops_per_s = flops;
        }
        set_rate("matrix_f32_flops", &mut rates.matrix_f32_flops_per_s)?;
        set_rate("matrix_f16_flops", &mut rates.matrix_f16_flops_per_s)?;
        set_rate("matrix_quantised_flops", &mut rates.matrix_quantised_flops_per_s)?;
        set_rate("other_flops", &mut rates.other_flops_per_s)?;
        set_rate("bandwidth", &mut rates.memory_bytes_per_s)?;
        set_rate("to_device", &mut rates.to_device_bytes_per_s)?;
        set_rate("from_device", &mut rates.from_device_bytes_per_s)?;
        set_ns("latency", &mut rates.transfer_latency_ns)?;
        set_ns("op_overhead", &mut rates.op_overhead_ns)?;
        set_ns("split_overhead", &mut rates.split_overhead_ns)?;
        set_time("delay", &mut options.delay)?;
        set_time("jitter", &mut options.jitter)?;
        set(&mut options.seed, parameters.number("seed"))?;
        let faults = &mut options.faults;
        faults.fail_allocation_at = parameters.number("fail_allocation_at")?;
        faults.lost_at_step = parameters.number("lost_at_step")?;
        faults.lost_at_transfer = parameters.number("lost_at_transfer")?;
        options.check().map_err(|(key, wanted)| parameters.refuse(key, wanted))?;
        Ok(options)
    }

    /// The field that does not do, and what would.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !self.alignment.is_power_of_two() {
            return Err(("alignment", "a power of two, such as 256"));
        }
        if !self.pinned_speedup.is_finite() || self.pinned_speedup < 1.0 {
            return Err(("pinned_speedup", "a number of at least 1"));
        }
        Ok(())
    }
}

/// Sets a field to a value that was given.
fn set<T>(to: &mut T, value: Result<Option<T>, RegistryError>) -> Result<(), RegistryError> {
    if let Some(value) = value? {
        *to = value;
    }
    Ok(())
}

/// A number a second, with `K`, `M`, `G` or `T` for powers of a thousand.
fn rate(parameters: &Parameters, key: &str) -> Result<Option<f64>, RegistryError> {
    let Some(text) = parameters.text(key) else { return Ok(None) };
    let text = text.trim();
    let units = [("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let value = number.trim_end().parse::<f64>().ok().map(|value| value * factor);
    match value.filter(|value| *value > 0.0) {
        Some(value) => Ok(Some(value)),
        None => Err(parameters.refuse(key, RATE)),
    }
}

fn kind(parameters: &Parameters) -> Result<Option<DeviceKind>, RegistryError> {
    let Some(text) = parameters.text("kind") else { return Ok(None) };
    match text.trim().to_ascii_lowercase().as_str() {
        "cpu" => Ok(Some(DeviceKind::Cpu)),
        "gpu" => Ok(Some(DeviceKind::Gpu)),
        "igpu" => Ok(Some(DeviceKind::IntegratedGpu)),
        "accelerator" => Ok(Some(DeviceKind::Accelerator)),
        _ => Err(parameters.refuse("kind", "cpu, gpu, igpu or accelerator")),
    }
}

fn shares(text: &str) -> Shares {
    match text {
        own if own.eq_ignore_ascii_case("own") => Shares::Own,
        host if host.eq_ignore_ascii_case("host") => Shares::Host,
        device => Shares::Device(device.to_owned()),
    }
}

fn reads_host(parameters: &Parameters) -> Result<Option<bool>, RegistryError> {
    match parameters.text("reads").map(str::trim) {
        None => Ok(None),
        Some(own) if own.eq_ignore_ascii_case("own") => Ok(Some(false)),
        Some(host) if host.eq_ignore_ascii_case("host") => Ok(Some(true)),
        Some(_) => Err(parameters.refuse("reads", "own or host")),
    }
}

/// Sets the ops from their names. Arithmetic and functions are named each, `binary` and `unary`
/// stand for all of them.
fn choose_ops(options: &mut SimOptions, parameters: &Parameters) -> Result<(), RegistryError> {
    let Some(names) = parameters.list("ops")? else { return Ok(()) };
    if let [all] = *names
        && all.eq_ignore_ascii_case("all")
    {
        return Ok(());
    }
    // A view computes nothing; every device has it.
    let (mut ops, mut binary, mut unary) = (vec![OpKind::View], Vec::new(), Vec::new());
    for name in names {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if let Some(&kind) = OpKind::ALL.iter().find(|kind| is(kind.name())) {
            ops.push(kind);
            if kind == OpKind::Binary {
                binary = BinaryKind::ALL.to_vec();
            } else if kind == OpKind::Unary {
                unary = UnaryKind::ALL.to_vec();
            }
        } else if let Some(&kind) = BinaryKind::ALL.iter().find(|kind| is(kind.name())) {
            ops.push(OpKind::Binary);
            binary.push(kind);
        } else if let Some(&kind) = UnaryKind::ALL.iter().find(|kind| is(kind.name())) {
            ops.push(OpKind::Unary);
            unary.push(kind);
        } else {
            let known = known_ops().join(", ");
            let wanted = format!("ops joined by +, and {name:?} is none; there are: {known}");
            return Err(parameters.refuse("ops", wanted));
        }
    }
    (options.ops, options.binary, options.unary) = (ops, binary, unary);
    Ok(())
}

/// What may stand in a list of ops.
fn known_ops() -> Vec<&'static str> {
    let mut known: Vec<&str> = OpKind::ALL.iter().map(|kind| kind.name()).collect();
    known.extend(BinaryKind::ALL.iter().map(|kind| kind.name()));
    known.extend(UnaryKind::ALL.iter().map(|kind| kind.name()));
    known.sort_unstable();
    known
}
