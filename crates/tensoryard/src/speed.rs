//! How fast the devices of this machine are, measured once and kept in a file.
//!
//! ```text
//! [CPU | Name of the processor | kernels avx512 | threads 2 | 0.1.0]
//! matrix_f32_flops_per_s = 2.1e11
//! op_overhead_ns = 350
//! ```
//!
//! The line in brackets is everything that the figures depend on: another processor, other
//! kernels, another number of threads or another version of this library is measured anew. The
//! file is replaced as a whole, so that no other process sees a part of it. One that is damaged
//! counts as one without rates and is replaced by the next measurement; [`SpeedFile::check`] tells.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensoryard_formats::{AtomicFile, FormatError};
use tensoryard_runtime::calibrate::{CalibrateError, CalibrateOptions, Calibration, calibrate};
use tensoryard_runtime::{Device, DeviceRates, Selected};

/// Rates could not be measured, read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedError {
    /// The file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file could not be replaced.
    #[error("cannot replace the file of rates: {0}")]
    Replace(#[from] FormatError),
    /// A line of the file that is none of ours.
    #[error("{}, line {line}: {text:?} is no rate", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The device could not be measured.
    #[error(transparent)]
    Measure(#[from] CalibrateError),
}

/// The rates of a device, opened as `device` says: those that the device states, else those in
/// the file, if there are any.
pub fn known_rates(device: &Selected, file: Option<&SpeedFile>) -> Option<DeviceRates> {
    device.device.rates().or_else(|| file?.get(&fingerprint(device)))
}

/// The rates of devices as planning takes them: those of all, or of all before the first device
/// whose rates are not known.
pub fn planning_rates(devices: &[Selected], file: Option<&SpeedFile>) -> Vec<DeviceRates> {
    devices.iter().map_while(|device| known_rates(device, file)).collect()
}

/// Measures a device, opened as `device` says, and keeps the rates in the file. Takes about a
/// second.
///
/// # Errors
/// A device that fails; a file that cannot be written.
pub fn measure(device: &Selected, file: Option<&SpeedFile>) -> Result<Calibration, SpeedError> {
    let options = CalibrateOptions { backend: device.options, ..Default::default() };
    let measured = calibrate(&device.device, &options)?;
    if let Some(file) = file {
        file.put(&fingerprint(device), &measured.rates)?;
    }
    Ok(measured)
}

/// Everything that the rates of a device depend on, as one line of text.
pub fn fingerprint(device: &Selected) -> String {
    let info = device.device.info();
    let threads = match device.options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let kernels = kernels(&device.device);
    let parts = [
        info.name.clone(),
        info.description.clone(),
        info.id.clone().unwrap_or_default(),
        format!("kernels {kernels}"),
        format!("threads {threads}"),
        env!("CARGO_PKG_VERSION").to_owned(),
    ];
    let parts = parts.iter().filter(|part| !part.is_empty());
    let joined = parts.map(String::as_str).collect::<Vec<_>>().join(" | ");
    // One line, and no brackets but those around it.
    joined.replace(|c: char| c.is_control() || c == '[' || c == ']', " ")
}

fn kernels(device: &Arc<dyn Device>) -> String {
    let features = device.features().into_iter();
    let kernels = features.filter(|(name, _)| name == "kernels").map(|(_, value)| value);
    kernels.collect::<Vec<_>>().join(",")
}

/// The file that rates are kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeedFile {
    path: PathBuf,
}

impl SpeedFile {
    /// The file beside the fetched models.
    #[cfg(feature = "download")]
    pub fn in_cache(cache: &crate::hub::CacheDir) -> Self {
        Self::at(cache.root().join("speed"))
    }

    /// A file of the caller's choice. It is made when first written.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the rates of the file count: those of one that is absent or whole.
    ///
    /// # Errors
    /// A file that cannot be read, or is damaged.
    pub fn check(&self) -> Result<(), SpeedError> {
        self.read().map(|_| ())
    }

    /// The rates of a fingerprint, if they are there; none of a damaged file.
    pub fn get(&self, fingerprint: &str) -> Option<DeviceRates> {
        let entries = self.read().unwrap_or_default();
        entries.into_iter().find(|(known, _)| known == fingerprint).map(|(_, rates)| rates)
    }

