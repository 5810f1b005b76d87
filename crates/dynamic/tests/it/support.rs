//! The sample driver, built once for all tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use tensoryard_cpu::CpuDriver;
use tensoryard_dynamic::{DriverError, DynamicDriver};
use tensoryard_runtime::Registry;

/// Path of the sample driver's library.
pub fn sample_library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample-driver");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--offline",
                "--quiet",
                "-p",
                "tensoryard-sample-driver",
                "--target-dir",
            ])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "the sample driver does not build");
        let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        target.join("debug").join(format!("{prefix}tensoryard_sample_driver{suffix}"))
    });
    &LIBRARY
}

/// Loads a file as a driver.
pub fn load(path: &Path) -> Result<DynamicDriver, DriverError> {
    // SAFETY: the sample driver keeps to the header; other files of the tests are no libraries,
    // or libraries of the system.
    unsafe { DynamicDriver::load(path) }
}

/// A registry of the CPU and the sample driver.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(Arc::new(CpuDriver::new())).unwrap();
    registry.register(Arc::new(load(sample_library()).unwrap())).unwrap();
    registry
}
