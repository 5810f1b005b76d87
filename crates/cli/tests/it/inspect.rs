//! `tensoryard inspect`.

use std::path::Path;

use tensoryard::formats::gguf::GgufBuilder;
use tensoryard::graph::{DType, Shape};

use crate::support::{config, write_model};
use crate::tensoryard;

fn write_gguf(path: &Path) {
    let mut builder = GgufBuilder::new();
    builder.key("general.name", "a \u{1b}[2J trap").unwrap();
    builder.key("list", (0..1000).collect::<Vec<i32>>()).unwrap();
    builder
        .key("words", vec!["one".into(), "t\"wo".into()] as Vec<tensoryard::formats::Text>)
        .unwrap();
    builder.key("ratio", f32::NAN).unwrap();
    builder.tensor("weight", DType::F32, Shape::new(&[4, 3]).unwrap()).unwrap();
    builder.write_file(path, &mut |_, sink| sink.put(&[0; 48])).unwrap();
}

#[test]
fn long_arrays_are_cut_and_control_characters_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write_gguf(&path);
    let shown = path.display();
    tensoryard(dir.path()).arg("inspect").arg(&path).assert().success().stderr_eq("").stdout_eq(
        format!(
            "\
{shown}
GGUF version 3, 0.0 MB, 1 tensors, 0.0 million parameters

Metadata
  general.name  a \u{fffd}[2J trap
  list          [0, 1, 2, 3, 4, 5, …] (1000 values)
  words         [\"one\", \"t/\"wo\"] (2 values)
  ratio         NaN

Tensors (fastest dimension first)
  weight  f32    [4, 3] [..] 48 bytes
"
        ),
    );
}

#[test]
fn json_holds_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write_gguf(&path);
    let json = |arguments: &[&str]| -> serde_json::Value {
        let assert =
            tensoryard(dir.path()).arg("inspect").arg(&path).args(arguments).assert().success();
        serde_json::from_slice(&assert.get_output().stdout).unwrap()
    };
    let all = json(&["--json"]);
    assert_eq!((&all["format"], &all["version"]), (&"GGUF".into(), &3.into()));
    assert_eq!(all["metadata"]["list"].as_array().unwrap().len(), 1000);
    assert_eq!(all["metadata"]["words"], serde_json::json!(["one", "t\"wo"]));
    assert_eq!(all["metadata"]["ratio"], serde_json::Value::Null);
    let tensor = &all["tensors"][0];
    assert_eq!(tensor["shape"], serde_json::json!([4, 3]));
    assert_eq!((&tensor["type"], &tensor["bytes"]), (&"f32".into(), &48.into()));
    assert!(json(&["--json", "--no-tensors"]).get("tensors").is_none());
}

#[test]
fn ggml_files_are_read_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.bin");
    write_model(&path, &config(4, 1));
    let assert = tensoryard(dir.path()).arg("inspect").arg(&path).assert().success();
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("ggml Whisper") && text.contains("n_audio_state"), "{text}");
}

#[test]
fn what_is_no_model_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a model at all").unwrap();
    for path in [text, dir.path().join("missing.gguf")] {
        let shown = path.display();
        tensoryard(dir.path())
            .arg("inspect")
            .arg(&path)
            .assert()
            .code(1)
            .stdout_eq("")
            .stderr_eq(format!("error: {shown}: [..]\n...\n"));
    }
}