    /// Keeps the rates of a fingerprint, in the place of older ones. A damaged file is replaced.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn put(&self, fingerprint: &str, rates: &DeviceRates) -> Result<(), SpeedError> {
        let mut entries = self.read().unwrap_or_default();
        entries.retain(|(known, _)| known != fingerprint);
        entries.push((fingerprint.to_owned(), *rates));
        let mut text = String::new();
        for (fingerprint, rates) in &entries {
            _ = writeln!(text, "[{fingerprint}]");
            for (name, figure) in DeviceRates::NAMES.iter().zip(rates.figures()) {
                _ = writeln!(text, "{name} = {figure}");
            }
        }
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SpeedError::Io { action, path, source }
        };
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).map_err(fail("make the folder", dir))?;
        }
        let mut file = AtomicFile::create(&self.path)?;
        file.write_all(text.as_bytes()).map_err(fail("write", &self.path))?;
        Ok(file.commit()?)
    }

    fn read(&self) -> Result<Vec<(String, DeviceRates)>, SpeedError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                let path = self.path.clone();
                return Err(SpeedError::Io { action: "read", path, source });
            }
        };
        let mut entries: Vec<(String, [f64; 10])> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let broken = || SpeedError::Syntax {
                path: self.path.clone(),
                line: number + 1,
                text: line.to_owned(),
            };
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                entries.push((name.to_owned(), DeviceRates::UNLIMITED.figures()));
                continue;
            }
            let (name, figure) = line.split_once(" = ").ok_or_else(broken)?;
            let at = DeviceRates::NAMES.iter().position(|known| *known == name);
            let figure = figure.parse::<f64>().ok().filter(|figure| *figure >= 0.0);
            let (at, figure) = at.zip(figure).ok_or_else(broken)?;
            let (_, figures) = entries.last_mut().ok_or_else(broken)?;
            figures[at] = figure;
        }
        let rates = |(name, figures)| (name, DeviceRates::from_figures(figures));
        Ok(entries.into_iter().map(rates).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(factor: f64) -> DeviceRates {
        let mut figures = [0.0; 10];
        for (index, figure) in figures.iter_mut().enumerate() {
            *figure = factor * (index as f64 + 0.1);
        }
        DeviceRates::from_figures(figures)
    }

    #[test]
    fn rates_come_back_from_the_file_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let file = SpeedFile::at(dir.path().join("new folder").join("speed"));
        assert_eq!(file.get("a"), None);
        file.put("a", &rates(1.0)).unwrap();
        file.put("b", &DeviceRates::UNLIMITED).unwrap();
        file.put("a", &rates(1e9 / 3.0)).unwrap();
        assert_eq!(file.get("a"), Some(rates(1e9 / 3.0)));
        assert_eq!(file.get("b"), Some(DeviceRates::UNLIMITED));
        assert_eq!(file.get("c"), None);
        let left = fs::read_dir(file.path().parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "partial files are gone");
    }

    #[test]
    fn damaged_files_have_no_rates_and_are_told_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = SpeedFile::at(dir.path().join("speed"));
        let broken = [
            ("op_overhead_ns = 1", 1),
            ("[a]\nop_overhead_ns = fast", 2),
            ("[a]\nop_overhead_ns = -1", 2),
            ("[a]\nop_overhead_ns = NaN", 2),
            ("[a]\nop_overhead_ns = 1\nwings = 2", 3),
            ("[a]\n<html>", 2),
        ];
        for (text, expected) in broken {
            fs::write(file.path(), text).unwrap();
            assert_eq!(file.get("a"), None, "{text}");
            match file.check() {
                Err(SpeedError::Syntax { line, .. }) => assert_eq!(line, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert!(matches!(file.check(), Err(SpeedError::Io { action: "read", .. })));
        file.put("a", &rates(2.0)).unwrap();
        assert_eq!((file.get("a"), file.check().is_ok()), (Some(rates(2.0)), true));
    }

    #[test]
    fn a_measured_device_is_known_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = SpeedFile::at(dir.path().join("speed"));
        let device = crate::default_registry().select("cpu:threads=1").unwrap();
        assert_eq!(known_rates(&device, Some(&file)), None);
        let measured = measure(&device, Some(&file)).unwrap().rates;
        assert_eq!(known_rates(&device, Some(&file)), Some(measured));
        assert_eq!(known_rates(&device, None), None);
        let mut unknown = device.clone();
        unknown.options.threads = 9;
        let list = [device.clone(), unknown, device.clone()];
        assert_eq!(planning_rates(&list, Some(&file)), [measured]);
        for (name, figure) in DeviceRates::NAMES.iter().zip(measured.figures()) {
            assert!(figure >= 0.0 && figure.is_finite(), "{name} is {figure}");
        }
        let mut other = device.clone();
        other.options.threads = 7;
        assert_eq!(known_rates(&other, Some(&file)), None);
        assert!(fingerprint(&device).contains("threads 1"), "{}", fingerprint(&device));
    }
}
