//! The text that names a device: `DRIVER[:INDEX|:"NAME"][:key=value[;key=value]…]`.
//!
//! Devices of a list are separated by commas. Quotes protect separators in names and values; two
//! quotes inside of them stand for one. Spaces around names, values and separators mean nothing.

use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

use crate::RegistryError;

/// Which device of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selector {
    /// The one that the driver likes best.
    #[default]
    First,
    /// The one with this number among the driver's listed devices.
    Index(usize),
    /// The one of this name, compared without regard to case.
    Name(String),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::First => Ok(()),
            Selector::Index(index) => write!(f, ":{index}"),
            Selector::Name(name) => write!(f, ":{name}"),
        }
    }
}

/// The parts of a device's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceSpec {
    pub driver: String,
    pub which: Selector,
    pub parameters: Vec<(String, String)>,
}

/// The devices of a list.
pub(super) fn parse_list(text: &str) -> Result<Vec<DeviceSpec>, RegistryError> {
    let mut tokens = Tokens { text, chars: text.char_indices().peekable() };
    let mut specs = Vec::new();
    loop {
        let (spec, end) = parse_device(&mut tokens)?;
        specs.push(spec);
        if end.is_none() {
            return Ok(specs);
        }
    }
}

/// The one device of a text.
pub(super) fn parse_one(text: &str) -> Result<DeviceSpec, RegistryError> {
    let mut specs = parse_list(text)?;
    match specs.pop() {
        Some(spec) if specs.is_empty() => Ok(spec),
        Some(_) | None => Err(syntax(text, "it names several devices; quotes protect commas")),
    }
}

/// One device, and the comma behind it.
fn parse_device(tokens: &mut Tokens<'_>) -> Result<(DeviceSpec, Option<char>), RegistryError> {
    let (driver, mut separator) = tokens.next()?;
    if driver.text.is_empty() {
        return Err(tokens.error("a driver's name is missing"));
    }
    let mut spec =
        DeviceSpec { driver: driver.text, which: Selector::First, parameters: Vec::new() };
    if separator == Some(':') {
        let (word, behind) = tokens.next()?;
        separator = if behind == Some('=') {
            tokens.parameters(word, &mut spec)?
        } else {
            spec.which = tokens.selector(word)?;
            match behind {
                Some(':') => {
                    let (key, behind) = tokens.next()?;
                    if behind != Some('=') {
                        let problem =
                            format!("{:?} is no parameter: key=value is wanted", key.text);
                        return Err(tokens.error(&problem));
                    }
                    tokens.parameters(key, &mut spec)?
                }
                other => other,
            }
        };
    }
    match separator {
        None | Some(',') => Ok((spec, separator)),
        Some(other) => Err(tokens.error(&format!("{other:?} stands where a device ends"))),
    }
}

/// A name or value, and whether it stood in quotes.
struct Word {
    text: String,
    quoted: bool,
}

struct Tokens<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

fn syntax(text: &str, problem: &str) -> RegistryError {
    RegistryError::Syntax { text: text.to_owned(), problem: problem.to_owned() }
}

impl Tokens<'_> {
    fn error(&self, problem: &str) -> RegistryError {
        syntax(self.text, problem)
    }

    fn skip_spaces(&mut self) {
        while self.chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
    }

    /// The next word and the separator behind it; no separator at the end.
    fn next(&mut self) -> Result<(Word, Option<char>), RegistryError> {
        self.skip_spaces();
        let quoted = self.chars.next_if(|&(_, c)| c == '"').is_some();
        let mut word = String::new();
        if quoted {
            loop {
                match self.chars.next() {
                    None => return Err(self.error("a quote is not closed")),
                    Some((_, '"')) if self.chars.next_if(|&(_, c)| c == '"').is_none() => break,
                    Some((_, c)) => word.push(c),
                }
            }
            self.skip_spaces();
        }
        loop {
            match self.chars.next() {
                None => return Ok((finish(word, quoted), None)),
                Some((_, c @ (':' | ';' | '=' | ','))) => {
                    return Ok((finish(word, quoted), Some(c)));
                }
                Some((_, '"')) => return Err(self.error("a quote stands within a name or value")),
                Some((_, _)) if quoted => return Err(self.error("text follows a closed quote")),
                Some((_, c)) => word.push(c),
            }
        }
    }

    fn selector(&self, word: Word) -> Result<Selector, RegistryError> {
        if word.text.is_empty() {
            return Err(self.error("a device's number or name is missing"));
        }
        if !word.quoted && word.text.bytes().all(|byte| byte.is_ascii_digit()) {
            let index = word.text.parse();
            let index = index.map_err(|_| self.error("no device has so large a number"))?;
            return Ok(Selector::Index(index));
        }
        Ok(Selector::Name(word.text))
    }

    /// Parameters from the first key on, whose `=` was read.
    fn parameters(
        &mut self,
        first: Word,
        spec: &mut DeviceSpec,
    ) -> Result<Option<char>, RegistryError> {
        let mut key = first.text;
        loop {
            let (value, behind) = self.next()?;
            if key.is_empty() {
                return Err(self.error("a parameter has no name"));
            }
            if value.text.is_empty() && !value.quoted {
                return Err(self.error(&format!("parameter {key:?} has no value")));
            }
            if spec.parameters.iter().any(|(known, _)| known.eq_ignore_ascii_case(&key)) {
                return Err(self.error(&format!("parameter {key:?} is given twice")));
            }
            spec.parameters.push((key, value.text));
            if behind != Some(';') {
                return Ok(behind);
            }
            let (next, equals) = self.next()?;
            if equals != Some('=') {
                let problem = format!("{:?} is no parameter: key=value is wanted", next.text);
                return Err(self.error(&problem));
            }
            key = next.text;
        }
    }
}

fn finish(mut word: String, quoted: bool) -> Word {
    if !quoted {
        word.truncate(word.trim_end().len());
    }
    Word { text: word, quoted }
}
