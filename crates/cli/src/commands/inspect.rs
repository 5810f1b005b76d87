//! `tensoryard inspect`: the header of a model file.

use std::path::PathBuf;

use serde_json::json;
use tensoryard::formats::{Array, Inspection, Value, inspect};

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
        return output::print(&format!("{:#}\n", json_of(&inspection, show_tensors)));
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
    match json_value(value) {
        serde_json::Value::Array(items) => {
            let shown: Vec<String> =
                items.iter().take(SHOWN).map(|item| printable(&item.to_string())).collect();
            let more = if items.len() > SHOWN { ", …" } else { "" };
            format!("[{}{more}] ({} values)", shown.join(", "), items.len())
        }
        serde_json::Value::String(text) => printable(&text),
        other => other.to_string(),
    }
}

fn json_of(inspection: &Inspection, show_tensors: bool) -> serde_json::Value {
    let metadata: serde_json::Map<_, _> =
        inspection.metadata.iter().map(|(key, value)| (key.clone(), json_value(value))).collect();
    let tensors: Vec<_> = inspection
        .tensors
        .iter()
        .map(|tensor| {
            json!({
                "name": tensor.name,
                "type": tensor.dtype.name(),
                "shape": tensor.shape.dims()[..tensor.shape.rank()],
                "offset": tensor.range.start,
                "bytes": tensor.size_bytes(),
            })
        })
        .collect();
    let mut json = json!({
        "path": inspection.path,
        "format": inspection.format.to_string(),
        "version": inspection.version,
        "file_bytes": inspection.file_bytes,
        "tensor_bytes": inspection.tensor_bytes,
        "parameters": inspection.parameters,
        "metadata": metadata,
    });
    if show_tensors {
        json["tensors"] = tensors.into();
    }
    json
}

fn json_value(value: &Value) -> serde_json::Value {
    match value {
        Value::U8(number) => json!(number),
        Value::I8(number) => json!(number),
        Value::U16(number) => json!(number),
        Value::I16(number) => json!(number),
        Value::U32(number) => json!(number),
        Value::I32(number) => json!(number),
        Value::F32(number) => json!(number),
        Value::Bool(flag) => json!(flag),
        Value::String(text) => json!(text.to_string()),
        Value::U64(number) => json!(number),
        Value::I64(number) => json!(number),
        Value::F64(number) => json!(number),
        Value::Array(array) => json_array(array),
    }
}

fn json_array(array: &Array) -> serde_json::Value {
    match array {
        Array::U8(items) => json!(items),
        Array::I8(items) => json!(items),
        Array::U16(items) => json!(items),
        Array::I16(items) => json!(items),
        Array::U32(items) => json!(items),
        Array::I32(items) => json!(items),
        Array::F32(items) => json!(items),
        Array::Bool(items) => json!(items),
        Array::String(items) => items.iter().map(ToString::to_string).collect(),
        Array::Array(items) => items.iter().map(json_array).collect(),
        Array::U64(items) => json!(items),
        Array::I64(items) => json!(items),
        Array::F64(items) => json!(items),
    }
}
