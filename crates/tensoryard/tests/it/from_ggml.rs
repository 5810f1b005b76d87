//! The page for readers who know ggml's backend interface, held to both sides: every name of the
//! C headers has a row, every name of ours on it exists, and the names are aliases in the
//! documentation.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tensoryard::graph::{DType, Graph, Tensor};
use tensoryard::runtime::{
    AbortSignal, Assignment, Backend, BackendOptions, Blueprint, Buffer, BufferType, Capabilities,
    Device, DeviceError, DeviceInfo, DeviceKind, Driver, Event, FailurePolicy, HostMemory, Input,
    Memory, MemoryError, MemoryInfo, MultiBuffer, Observer, OpCase, Outputs, PendingRead, Plan,
    PlanDevice, PlanError, PlanOptions, Program, Registry, RunCounters, RunError, Selected,
    Session, SessionOptions, State, StateStatus, Submitted, Tensors, Ticket, Transfers,
    Unsupported, Usage, WeightError, WeightSource, Weights, Workspace, exec, host_buffer_type,
    plan, same_buffer_type, tensors,
};
use tensoryard::{cpu, graph, sim};

const PAGE: &str = include_str!("../../../../docs/from-ggml.md");

/// Names of the C headers, a line each.
const C_NAMES: &str = include_str!("ggml_names.txt");

/// Names that only compile while they exist: things to import, functions and methods of types and
/// of traits, fields.
macro_rules! names {
    (
        $(use $($item:ident)::+;)*
        $(fn $of:ty { $($function:ident)* })*
        $(dyn $of_trait:ident { $($method:ident)* })*
        $(struct $in:ty { $($field:ident)* })*
    ) => {
        /// What the compiler finds.
        fn found() -> Vec<String> {
            $({
                #[allow(unused_imports)]
                use $($item)::+ as _;
            })*
            $($(_ = <$of>::$function;)*)*
            $($(_ = <dyn $of_trait>::$method;)*)*
            $($(_ = |value: &$in| _ = &value.$field;)*)*
            let mut names = vec![
                $(stringify!($($item)::+).to_owned(),)*
                $($([stringify!($of), stringify!($function)].join("::"),)*)*
                $($([stringify!($of_trait), stringify!($method)].join("::"),)*)*
                $($([stringify!($in), stringify!($field)].join("::"),)*)*
            ];
            names.iter_mut().for_each(|name| name.retain(|c| !c.is_whitespace()));
            names
        }
    };
}

names! {
    use AbortSignal;
    use Backend;
    use BackendOptions;
    use Buffer;
    use BufferType;
    use Capabilities;
    use ControlFlow::Break;
    use Device;
    use DeviceError;
    use DeviceInfo;
    use DeviceKind;
    use DeviceKind::Accelerator;
    use DeviceKind::Cpu;
    use DeviceKind::Gpu;
    use DeviceKind::IntegratedGpu;
    use Driver;
    use Event;
    use FailurePolicy;
    use Input;
    use Memory;
    use MemoryError;
    use MemoryInfo;
    use MultiBuffer;
    use Observer;
    use OpCase;
    use Outputs;
    use PendingRead;
    use Plan;
    use PlanError;
    use Program;
    use Registry;
    use RunError;
    use Session;
    use SessionOptions;
    use State;
    use StateStatus;
    use Tensors;
    use Transfers;
    use Unsupported;
    use Usage;
    use Usage::Any;
    use Usage::Compute;
    use Usage::Weights;
    use Weights;
    use Workspace;
    use cpu::CpuDevice;
    use cpu::CpuDriver;
    use cpu::HbmBufferType;
    use cpu::PackedBufferType;
    use cpu::Team;
    use cpu::hbm_buffer_type;
    use cpu::isa::feature_names;
    use cpu::packed_buffer_type;
    use exec::CompareOptions;
    use exec::CompareReport;
    use exec::Distance;
    use exec::Feed;
    use exec::GraphData;
    use exec::MAX_COPIES;
    use exec::NodePair;
    use exec::compare;
    use exec::run;
    use exec::submit;
    use graph::Graph;
    use graph::GraphBuilder;
    use graph::TensorDesc;
    use host_buffer_type;
    use plan::MemoryLimits;
    use plan::MemoryPlan;
    use plan::NamedPin;
    use plan::Pin;
    use plan::Pins;
    use plan::Strategy;
    use plan::allocate::allocate;
    use plan::assign;
    use plan::draft;
    use plan::plan;
    use plan::split::split;
    use plan::verify::verify;
    use same_buffer_type;
    use sim::SimDriver;
    use tensors::CopyCounters;
    use tensors::CopyPath;
    use tensors::LinearPlacer;
    use tensors::Strided;
    use tensors::TensorSlot;
    use tensoryard::default_registry;
    use tensoryard::devices::built_in;
    use tensoryard::runtime;
    fn Blueprint { compute_bytes dump memory_use reused_in_place }
    fn Buffer {
        alignment allocate base buffer_type clear from_host from_memory is_host is_writable
        max_size name reset set_usage size tensor_bytes usage
    }
    fn Event { is_done pending wait }
    fn HostMemory { from_owned from_shared }
    fn Input { f32 i32 }
    fn MultiBuffer { clear set_usage }
    fn Outputs { f32 i32 }
    fn Plan { compile }
    fn Registry {
        allocate best by_kind default_buffer_type device devices drivers find find_driver len
        named_devices open open_best open_by_kind register select select_list
    }
    fn Selected { open }
    fn Session {
        abort_signal devices open pin plan reserve reset results run run_observed run_timed submit
        unmatched_pins unpin workspace_sizes
    }
    fn State { create }
    fn Submitted { wait }
    fn Tensors {
        copy copy_async copy_from copy_from_async fill fill_async get get_2d get_2d_async
        get_async init_view measure place place_all read reset_buffer set set_2d set_2d_async
        set_async write
    }
    fn Ticket { wait }
    fn Workspace { copies new reserve sizes with_copies }
    fn cpu::CpuDriver { with_isa }
    fn cpu::Isa { detect scalar }
    fn exec::GraphData { copy_to load }
    fn plan::Placement { device reason }
    fn tensors::LinearPlacer { new place }
    dyn Backend { compile default_buffer_type name record submit synchronize wait }
    dyn BufferType { alignment allocate is_host max_size name takes_views tensor_bytes }
    dyn Device {
        buffer_types capabilities features info memory open supports_buffer_type supports_op
        wants_offload weight_buffer_type
    }
    dyn Driver { devices name }
    dyn Memory { copy_tensor init_tensor }
    dyn Observer { observe wants }
    struct BackendOptions { threads }
    struct Blueprint { memory placement splits }
    struct Capabilities { from_host_memory host_buffers }
    struct DeviceInfo { description id kind name }
    struct MemoryInfo { free total }
    struct PlanDevice { buffer_type device }
    struct PlanOptions { offload pins }
    struct RunCounters { growths }
    struct Selected { device }
    struct SessionOptions { overlapping_runs }
    struct plan::MemoryPlan { chunks }
}

