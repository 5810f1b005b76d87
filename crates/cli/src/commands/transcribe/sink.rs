//! Where transcripts go: standard output, one file, or a file for each input.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use tensoryard::Transcript;
use tensoryard::formats::AtomicFile;
use tensoryard::models::whisper::write::{segment_line, to_json, to_srt, to_text, to_vtt};
use tensoryard::speech::Segment;

use crate::output;

/// Form of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line for each segment
    Text,
    /// SubRip subtitles
    Srt,
    /// WebVTT subtitles
    Vtt,
    /// Segments with times, tokens and probabilities; an array for several inputs
    Json,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Format::Text => "txt",
            Format::Srt => "srt",
            Format::Vtt => "vtt",
            Format::Json => "json",
        }
    }

    fn write(self, transcript: &Transcript) -> anyhow::Result<String> {
        Ok(match self {
            Format::Text => to_text(transcript),
            Format::Srt => to_srt(transcript),
            Format::Vtt => to_vtt(transcript),
            Format::Json => to_json(transcript)?,
        })
    }
}

enum Target {
    Stdout,
    File(PathBuf),
    /// A file for each input, in the order of the inputs.
    Files(Vec<PathBuf>),
}

/// Takes transcripts in the order of the inputs.
pub struct Sink {
    format: Format,
    target: Target,
    several: bool,
    /// What one file, or a JSON array, has gathered so far.
    gathered: Vec<serde_json::Value>,
    text: String,
    /// Inputs that were begun.
    begun: usize,
    /// Inputs that were transcribed to their end.
    done: usize,
}

impl Sink {
    /// Decides where the transcripts of these inputs go.
    pub fn new(format: Format, output: Option<&Path>, stems: &[&Path]) -> anyhow::Result<Self> {
        let several = stems.len() > 1;
        let target = match output {
            None => Target::Stdout,
            Some(path) if path.as_os_str() == "-" => Target::Stdout,
            Some(path) => {
                let text = path.to_string_lossy();
                if path.is_dir() || text.ends_with(['/', std::path::MAIN_SEPARATOR]) {
                    std::fs::create_dir_all(path)
                        .with_context(|| format!("cannot make the folder {}", path.display()))?;
                    Target::Files(output_files(path, format, stems))
                } else {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    // Told now, not after hours of work.
                    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                        anyhow::bail!("{}: there is no such folder", folder.display());
                    }
                    Target::File(path.to_owned())
                }
            }
        };
        match &target {
            Target::Stdout => {}
            Target::File(path) => refuse_input(path, stems)?,
            Target::Files(paths) => {
                paths.iter().try_for_each(|path| refuse_input(path, stems))?;
            }
        }
        let is_subtitle = matches!(format, Format::Srt | Format::Vtt);
        if several && is_subtitle && !matches!(target, Target::Files(_)) {
            anyhow::bail!(
                "subtitles of several inputs cannot be one file; --output FOLDER/ writes one each"
            );
        }
        Ok(Self {
            format,
            target,
            several,
            gathered: Vec::new(),
            text: String::new(),
            begun: 0,
            done: 0,
        })
    }

    /// Text goes to standard output segment by segment, as it is found.
    fn is_streamed(&self) -> bool {
        matches!(self.target, Target::Stdout) && self.format == Format::Text
    }

    /// An input is about to be transcribed.
    pub fn begin(&mut self, name: &str) -> anyhow::Result<()> {
        self.begun += 1;
        if self.several && self.is_streamed() {
            output::print(&heading(name, self.begun == 1))?;
        }
        Ok(())
    }

    /// A segment of the current input is final.
    pub fn segment(&mut self, segment: &Segment) -> anyhow::Result<()> {
        match segment_line(segment) {
            Some(line) if self.is_streamed() => output::print(&format!("{line}\n")),
            Some(_) | None => Ok(()),
        }
    }

    /// The current input is done.
    pub fn end(
        &mut self,
        number: usize,
        name: &str,
        transcript: &Transcript,
    ) -> anyhow::Result<()> {
        self.done += 1;
        if self.is_streamed() {
            return Ok(());
        }
        match &self.target {
            Target::Files(files) => write_file(&files[number], &self.format.write(transcript)?),
            Target::Stdout | Target::File(_) if self.format == Format::Json && self.several => {
                self.gathered.push(json!({ "file": name, "transcript": transcript }));
                Ok(())
            }
            Target::Stdout => output::print(&self.format.write(transcript)?),
            Target::File(_) => {
                if self.several && self.format == Format::Text {
                    self.text.push_str(&heading(name, self.done == 1));
                }
                self.text.push_str(&self.format.write(transcript)?);
                Ok(())
            }
        }
    }

    /// All inputs are done: writes what was gathered. When not one of them was
    /// transcribed, a file of an earlier run stays as it is.
    pub fn finish(mut self) -> anyhow::Result<()> {
        if self.done == 0 {
            return Ok(());
        }
        if self.format == Format::Json && self.several && !matches!(self.target, Target::Files(_)) {
            self.text = format!("{:#}\n", json!(self.gathered));
        }
        match &self.target {
            Target::Files(_) => Ok(()),
            Target::Stdout => output::print(&self.text),
            Target::File(path) => write_file(path, &self.text),
        }
    }
}

