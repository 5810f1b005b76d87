//! The note beside a cached model: what it is and where it came from.
//!
//! A text file of `key = value` lines, so that a person can read it. Unknown
//! keys are ignored, which lets a newer version add some.

/// What is recorded about a cached model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Name in the catalogue.
    pub model: String,
    /// The source that delivered it, in words.
    pub source: String,
    /// SHA-256 of the converted file.
    pub sha256: String,
    /// Size of the converted file in bytes.
    pub size_bytes: u64,
    /// Version of the library that converted it.
    pub converted_by: String,
    /// Revision of the conversion, see [`Fetch::revision`](super::Fetch::revision).
    pub revision: u32,
}

impl Manifest {
    pub(super) fn to_text(&self) -> String {
        let Self { model, source, sha256, size_bytes, converted_by, revision } = self;
        format!(
            "model = {model}\nsource = {source}\nsha256 = {sha256}\nsize_bytes = {size_bytes}\n\
             converted_by = {converted_by}\nrevision = {revision}\n"
        )
    }

    /// Reads what [`Self::to_text`] wrote; `None` when a key is missing or wrong.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(found, _)| found.trim() == key)
                .map(|(_, value)| value.trim())
        };
        Some(Self {
            model: value("model")?.to_owned(),
            source: value("source")?.to_owned(),
            sha256: value("sha256")?.to_owned(),
            size_bytes: value("size_bytes")?.parse().ok()?,
            converted_by: value("converted_by")?.to_owned(),
            revision: value("revision")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let manifest = Manifest {
            model: "tiny.en".into(),
            source: "a = b".into(),
            sha256: "00ff".into(),
            size_bytes: 12,
            converted_by: "0.1.0".into(),
            revision: 3,
        };
        let text = format!("{}later = yes\n", manifest.to_text());
        assert_eq!(Manifest::from_text(&text), Some(manifest));
        assert_eq!(Manifest::from_text("model = x\nsize_bytes = many\n"), None);
    }
}
