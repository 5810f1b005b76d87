//! `tensoryard inspect`: the header of a model file.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use tensoryard::formats::{Array, Inspection, TensorInfo, Value, inspect};

use crate::output::{self, BOLD};

/// Elements of an array that are shown.
const SHOWN: usize = 6;

/// Shows metadata, tensors and sizes of a model file without loading it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A GGUF file, a ggml Whisper .bin file, or a CTranslate2 folder
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print everything as JSON, for programs
    #[arg(long)]
    json: bool,

    /// Leave the list of tensors out
    #[arg(long)]
    no_tensors: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let inspection = inspect(&args.file)?;
    let show_tensors = !args.no_tensors;
    if args.json {
        return output::print_json(&Report::new(&inspection, show_tensors));
    }
    output::print(&text_of(&inspection, show_tensors))
}

fn text_of(inspection: &Inspection, show_tensors: bool) -> String {
    let version =
        inspection.version.map_or_else(String::new, |version| format!(" version {version}"));
    let mut text = format!(
        "{BOLD}{}{BOLD:#}\n{}{version}, {:.1} MB, {} tensors, {:.1} million parameters\n",
        inspection.path.display(),
        inspection.format,
        inspection.file_bytes as f64 / 1e6,
        inspection.tensors.len(),
        inspection.parameters as f64 / 1e6,
    );
    if !inspection.metadata.is_empty() {
        text.push_str(&format!("\n{BOLD}Metadata{BOLD:#}\n"));
    }
    let width = inspection.metadata.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    for (key, value) in &inspection.metadata {
        text.push_str(&format!("  {:width$}  {}\n", printable(key), short(value)));
    }
    if show_tensors {
        text.push_str(&format!("\n{BOLD}Tensors{BOLD:#} (fastest dimension first)\n"));
        let width = inspection.tensors.iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
        for tensor in &inspection.tensors {
            let (name, dtype) = (printable(&tensor.name), tensor.dtype.to_string());
            let (shape, bytes) = (tensor.shape.to_string(), tensor.size_bytes());
            text.push_str(&format!("  {name:width$}  {dtype:6} {shape:18} {bytes:>11} bytes\n"));
        }
    }
    text
}

/// Text of a file as it can be shown: no control characters that move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(array) => short_array(array),
        Value::String(text) => printable(&text.to_string()),
        other => other.to_string(),
    }
}

/// The first elements of an array and how many there are. An array may have
/// millions of elements, so the others are not looked at.
fn short_array(array: &Array) -> String {
    fn first<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
        items.iter().take(SHOWN).map(show).collect::<Vec<_>>().join(", ")
    }
    let shown = match array {
        Array::U8(items) => first(items, u8::to_string),
        Array::I8(items) => first(items, i8::to_string),
        Array::U16(items) => first(items, u16::to_string),
        Array::I16(items) => first(items, i16::to_string),
        Array::U32(items) => first(items, u32::to_string),
        Array::I32(items) => first(items, i32::to_string),
        Array::F32(items) => first(items, f32::to_string),
        Array::Bool(items) => first(items, bool::to_string),
        Array::String(items) => first(items, |text| format!("{text:?}")),
        Array::Array(items) => first(items, short_array),
        Array::U64(items) => first(items, u64::to_string),
        Array::I64(items) => first(items, i64::to_string),
        Array::F64(items) => first(items, f64::to_string),
    };
    let more = if array.len() > SHOWN { ", …" } else { "" };
    format!("[{shown}{more}] ({} values)", array.len())
}

/// Everything as JSON, written as it is walked through.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a Path,
    format: String,
    version: Option<u32>,
    file_bytes: u64,
    tensor_bytes: u64,
    parameters: u64,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor<'a>>>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    dtype: &'static str,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
}

impl<'a> Report<'a> {
    fn new(inspection: &'a Inspection, show_tensors: bool) -> Self {
        Self {
            path: &inspection.path,
            format: inspection.format.to_string(),
            version: inspection.version,
            file_bytes: inspection.file_bytes,
            tensor_bytes: inspection.tensor_bytes,
            parameters: inspection.parameters,
            metadata: Metadata(&inspection.metadata),
            tensors: show_tensors.then(|| inspection.tensors.iter().map(Tensor::new).collect()),
        }
    }
}

impl<'a> Tensor<'a> {
    fn new(info: &'a TensorInfo) -> Self {
        Self {
            name: &info.name,
            dtype: info.dtype.name(),
            shape: info.shape.dims()[..info.shape.rank()].to_vec(),
            offset: info.range.start,
            bytes: info.size_bytes(),
        }
    }
}

struct Metadata<'a>(&'a [(String, Value)]);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, JsonValue(value))))
    }
}

struct JsonValue<'a>(&'a Value);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::U8(number) => number.serialize(to),
            Value::I8(number) => number.serialize(to),
            Value::U16(number) => number.serialize(to),
            Value::I16(number) => number.serialize(to),
            Value::U32(number) => number.serialize(to),
            Value::I32(number) => number.serialize(to),
            Value::F32(number) => number.serialize(to),
            Value::Bool(flag) => flag.serialize(to),
            Value::String(text) => to.collect_str(text),
            Value::U64(number) => number.serialize(to),
            Value::I64(number) => number.serialize(to),
            Value::F64(number) => number.serialize(to),
            Value::Array(array) => JsonArray(array).serialize(to),
        }
    }
}

struct JsonArray<'a>(&'a Array);

impl Serialize for JsonArray<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Array::U8(items) => items.serialize(to),
            Array::I8(items) => items.serialize(to),
            Array::U16(items) => items.serialize(to),
            Array::I16(items) => items.serialize(to),
            Array::U32(items) => items.serialize(to),
            Array::I32(items) => items.serialize(to),
            Array::F32(items) => items.serialize(to),
            Array::Bool(items) => items.serialize(to),
            Array::String(items) => to.collect_seq(items.iter().map(ToString::to_string)),
            Array::Array(items) => to.collect_seq(items.iter().map(JsonArray)),
            Array::U64(items) => items.serialize(to),
            Array::I64(items) => items.serialize(to),
            Array::F64(items) => items.serialize(to),
        }
    }
}