/// Functions that take anything of some trait, whose types have to be said.
fn found_generic() -> [String; 4] {
    type Load = fn(
        &dyn WeightSource,
        &[&Graph],
        &Assignment,
        fn(usize, usize) -> bool,
    ) -> Result<Weights, WeightError>;
    let _: Load = Weights::load;
    let _: for<'a> fn(&'a graph::GraphBuilder, &'static str, DType, [usize; 1]) -> Tensor<'a> =
        graph::GraphBuilder::input;
    let _: fn(Tensor<'static>, &'static str) -> Tensor<'static> = Tensor::output;
    #[cfg(feature = "dynamic")]
    let _: unsafe fn(&'static str) -> Result<_, _> = tensoryard::dynamic::DynamicDriver::load;
    [
        "Weights::load",
        "graph::GraphBuilder::input",
        "graph::Tensor::output",
        "dynamic::DynamicDriver::load",
    ]
    .map(str::to_owned)
}

/// The texts between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The lines of the page outside of code blocks.
fn prose() -> impl Iterator<Item = &'static str> {
    let mut in_code = false;
    PAGE.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The C names and our names of each row of the tables.
fn rows() -> impl Iterator<Item = (Vec<&'static str>, Vec<&'static str>)> {
    prose().filter(|line| line.starts_with("| `")).map(|line| {
        let mut cells = line.split('|').skip(1);
        let mut next = || code(cells.next().unwrap_or_default()).collect();
        (next(), next())
    })
}

fn c_names() -> impl Iterator<Item = &'static str> {
    C_NAMES.lines().filter(|line| !line.starts_with('#'))
}

/// Texts in backticks that can only be names of ours.
fn is_ours(text: &str) -> bool {
    let mut parts = text.split("::");
    let is_word = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_type = text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.contains(|c: char| c.is_ascii_lowercase());
    parts.clone().all(is_word) && (parts.nth(1).is_some() || is_type)
}

#[test]
fn every_name_of_the_c_headers_has_a_row() {
    let on_page: BTreeSet<&str> = rows().flat_map(|(c, _)| c).collect();
    let wanted: BTreeSet<&str> = c_names().collect();
    let missing: Vec<_> = wanted.difference(&on_page).collect();
    let unknown: Vec<_> = on_page.difference(&wanted).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
    assert!(wanted.len() > 250, "{} names", wanted.len());
}

#[test]
fn every_name_of_ours_on_the_page_exists() {
    let cells = rows().flat_map(|(_, ours)| ours);
    let spans = prose().flat_map(code).filter(|text| is_ours(text));
    let on_page: BTreeSet<&str> = cells.chain(spans).collect();
    let found: BTreeSet<String> = found().into_iter().chain(found_generic()).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let unchecked: Vec<_> = on_page.difference(&found).collect();
    let unused: Vec<_> = found.difference(&on_page).collect();
    assert!(
        unchecked.is_empty() && unused.is_empty(),
        "not in this test {unchecked:?}, not on the page {unused:?}"
    );
}

fn aliases(directory: &Path, found: &mut BTreeSet<String>) {
    let entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    for path in entries {
        if path.is_dir() {
            aliases(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let behind = source.split("#[doc(alias = \"").skip(1);
            found.extend(behind.filter_map(|text| Some(text.split_once('"')?.0.to_owned())));
        }
    }
}

#[test]
fn names_of_the_backend_interface_are_aliases_in_the_documentation() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for name in ["runtime", "cpu", "dynamic"] {
        aliases(&crates.join(name).join("src"), &mut found);
    }
    let is_backend = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["ggml_backend", "ggml_gallocr", "ggml_tallocr"].iter().any(|start| name.starts_with(start))
    };
    let known: BTreeSet<&str> = c_names().collect();
    // A handle is found by the name of what it points to.
    let is_handle = |name: &str| name.strip_suffix("_t").is_some_and(|of| known.contains(of));
    let mapped = rows().filter(|(_, ours)| !ours.is_empty()).flat_map(|(c, _)| c);
    let wanted = mapped.filter(|name| is_backend(name) && !is_handle(name));
    let missing: Vec<&str> = wanted.filter(|&name| !found.contains(name)).collect();
    let unknown: Vec<&String> =
        found.iter().filter(|name| is_backend(name) && !known.contains(name.as_str())).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}
