//! Parameters of devices as users write them, read as numbers, sizes, times and lists.
//!
//! A driver declares the parameters that it knows; the registry refuses others before the driver
//! is asked. Errors name the driver, the parameter, its value and what was wanted.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use crate::RegistryError;

/// A parameter that a driver's devices take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterSpec {
    /// Name, compared without regard to case.
    pub name: Cow<'static, str>,
    /// What its value must be, as an error goes on after `wanted`.
    pub wanted: Cow<'static, str>,
}

impl ParameterSpec {
    /// A parameter and what its value must be, such as `a size: 512MiB, 2GiB`.
    pub const fn new(name: &'static str, wanted: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), wanted: Cow::Borrowed(wanted) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parameter {
    spec: ParameterSpec,
    value: String,
}

/// The parameters that stood behind a device's name, all of them known to its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    driver: String,
    given: Vec<Parameter>,
}

const BYTE_UNITS: &[(&str, u64)] =
    &[("", 1), ("b", 1), ("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("tib", 1 << 40)];

const TIME_UNITS: &[(&str, u64)] =
    &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl Parameters {
    /// Pairs of names and values, checked against what the driver declares.
    ///
    /// # Errors
    /// A parameter that the driver does not have, or one given twice.
    pub fn new(
        driver: &str,
        specs: &[ParameterSpec],
        pairs: Vec<(String, String)>,
    ) -> Result<Self, RegistryError> {
        let mut parameters = Self { driver: driver.to_owned(), given: Vec::new() };
        for (key, value) in pairs {
            let spec = specs.iter().find(|spec| spec.name.eq_ignore_ascii_case(&key));
            let Some(spec) = spec else {
                let names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(RegistryError::UnknownParameter {
                    device: driver.to_owned(),
                    key,
                    known,
                });
            };
            if parameters.find(&spec.name).is_some() {
                let problem = format!("parameter {key:?} is given twice");
                return Err(RegistryError::Syntax { text: driver.to_owned(), problem });
            }
            parameters.given.push(Parameter { spec: spec.clone(), value });
        }
        Ok(parameters)
    }

    fn find(&self, key: &str) -> Option<&Parameter> {
        self.given.iter().find(|parameter| parameter.spec.name == key)
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<Option<T>, RegistryError> {
        let Some(parameter) = self.find(key) else { return Ok(None) };
        let value = parse(parameter.value.trim());
        value.map(Some).ok_or_else(|| self.refuse(key, parameter.spec.wanted.clone()))
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The error for a value that can be read and does not do.
    pub fn refuse(&self, key: &str, wanted: impl Into<Cow<'static, str>>) -> RegistryError {
        RegistryError::ParameterValue {
            device: self.driver.clone(),
            key: key.to_owned(),
            value: self.text(key).unwrap_or_default().to_owned(),
            wanted: wanted.into(),
        }
    }

    /// A value as it was written.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.find(key).map(|parameter| &*parameter.value)
    }

    /// A number of any type.
    ///
    /// # Errors
    /// A value that is none.
    pub fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, RegistryError> {
        self.read(key, |value| value.parse().ok())
    }

    /// A size in bytes: a number, whole or decimal, and `B`, `KiB`, `MiB`, `GiB` or `TiB`.
    ///
    /// # Errors
    /// A value that is none.
    pub fn bytes(&self, key: &str) -> Result<Option<usize>, RegistryError> {
        self.read(key, |value| usize::try_from(scaled(value, BYTE_UNITS)?).ok())
    }

    /// A span of time: a number, whole or decimal, and `ns`, `us`, `ms` or `s`.
    ///
    /// # Errors
    /// A value that is none.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>, RegistryError> {
        self.read(key, |value| Some(Duration::from_nanos(scaled(value, TIME_UNITS)?)))
    }

    /// `true` or `false`, `yes` or `no`, `on` or `off`, `1` or `0`.
    ///
    /// # Errors
    /// A value that is none.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, RegistryError> {
        self.read(key, |value| match value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        })
    }

    /// Words separated by `+`, or by commas in quotes. An empty value in quotes is an empty list.
    ///
    /// # Errors
    /// An empty word.
    pub fn list(&self, key: &str) -> Result<Option<Vec<&str>>, RegistryError> {
        self.read(key, |value| {
            if value.is_empty() {
                return Some(Vec::new());
            }
            let words = value.split(['+', ',']).map(str::trim);
            words.map(|word| (!word.is_empty()).then_some(word)).collect()
        })
    }
}

/// A decimal number times its unit, rounded down.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start().to_lowercase();
    let &(_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction_digits = u32::try_from(fraction.len()).ok()?;
    let (whole, fraction): (u128, u128) = (whole.parse().ok()?, fraction.parse().ok()?);
    let factor = u128::from(factor);
    let part = fraction.checked_mul(factor)? / 10u128.checked_pow(fraction_digits)?;
    u64::try_from(whole.checked_mul(factor)?.checked_add(part)?).ok()
}
