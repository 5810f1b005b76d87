//! Numbers and amounts of money in digits.
//!
//! Reads a sentence word by word, gathering neighbouring number words into one
//! value: "twenty one" 21, "nineteen eighty four" 1984, "three point one four"
//! 3.14, "double oh seven" 007, "five dollars" $5. Digits and number words that
//! follow each other without a scale between them are written side by side.

use std::collections::HashMap;

use fancy_regex::Regex;

use super::{group, pattern, replace_each};

const UNITS: [&str; 19] = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] =
    ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
/// 10^3, 10^6, …
const SCALES: [&str; 11] = [
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
];
/// Signs that may stand before digits.
const SIGNS: [char; 6] = ['-', '+', '£', '€', '$', '¢'];

/// What a word says about a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Zero,
    /// One to nineteen, with the ending of an ordinal or plural.
    Unit(u128, Option<&'static str>),
    /// Twenty to ninety.
    Ten(u128, Option<&'static str>),
    /// Hundred, thousand and up.
    Scale(u128, Option<&'static str>),
    /// "minus", "plus" before a number.
    SignBefore(char),
    /// "dollars" and the like after a number.
    CurrencyAfter(char),
    Percent,
    /// "per", which with "cent" is percent.
    Per,
    And,
    /// "double", "triple".
    Repeat(usize),
    Point,
}

impl Meaning {
    /// Zero to ninety without ending: what may follow "point".
    fn is_decimal(self) -> bool {
        matches!(self, Self::Zero | Self::Unit(_, None) | Self::Ten(_, None))
    }
}

fn number_words() -> HashMap<String, Meaning> {
    let mut words = HashMap::new();
    for zero in ["o", "oh", "zero"] {
        words.insert(zero.to_owned(), Meaning::Zero);
    }
    words.insert("zeroth".to_owned(), Meaning::Unit(0, Some("th")));
    for (value, name) in (1..).zip(UNITS) {
        words.insert(name.to_owned(), Meaning::Unit(value, None));
        let plural = if name == "six" { "sixes".to_owned() } else { format!("{name}s") };
        words.insert(plural, Meaning::Unit(value, Some("s")));
        // The regular forms of fourth and up, "nineth" included, are the ones that count.
        let (ordinal, ending) = match value {
            1 => ("first".to_owned(), "st"),
            2 => ("second".to_owned(), "nd"),
            3 => ("third".to_owned(), "rd"),
            5 => ("fifth".to_owned(), "th"),
            12 => ("twelfth".to_owned(), "th"),
            _ if name.ends_with('t') => (format!("{name}h"), "th"),
            _ => (format!("{name}th"), "th"),
        };
        words.insert(ordinal, Meaning::Unit(value, Some(ending)));
    }
    for (value, name) in (2..).zip(TENS) {
        let value = value * 10;
        words.insert(name.to_owned(), Meaning::Ten(value, None));
        words.insert(name.replace('y', "ies"), Meaning::Ten(value, Some("s")));
        words.insert(name.replace('y', "ieth"), Meaning::Ten(value, Some("th")));
    }
    let scales = (1..).zip(SCALES).map(|(power, name)| (1000_u128.pow(power), name));
    for (value, name) in scales.chain([(100, "hundred")]) {
        words.insert(name.to_owned(), Meaning::Scale(value, None));
        words.insert(format!("{name}s"), Meaning::Scale(value, Some("s")));
        words.insert(format!("{name}th"), Meaning::Scale(value, Some("th")));
    }
    let others = [
        ("minus", Meaning::SignBefore('-')),
        ("negative", Meaning::SignBefore('-')),
        ("plus", Meaning::SignBefore('+')),
        ("positive", Meaning::SignBefore('+')),
        ("pound", Meaning::CurrencyAfter('£')),
        ("pounds", Meaning::CurrencyAfter('£')),
        ("euro", Meaning::CurrencyAfter('€')),
        ("euros", Meaning::CurrencyAfter('€')),
        ("dollar", Meaning::CurrencyAfter('$')),
        ("dollars", Meaning::CurrencyAfter('$')),
        ("cent", Meaning::CurrencyAfter('¢')),
        ("cents", Meaning::CurrencyAfter('¢')),
        ("percent", Meaning::Percent),
        ("per", Meaning::Per),
        ("and", Meaning::And),
        ("double", Meaning::Repeat(2)),
        ("triple", Meaning::Repeat(3)),
        ("point", Meaning::Point),
    ];
    words.extend(others.map(|(word, meaning)| (word.to_owned(), meaning)));
    words
}

/// A number that is being gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    /// A whole number that can still be added to and multiplied.
    Whole(u128),
    /// Digits, perhaps with a point, that can only be continued.
    Digits(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Digits(digits) => digits.clone(),
        }
    }

    /// Digits to continue with; a whole zero leaves no digit behind.
    fn prefix_text(value: Option<Self>) -> String {
        match value {
            None | Some(Self::Whole(0)) => String::new(),
            Some(value) => value.text(),
        }
    }

    /// The value times a scale, if that is a whole number.
    fn times(&self, scale: u128) -> Option<u128> {
        match self {
            Self::Whole(number) => number.checked_mul(scale),
            Self::Digits(digits) => decimal_times(digits, scale),
        }
    }
}

