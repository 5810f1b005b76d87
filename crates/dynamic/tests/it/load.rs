//! Files that are drivers, and files that are not.

use std::path::Path;
use std::sync::Arc;

use tensoryard_dynamic::DriverError;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{OpKind, OperandSpec};
use tensoryard_runtime::{DeviceKind, Driver, Registry};

use crate::support::{load, registry, sample_library};

#[test]
fn a_driver_tells_its_devices() {
    let driver = load(sample_library()).unwrap();
    assert_eq!(driver.name(), "sample");
    let devices = driver.devices();
    let [device] = devices.as_slice() else { panic!("{devices:?}") };
    let info = device.info();
    assert_eq!((&*info.name, &*info.description), ("Sample", "sample accelerator"));
    assert_eq!((info.id.as_deref(), info.kind), (Some("sample:0"), DeviceKind::Accelerator));
    assert_eq!(device.memory().total, 64 << 20);
    assert_eq!(device.features(), [("kernels".to_owned(), "loops".to_owned())]);
    let [kind] = device.buffer_types() else { panic!("{device:?}") };
    assert_eq!((kind.name(), kind.alignment(), kind.is_host()), ("sample/memory", 32, false));
    assert_eq!(kind.max_size(), 64 << 20);
}

#[test]
fn a_loaded_driver_is_listed_and_selected_like_any_other() {
    let mut registry = registry();
    assert_eq!(registry.select("SAMPLE:0").unwrap().device.info().name, "Sample");
    assert_eq!(
        registry.select("sample:\"Sample Accelerator\"").unwrap().device.info().name,
        "Sample"
    );
    let error = registry.select("sample:threads=2").unwrap_err().to_string();
    assert_eq!(error, r#"sample has no parameter "threads"; there are: none"#);
    let again = registry.register(Arc::new(load(sample_library()).unwrap())).unwrap_err();
    assert_eq!(again.to_string(), r#"a driver named "sample" is registered already"#);
}

#[test]
fn a_file_that_is_no_library_is_told_with_its_path() {
    let missing = Path::new("no/such/driver.so");
    let error = load(missing).unwrap_err();
    assert!(matches!(&error, DriverError::Load { path, .. } if path == missing), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("driver no/such/driver.so: cannot be loaded: "), "{text}");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = load(&manifest).unwrap_err().to_string();
    let wanted = format!("driver {}: cannot be loaded: ", manifest.display());
    assert!(text.starts_with(&wanted) && text.len() > wanted.len(), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_without_the_function_is_no_driver() {
    let error = load(Path::new("libc.so.6")).unwrap_err();
    let text = "driver libc.so.6: does not export tensoryard_driver, so it is no driver";
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_empty_registry_takes_a_driver_without_the_cpu() {
    let mut registry = Registry::new();
    registry.register(Arc::new(load(sample_library()).unwrap())).unwrap();
    assert!(registry.best().is_none(), "an accelerator is no stand-in for a GPU or the CPU");
    assert_eq!(registry.len(), 1);
}

/// Compiles the header where there is a C compiler, and compares it with the sample's structures.
#[cfg(unix)]
#[test]
fn the_header_is_c_with_structures_of_the_sizes_known() {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut source = "#include \"tensoryard_driver.h\"\n".to_owned();
    for (name, bytes) in [
        ("ty_text", 16),
        ("ty_error", 24),
        ("ty_device_info", 72),
        ("ty_buffer_type_info", 40),
        ("ty_parameter", 56),
        ("ty_tensor", 104),
        ("ty_step", 72),
        ("ty_binding", 40),
        ("ty_driver", 176),
    ] {
        source.push_str(&format!("_Static_assert(sizeof({name}) == {bytes}, \"{name}\");\n"));
    }
    let compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpadded", "-fsyntax-only", "-x", "c"])
        .arg("-I")
        .arg(docs)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut compiler) = compiler else {
        // Written past the harness, which hides what passing tests print.
        _ = writeln!(std::io::stderr(), "SKIPPED the_header_is_c: there is no C compiler");
        return;
    };
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
}

#[test]
fn the_page_on_drivers_names_every_op_with_its_operands() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drivers.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in OpKind::ALL.iter().filter(|kind| **kind != OpKind::View) {
        let operand = |spec: &OperandSpec| {
            let note = if spec.optional { " (optional)" } else { "" };
            format!("{}{note}", spec.name)
        };
        let operands: Vec<String> = kind.operands().iter().map(operand).collect();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", kind.name())));
        let row = row.unwrap_or_else(|| panic!("{} is not in the table of ops", kind.name()));
        let wanted = format!("| {} |", operands.join(", "));
        assert!(row.ends_with(&wanted), "{row}\nshould end with\n{wanted}");
    }
    for kind in UnaryKind::ALL {
        assert!(page.contains(&format!("`{}`", kind.name())), "{}", kind.name());
    }
}
