//! Which crate of the workspace may depend on which.
//!
//! The table lists what is allowed; everything else is a fault, also a crate
//! that the table does not know. Dev-dependencies are exempt: tests may look
//! upwards.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// A crate and the crates of this workspace that it may be built on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tensoryard-tensor", &[]),
    ("tensoryard-formats", &["tensoryard-tensor"]),
    ("tensoryard-graph", &["tensoryard-tensor"]),
    ("tensoryard-runtime", &["tensoryard-tensor", "tensoryard-graph"]),
    ("tensoryard-cpu", DEVICE),
    ("tensoryard-gpu", DEVICE),
    ("tensoryard-sim", DEVICE),
    ("tensoryard-dynamic", DEVICE),
    ("tensoryard-sample-driver", &[]),
    ("tensoryard-conformance", DEVICE),
    ("tensoryard-audio", &[]),
    (
        "tensoryard-models",
        &[
            "tensoryard-tensor",
            "tensoryard-formats",
            "tensoryard-graph",
            "tensoryard-runtime",
            "tensoryard-audio",
        ],
    ),
    (
        "tensoryard",
        &[
            "tensoryard-tensor",
            "tensoryard-formats",
            "tensoryard-graph",
            "tensoryard-runtime",
            "tensoryard-cpu",
            "tensoryard-gpu",
            "tensoryard-sim",
            "tensoryard-dynamic",
            "tensoryard-audio",
            "tensoryard-models",
        ],
    ),
    ("tensoryard-cli", &["tensoryard"]),
    ("tensoryard-server", &["tensoryard"]),
    (
        "tensoryard-ggml-plugin",
        &["tensoryard-tensor", "tensoryard-graph", "tensoryard-runtime", "tensoryard-cpu"],
    ),
    ("xtask", &[]),
];

const DEVICE: &[&str] = &["tensoryard-tensor", "tensoryard-graph", "tensoryard-runtime"];

/// Crates from outside that only one crate here may use.
const RESERVED: &[(&str, &str)] = &[("wgpu", "tensoryard-gpu")];

/// A crate of the workspace with what it is built on; dev-dependencies are left out.
#[derive(Debug)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<String>,
}

/// The crates of the workspace, as cargo sees them.
pub fn read_packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    packages.iter().map(read_package).collect()
}

fn read_package(package: &Value) -> anyhow::Result<Package> {
    let name = package["name"].as_str().context("a package has no name")?.to_owned();
    let dependencies = package["dependencies"].as_array().context("no dependencies")?;
    let dependencies = dependencies
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
        .collect();
    Ok(Package { name, dependencies })
}

/// Faults of the dependencies, one line each.
pub fn check(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for Package { name, dependencies } in packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            faults.push(format!("{name} is not in the table of layers (xtask/src/layers.rs)"));
            continue;
        };
        for dependency in dependencies {
            let is_ours = packages.iter().any(|package| package.name == *dependency);
            if is_ours && !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
            for (reserved, owner) in RESERVED {
                if dependency == reserved && name != owner {
                    faults.push(format!("{name} must not depend on {reserved}: only {owner} does"));
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Package { name: name.to_owned(), dependencies }
    }

    #[test]
    fn downward_edges_pass() {
        let packages = [
            package("tensoryard-tensor", &["half"]),
            package("tensoryard-graph", &["tensoryard-tensor"]),
            package("tensoryard-gpu", &["tensoryard-graph", "wgpu"]),
        ];
        assert_eq!(check(&packages), [""; 0]);
    }

    #[test]
    fn forbidden_edges_and_unknown_crates_are_faults() {
        let packages = [
            package("tensoryard-cpu", &["wgpu"]),
            package("tensoryard-conformance", &[]),
            package("tensoryard-models", &["tensoryard-cpu", "tensoryard-conformance"]),
            package("tensoryard-new", &[]),
        ];
        assert_eq!(
            check(&packages),
            [
                "tensoryard-cpu must not depend on wgpu: only tensoryard-gpu does",
                "tensoryard-models must not depend on tensoryard-cpu",
                "tensoryard-models must not depend on tensoryard-conformance",
                "tensoryard-new is not in the table of layers (xtask/src/layers.rs)",
            ]
        );
    }
}