/// `digits` (such as `2.5`, `21.` or `.5`) times `scale`, if whole and in range.
fn decimal_times(digits: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let all_digits: String = [whole, fraction].concat();
    if !all_digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let product = all_digits.parse::<u128>().ok()?.checked_mul(scale)?;
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    product.is_multiple_of(divisor).then(|| product / divisor)
}

/// True for digits, perhaps with a fraction: `12`, `3.14`.
fn is_numeric(word: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match word.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
        None => is_digits(word),
    }
}

/// The value of digits in a text: whole where the fraction is zero.
fn numeric_value(digits: &str) -> Value {
    match decimal_times(digits, 1) {
        Some(number) => Value::Whole(number),
        None if digits.contains('.') => Value::Digits(digits.to_owned()),
        None => Value::Digits(digits.trim_start_matches('0').to_owned()),
    }
}

/// Writes the numbers of a sentence in digits.
#[derive(Debug, Clone)]
pub(super) struct NumberNormalizer {
    words: HashMap<String, Meaning>,
    and_a_half: Regex,
    letter_digit: Regex,
    digit_letter: Regex,
    separate_ending: Regex,
    whole_and_cents: Regex,
    only_cents: Regex,
    lone_one: Regex,
}

impl NumberNormalizer {
    pub(super) fn new() -> Self {
        Self {
            words: number_words(),
            and_a_half: pattern(r"\band\s+a\s+half\b"),
            letter_digit: pattern(r"([a-z])([0-9])"),
            digit_letter: pattern(r"([0-9])([a-z])"),
            separate_ending: pattern(r"([0-9])\s+(st|nd|rd|th|s)\b"),
            whole_and_cents: pattern(r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b"),
            only_cents: pattern(r"[€£$]0.([0-9]{1,2})\b"),
            lone_one: pattern(r"\b1(s?)\b"),
        }
    }

    /// Normalises lower-case text; words come out separated by single spaces.
    pub(super) fn normalize(&self, text: &str) -> String {
        let prepared = self.prepare(text);
        let words: Vec<&str> = prepared.split_whitespace().collect();
        let mut reader = Reader { words: &self.words, out: Vec::new(), sign: None, value: None };
        reader.read(&words);
        self.finish(&reader.out.join(" "))
    }

    fn prepare(&self, text: &str) -> String {
        let text = self.halves(text);
        let spaced =
            |found: &fancy_regex::Captures<'_>| format!("{} {}", group(found, 1), group(found, 2));
        let text = replace_each(&self.letter_digit, &text, spaced);
        let text = replace_each(&self.digit_letter, &text, spaced);
        replace_each(&self.separate_ending, &text, |found| {
            format!("{}{}", group(found, 1), group(found, 2))
        })
    }

    /// "and a half" after a number is "point five".
    fn halves(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.and_a_half.find_iter(text).map_while(Result::ok) {
            let before = &text[done..found.start()];
            done = found.end();
            let Some(last_word) = before.split_whitespace().next_back() else { continue };
            parts.push(before);
            let after_number = self.words.get(last_word).is_some_and(|meaning| {
                meaning.is_decimal() || matches!(meaning, Meaning::Scale(_, None))
            });
            parts.push(if after_number { "point five" } else { "and a half" });
        }
        if !text[done..].trim().is_empty() {
            parts.push(&text[done..]);
        }
        parts.join(" ")
    }

    fn finish(&self, text: &str) -> String {
        let text = replace_each(&self.whole_and_cents, text, |found| {
            format!("{}{}.{:0>2}", group(found, 1), group(found, 2), group(found, 3))
        });
        let text = replace_each(&self.only_cents, &text, |found| {
            let cents = group(found, 1);
            let bare = cents.trim_start_matches('0');
            format!("¢{}", if bare.is_empty() { "0" } else { bare })
        });
        // A one alone reads better as a word.
        replace_each(&self.lone_one, &text, |found| format!("one{}", group(found, 1)))
    }
}

/// Reads words and writes numbers.
struct Reader<'a> {
    words: &'a HashMap<String, Meaning>,
    out: Vec<String>,
    /// Sign or currency that the next output takes in front.
    sign: Option<char>,
    value: Option<Value>,
}

