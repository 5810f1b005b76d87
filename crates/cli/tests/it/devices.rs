//! `tensoryard devices`.

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
  products    [..]flop/s f32, [..]flop/s f16, [..]flop/s quantised
  other       [..]flop/s, [..]B/s of memory, [..] an op, [..] a split
  transfers   [..]B/s in, [..]B/s out, [..] at least
  parameters  threads: a number, 0 for automatic
SIM  makes devices on request
...
",
    );
}
