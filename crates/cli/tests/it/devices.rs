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
  parameters  threads: a number, 0 for automatic
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