impl Reader<'_> {
    fn read(&mut self, words: &[&str]) {
        let mut at = 0;
        while at < words.len() {
            let previous = at.checked_sub(1).map(|before| words[before]);
            let used_next = self.word(words[at], previous, words.get(at + 1).copied());
            at += if used_next { 2 } else { 1 };
        }
        self.flush();
    }

    /// Takes one word in; true if the next word is used up with it.
    fn word(&mut self, word: &str, previous: Option<&str>, next: Option<&str>) -> bool {
        let sign = word.chars().next().filter(|first| SIGNS.contains(first));
        let digits = &word[sign.map_or(0, char::len_utf8)..];
        if is_numeric(digits) {
            self.digits(word, sign, digits);
            return false;
        }

        let meaning_of = |word: &str| self.words.get(word).copied();
        let Some(meaning) = meaning_of(word) else {
            self.flush();
            self.write(word.to_owned());
            return false;
        };
        let previous = previous.and_then(meaning_of);
        let next_meaning = next.and_then(meaning_of);
        let next_is_numeric = next.is_some_and(is_numeric);
        let next_may_be_number = next_meaning.is_some() || next_is_numeric;

        match meaning {
            Meaning::Zero => {
                let digits = Value::prefix_text(self.value.take()) + "0";
                self.value = Some(Value::Digits(digits));
            }
            Meaning::Unit(number, ending) => {
                let value = self.with_unit(number, previous);
                self.set_or_write(value, ending);
            }
            Meaning::Ten(number, ending) => {
                let value = self.joined(number, 100);
                self.set_or_write(value, ending);
            }
            Meaning::Scale(scale, ending) => self.scale(scale, ending),
            Meaning::SignBefore(sign) => {
                self.flush();
                if next_may_be_number {
                    self.sign = Some(sign);
                } else {
                    self.write(word.to_owned());
                }
            }
            Meaning::CurrencyAfter(currency) => {
                if self.value.is_some() {
                    self.sign = Some(currency);
                    self.flush();
                } else {
                    self.write(word.to_owned());
                }
            }
            Meaning::Percent => self.percent_or(word),
            Meaning::Per if next == Some("cent") && self.value.is_some() => {
                self.percent_or(word);
                return true;
            }
            Meaning::Per => self.plain(word),
            Meaning::And | Meaning::Repeat(_) | Meaning::Point if !next_may_be_number => {
                self.plain(word);
            }
            // "hundred and" joins what follows.
            Meaning::And if matches!(previous, Some(Meaning::Scale(_, None))) => {}
            Meaning::And => self.plain(word),
            Meaning::Repeat(times) => {
                let digit = match next_meaning {
                    Some(Meaning::Zero) => 0,
                    Some(Meaning::Unit(number, None)) => number,
                    _ => {
                        self.plain(word);
                        return false;
                    }
                };
                let digits = digit.to_string().repeat(times);
                self.value = Some(Value::Digits(Value::prefix_text(self.value.take()) + &digits));
                return true;
            }
            Meaning::Point => {
                if next_is_numeric || next_meaning.is_some_and(Meaning::is_decimal) {
                    let digits = Value::prefix_text(self.value.take()) + ".";
                    self.value = Some(Value::Digits(digits));
                }
            }
        }
        false
    }

    /// Digits in the text start a new number, except after a point.
    fn digits(&mut self, word: &str, sign: Option<char>, digits: &str) {
        match &mut self.value {
            Some(Value::Digits(value)) if value.ends_with('.') => {
                value.push_str(word);
                return;
            }
            Some(_) => self.flush(),
            None => {}
        }
        self.sign = sign.or(self.sign);
        self.value = Some(numeric_value(digits));
    }

    /// The value with a number from one to nineteen after it.
    fn with_unit(&self, number: u128, previous: Option<Meaning>) -> Value {
        let after_unit = matches!(previous, Some(Meaning::Unit(_, None)));
        let after_ten = matches!(previous, Some(Meaning::Ten(_, None)));
        match &self.value {
            Some(Value::Digits(digits)) if after_ten && number < 10 => {
                let kept = digits.strip_suffix('0').unwrap_or(digits);
                Value::Digits(format!("{kept}{number}"))
            }
            Some(value) if after_unit => Value::Digits(format!("{}{number}", value.text())),
            _ => self.joined(number, if number < 10 { 10 } else { 100 }),
        }
    }

    /// The value plus `number` if it ends in enough zeros, else both side by side.
    fn joined(&self, number: u128, room: u128) -> Value {
        match &self.value {
            None => Value::Whole(number),
            Some(Value::Whole(value)) if value.is_multiple_of(room) => {
                Value::Whole(value.saturating_add(number))
            }
            Some(value) => Value::Digits(format!("{}{number}", value.text())),
        }
    }

    fn scale(&mut self, scale: u128, ending: Option<&'static str>) {
        let scaled = match &self.value {
            None => Some(scale),
            Some(Value::Whole(value)) if *value > 0 => {
                let below_thousand = value % 1000;
                let scaled = below_thousand.checked_mul(scale);
                scaled.and_then(|scaled| (value - below_thousand).checked_add(scaled))
            }
            // A plural or ordinal scale after zero only ends it.
            Some(Value::Whole(_)) => Some(0),
            Some(value) => value.times(scale),
        };
        if scaled.is_none() {
            self.flush();
        }
        self.set_or_write(Value::Whole(scaled.unwrap_or(scale)), ending);
    }

    /// A cardinal may go on; an ordinal or plural is complete.
    fn set_or_write(&mut self, value: Value, ending: Option<&str>) {
        match ending {
            None => self.value = Some(value),
            Some(ending) => self.write(value.text() + ending),
        }
    }

    fn percent_or(&mut self, word: &str) {
        match self.value.take() {
            Some(value) => self.write(value.text() + "%"),
            None => self.write(word.to_owned()),
        }
    }

    fn plain(&mut self, word: &str) {
        self.flush();
        self.write(word.to_owned());
    }

    fn flush(&mut self) {
        if let Some(value) = self.value.take() {
            self.write(value.text());
        }
    }

    /// Writes a word with the pending sign, and starts anew.
    fn write(&mut self, mut text: String) {
        if let Some(sign) = self.sign.take() {
            text.insert(0, sign);
        }
        self.value = None;
        self.out.push(text);
    }
}