/// The line above the text of one of several inputs.
fn heading(name: &str, is_first: bool) -> String {
    let gap = if is_first { "" } else { "\n" };
    format!("{gap}{name}:\n")
}

/// An output must not replace a recording, by whatever name it goes.
fn refuse_input(output: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let Ok(output_file) = output.canonicalize() else { return Ok(()) };
    let is_output = |input: &&&Path| input.canonicalize().is_ok_and(|file| file == output_file);
    match inputs.iter().find(is_output) {
        Some(input) => anyhow::bail!("{} is an input; it would be lost", input.display()),
        None => Ok(()),
    }
}

/// Replaces a file as a whole. Pipes and devices are written to as they are, links are followed.
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if target.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(&target)
            .with_context(|| format!("cannot open {}", path.display()))?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(());
    }
    let mut file = AtomicFile::create(&target)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.commit()?)
}

/// `FOLDER/NAME.txt` for each input; inputs whose names differ only in the ending keep it.
fn output_files(folder: &Path, format: Format, stems: &[&Path]) -> Vec<PathBuf> {
    let plain = |path: &Path| {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        format!("{}.{}", stem.to_string_lossy(), format.extension())
    };
    let mut counts = std::collections::HashMap::new();
    for stem in stems {
        *counts.entry(plain(stem)).or_insert(0) += 1;
    }
    let mut taken = HashSet::new();
    stems
        .iter()
        .map(|stem| {
            let mut name = plain(stem);
            if counts[&name] > 1 {
                let whole = stem.file_name().unwrap_or(stem.as_os_str()).to_string_lossy();
                name = format!("{whole}.{}", format.extension());
            }
            // Files of one name from different folders are numbered.
            let mut unique = name.clone();
            let mut number = 2;
            while !taken.insert(unique.clone()) {
                unique = format!("{number}-{name}");
                number += 1;
            }
            folder.join(unique)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_names_never_collide() {
        let stems = ["a/x.wav", "a/x.mp3", "b/x.mp3", "y.flac"].map(Path::new);
        let files = output_files(Path::new("out"), Format::Srt, &stems);
        let names = ["out/x.wav.srt", "out/x.mp3.srt", "out/2-x.mp3.srt", "out/y.srt"];
        assert_eq!(files, names.map(PathBuf::from));
    }

    #[test]
    fn an_output_never_replaces_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("talk.wav");
        std::fs::write(&recording, b"sound").unwrap();
        let notes = folder.path().join("notes.txt");
        std::fs::write(&notes, b"sound, too").unwrap();
        let inputs = [recording.as_path(), notes.as_path()];
        for output in [recording.as_path(), folder.path()] {
            let error = Sink::new(Format::Text, Some(output), &inputs).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("is an input"), "{error}");
        }
        let other = folder.path().join("out.txt");
        assert!(Sink::new(Format::Text, Some(&other), &inputs).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real.txt"), folder.path().join("link.txt"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn subtitles_of_several_inputs_need_a_folder() {
        let stems = ["x.wav", "y.wav"].map(Path::new);
        assert!(Sink::new(Format::Srt, None, &stems).is_err());
        assert!(Sink::new(Format::Srt, None, &stems[..1]).is_ok());
    }
}
