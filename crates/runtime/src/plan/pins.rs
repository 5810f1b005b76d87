//! Pins by name pattern: `PATTERN=DEVICE`, kept over any number of graphs.
//!
//! A pattern is held against whole names; `*` stands for any characters, `?` for one. The device
//! is its number in the list that planning was given, or its name. What a pattern matches is
//! looked up anew for each graph, so that the pins outlive every plan. Views follow their base
//! whatever matches them, and the last pin that matches a tensor counts.

use std::fmt;
use std::str::FromStr;

use tensoryard_graph::Graph;

use super::{DeviceIndex, Pin, PlanDevice, PlanOptions};
use crate::PlanError;

/// A device as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceSelector {
    /// Its position in the list of devices.
    Index(usize),
    /// Its name, without regard to case.
    Name(String),
}

impl DeviceSelector {
    /// The selector of a text: a number is a position, anything else a name.
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(index) => Self::Index(index),
            Err(_) => Self::Name(text.to_owned()),
        }
    }

    /// The device in a list, if it is there.
    pub fn find(&self, devices: &[PlanDevice]) -> Option<DeviceIndex> {
        match self {
            Self::Index(index) => (*index < devices.len()).then_some(DeviceIndex(*index)),
            Self::Name(name) => devices
                .iter()
                .position(|device| device.device.info().name.eq_ignore_ascii_case(name))
                .map(DeviceIndex),
        }
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "device {index}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A pin by name pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedPin {
    /// The pattern.
    pub pattern: String,
    /// Where what it matches shall be.
    pub device: DeviceSelector,
}

/// A text that is no pin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no pin, wanted PATTERN=DEVICE")]
pub struct PinSyntax(pub String);

impl FromStr for NamedPin {
    type Err = PinSyntax;

    fn from_str(text: &str) -> Result<Self, PinSyntax> {
        let (pattern, device) = text.rsplit_once('=').ok_or_else(|| PinSyntax(text.to_owned()))?;
        let (pattern, device) = (pattern.trim(), device.trim());
        if pattern.is_empty() || device.is_empty() {
            return Err(PinSyntax(text.to_owned()));
        }
        Ok(Self { pattern: pattern.to_owned(), device: DeviceSelector::parse(device) })
    }
}

impl NamedPin {
    /// Whatever a pattern matches, on a device given by its position or name.
    pub fn new(pattern: impl Into<String>, device: &str) -> Self {
        Self { pattern: pattern.into(), device: DeviceSelector::parse(device) }
    }

    /// Whether the pattern matches a whole name.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.pattern, name)
    }
}

/// Whether a pattern of `*`, `?` and plain characters matches a whole name.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Where to go on, one character further, when what stands behind the last star fails.
    let mut retry = None;
    loop {
        let here = name.clone();
        match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((pattern.clone(), here.clone()));
                name = here;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {}
            (Some(_) | None, _) => {
                let Some((behind, mut from)) = retry.take() else { return false };
                if from.next().is_none() {
                    return false;
                }
                retry = Some((behind.clone(), from.clone()));
                (pattern, name) = (behind, from);
            }
        }
    }
}

/// Pins by name pattern, in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[doc(alias = "ggml_backend_sched_set_tensor_backend")]
pub struct Pins {
    pins: Vec<NamedPin>,
}

impl Pins {
    /// No pins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pin; one of the same pattern is replaced.
    pub fn add(&mut self, pin: NamedPin) {
        self.remove(&pin.pattern);
        self.pins.push(pin);
    }

    /// Adds a pin from its text, `PATTERN=DEVICE`.
    ///
    /// # Errors
    /// A text of another form.
    pub fn parse(&mut self, text: &str) -> Result<(), PinSyntax> {
        self.add(text.parse()?);
        Ok(())
    }

    /// Removes the pin of a pattern. Tells whether it was there.
    pub fn remove(&mut self, pattern: &str) -> bool {
        let before = self.pins.len();
        self.pins.retain(|pin| pin.pattern != pattern);
        self.pins.len() != before
    }

    /// The pins in order.
    pub fn iter(&self) -> impl Iterator<Item = &NamedPin> {
        self.pins.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// The pins of one graph's tensors, and the patterns that match nothing in it.
    ///
    /// # Errors
    /// A device that does not exist.
    pub fn resolve(
        &self,
        graph: &Graph,
        devices: &[PlanDevice],
    ) -> Result<(Vec<Pin>, Vec<&NamedPin>), PlanError> {
        let mut found = vec![false; self.pins.len()];
        let mut resolved = Vec::new();
        let mut indices = Vec::with_capacity(self.pins.len());
        for pin in &self.pins {
            let index = pin.device.find(devices).ok_or_else(|| PlanError::Pin {
                tensor: pin.pattern.clone(),
                device: pin.device.to_string(),
                reason: "there is no such device".to_owned(),
            })?;
            indices.push(index);
        }
        if self.pins.is_empty() {
            return Ok((resolved, Vec::new()));
        }
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            let mut last = None;
            for (number, pin) in self.pins.iter().enumerate() {
                if pin.matches(&desc.name) {
                    found[number] = true;
                    last = Some(indices[number]);
                }
            }
            let is_view = desc.op().is_some_and(|op| op.is_view());
            if let Some(device) = last.filter(|_| !is_view) {
                resolved.push(Pin { tensor: id, device });
            }
        }
        let unmatched = self.pins.iter().zip(found).filter(|(_, found)| !found);
        Ok((resolved, unmatched.map(|(pin, _)| pin).collect()))
    }

    /// The pins that match nothing in any of the graphs.
    pub fn unmatched(&self, graphs: &[&Graph]) -> Vec<&NamedPin> {
        let matches_some = |pin: &NamedPin| {
            graphs.iter().any(|graph| {
                graph.ids().any(|id| graph.is_live(id) && pin.matches(&graph.tensor(id).name))
            })
        };
        self.pins.iter().filter(|pin| !matches_some(pin)).collect()
    }
}

/// All pins of a graph: those by pattern, and those by id, which count more.
pub(super) fn all(
    graph: &Graph,
    devices: &[PlanDevice],
    options: &PlanOptions,
) -> Result<Vec<Pin>, PlanError> {
    let (mut pins, _) = options.named_pins.resolve(graph, devices)?;
    pins.retain(|pin| options.pins.iter().all(|by_id| by_id.tensor != pin.tensor));
    pins.extend(&options.pins);
    Ok(pins)
}
