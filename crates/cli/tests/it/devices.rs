//! `tensoryard devices`.

use crate::support::{config, sample_driver, write_model};
use crate::tensoryard;

#[test]
fn the_cpu_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    tensoryard(dir.path()).arg("devices").assert().success().stderr_eq("").stdout_eq(
        "\
CPU:0  [..]
  memory      [..] MiB free of [..] MiB
  features    [..]
  speed       not measured; --calibrate does
  parameters  threads: a number, 0 for automatic
SIM  makes devices on request
...
",
    );
}

#[test]
fn the_list_is_json_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let assert = tensoryard(dir.path()).args(["devices", "--json"]).assert().success();
    let list: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["kind"]), (&"CPU".into(), &"cpu".into()));
    assert_eq!(list[0]["device"], "CPU:0");
    assert!(list[0]["memory_total_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(list[0]["features"].is_object() && list[0]["buffer_types"].is_array());
}

#[test]
fn a_measured_device_is_shown_with_its_speed_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let rates = |args: &[&str]| -> serde_json::Value {
        let assert = tensoryard(dir.path()).arg("devices").args(args).assert().success();
        let list: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
        list[0]["rates"].clone()
    };
    assert!(rates(&["--json"]).is_null());
    let measured = rates(&["--json", "--calibrate"]);
    assert!(measured["matrix_f32_flops_per_s"].as_f64().unwrap() > 1e6, "{measured}");
    assert!(measured["op_overhead_ns"].as_f64().unwrap() >= 0.0, "{measured}");
    assert_eq!(rates(&["--json"]), measured);
    // Another number of threads is another speed.
    assert!(rates(&["--json", "--threads", "37"]).is_null());
    tensoryard(dir.path()).arg("devices").assert().success().stdout_eq(
        "\
CPU:0  [..]
  memory      [..] MiB free of [..] MiB
  features    [..]
  products    [..] f32, [..] f16, [..] quantised
  other       [..], [..] of memory, [..] an op, [..] a split
  transfers   [..] in, [..] out, [..] at least
  parameters  threads: a number, 0 for automatic
SIM  makes devices on request
...
",
    );
}

#[test]
fn devices_of_a_driver_library_are_listed_and_planned_with() {
    let dir = tempfile::tempdir().unwrap();
    let stdout = |arguments: &[&str]| {
        let mut command = tensoryard(dir.path());
        command = command.arg("--driver").arg(sample_driver()).args(arguments);
        let assert = command.assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    let text = stdout(&["devices"]);
    let listed = "sample:0  sample accelerator\n  memory      64 MiB free of 64 MiB\n";
    assert!(text.contains(listed) && text.contains("  features    kernels=loops\n"), "{text}");
    let list: serde_json::Value = serde_json::from_str(&stdout(&["devices", "--json"])).unwrap();
    let found = list.as_array().unwrap().iter().find(|device| device["device"] == "sample:0");
    let found = found.unwrap();
    assert_eq!((&found["id"], &found["kind"]), (&"sample:0".into(), &"accelerator".into()));
    assert_eq!(found["buffer_types"][0], "sample/memory");
    let model = dir.path().join("small.bin");
    write_model(&model, &config(4, 1));
    let model = model.to_str().unwrap();
    let plan = stdout(&["plan", model, "--devices", "sample,cpu", "--nodes"]);
    assert!(plan.contains("Sample"), "{plan}");
}

#[test]
fn driver_libraries_that_cannot_be_loaded_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let error = |paths: &[&str]| {
        let mut command = tensoryard(dir.path()).arg("devices");
        for path in paths {
            command = command.args(["--driver", path]);
        }
        let assert = command.assert().code(1);
        String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
    };
    let text = error(&["no/driver.so"]);
    assert!(text.starts_with("error: driver no/driver.so: cannot be loaded: "), "{text}");
    let path = sample_driver().to_str().unwrap();
    let text = error(&[path, path]);
    let wanted =
        format!("error: cannot add the driver {path}\n  because: a driver named \"sample\" is");
    assert!(text.starts_with(&wanted), "{text}");
}
