//! `tensoryard eval`: error rates over a list of clips with known text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use tensoryard::TranscribeOptions;
use tensoryard::audio::load_mono_16k;
use tensoryard::models::text::{
    BasicNormalizer, EnglishNormalizer, ErrorCounts, char_errors, word_errors,
};
use tensoryard::speech::{Language, Transcriber};

use crate::app::App;
use crate::model::{LostDevices, ModelArgs};
use crate::output::{self, BOLD, Interrupted};
use crate::progress::AudioBar;

/// Transcribes the clips of a manifest and prints word and character error rates.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The table of clips
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,

    /// Only clips of this split; may be given several times
    #[arg(long, value_name = "NAME")]
    split: Vec<String>,

    /// Fail when the word error rate of any split is above this, in percent
    #[arg(long, value_name = "PERCENT")]
    max_wer: Option<f64>,

    /// Print each clip, too
    #[arg(long)]
    clips: bool,

    /// Print the result as JSON, for programs
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    model: ModelArgs,
}

/// A line of the manifest.
struct Clip {
    /// Line of the manifest.
    line: usize,
    file: String,
    split: String,
    language: Option<Language>,
    transcript: String,
}

/// What became of a clip.
struct Scored {
    clip: Clip,
    hypothesis: String,
    words: ErrorCounts,
    chars: ErrorCounts,
    seconds: f64,
    time: f64,
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let clips = read_manifest(&args.manifest, &args.split)?;
    let folder = args.manifest.parent().unwrap_or(Path::new("."));
    let loaded = args.model.load(app)?;
    let mut transcriber = loaded.transcriber(app)?;
    let mut lost = LostDevices::default();
    let multilingual = loaded.model.whisper().config().is_multilingual();

    let foreign = |clip: &&Clip| clip.language.is_some_and(|language| language.code() != "en");
    let not_english = clips.iter().filter(foreign).count();
    if !multilingual && not_english > 0 {
        output::say(&format!(
            "warning: {} knows English only; {not_english} clips are in other languages",
            args.model.model
        ));
    }
    let bar = AudioBar::new(clips.len() as f64, app);
    let mut scored = Vec::with_capacity(clips.len());
    for (number, clip) in clips.into_iter().enumerate() {
        bar.set(number as f64);
        let language = args.model.language.0.or(clip.language).filter(|_| multilingual);
        let result = score(clip, folder, language, &mut transcriber);
        bar.suspend(|| lost.tell(&mut transcriber));
        if app.interrupt.is_raised() {
            bar.finish();
            return Err(Interrupted.into());
        }
        scored.push(result?);
    }
    bar.finish();
    if args.json {
        output::print(&format!("{:#}\n", json_of(&scored)))?;
    } else {
        output::print(&text_of(&scored, args.clips))?;
    }
    check(&scored, args.max_wer)
}

fn read_manifest(path: &Path, splits: &[String]) -> anyhow::Result<Vec<Clip>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| header.iter().position(|title| title.trim() == name);
    let wanted = |name: &str| {
        column(name).with_context(|| format!("{shown}: the first line names no column {name:?}"))
    };
    let (file, transcript) = (wanted("file")?, wanted("transcript")?);
    let (split, language) = (column("split"), column("language"));
    let mut clips = Vec::new();
    for (number, line) in (2..).zip(lines).filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |index: usize| {
            cells.get(index).copied().with_context(|| {
                format!("{shown}, line {number}: {} columns, {} are needed", cells.len(), index + 1)
            })
        };
        let clip_split = split.map_or(Ok(""), cell)?;
        if !splits.is_empty() && !splits.iter().any(|wanted| wanted == clip_split) {
            continue;
        }
        clips.push(Clip {
            line: number,
            file: cell(file)?.to_owned(),
            split: clip_split.to_owned(),
            // Clips without speech or in several languages name none.
            language: language.map_or(Ok(""), cell)?.parse().ok(),
            transcript: cell(transcript)?.to_owned(),
        });
    }
    if clips.is_empty() {
        anyhow::bail!("{shown}: no clip of the splits asked for");
    }
    Ok(clips)
}

fn score(
    clip: Clip,
    folder: &Path,
    language: Option<Language>,
    transcriber: &mut Transcriber,
) -> anyhow::Result<Scored> {
    let path = folder.join(&clip.file);
    let line = clip.line;
    let in_line = || format!("line {line} of the manifest: cannot transcribe {}", path.display());
    let samples = load_mono_16k(path.as_path()).with_context(in_line)?;
    let mut options = TranscribeOptions::default();
    options.language = language;
    *transcriber.options_mut() = options;
    let start = Instant::now();
    let transcript = transcriber.transcribe(&samples).with_context(in_line)?;
    let time = start.elapsed().as_secs_f64();
    let spoken = clip.language.or(transcript.language);
    let is_english = spoken.is_none_or(|language| language.code() == "en");
    let normalize = |text: &str| {
        if is_english {
            EnglishNormalizer::new().normalize(text)
        } else {
            BasicNormalizer::new().normalize(text)
        }
    };
    let (reference, hypothesis) = (normalize(&clip.transcript), normalize(&transcript.text));
    Ok(Scored {
        words: word_errors(&reference, &hypothesis),
        chars: char_errors(&reference, &hypothesis),
        hypothesis: transcript.text,
        seconds: samples.len() as f64 / 16_000.0,
        clip,
        time,
    })
}

/// Sums of a split.
#[derive(Default)]
struct Total {
    clips: usize,
    words: Rate,
    chars: Rate,
    seconds: f64,
    time: f64,
}

#[derive(Default, Clone, Copy)]
struct Rate {
    errors: usize,
    length: usize,
}

impl Rate {
    fn add(&mut self, counts: &ErrorCounts) {
        self.errors += counts.errors();
        self.length += counts.reference_len();
    }

    /// `None` where the reference is empty: whatever was heard was made up.
    fn percent(self) -> Option<f64> {
        (self.length > 0).then(|| 100.0 * self.errors as f64 / self.length as f64)
    }

    fn text(self) -> String {
        match self.percent() {
            Some(percent) => format!("{percent:.2} %"),
            None => "n/a".to_owned(),
        }
    }
}

fn totals(scored: &[Scored]) -> BTreeMap<&str, Total> {
    let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
    for clip in scored {
        let total = totals.entry(&clip.clip.split).or_default();
        total.clips += 1;
        total.words.add(&clip.words);
        total.chars.add(&clip.chars);
        total.seconds += clip.seconds;
        total.time += clip.time;
    }
    totals
}

fn text_of(scored: &[Scored], show_clips: bool) -> String {
    let mut text = String::new();
    if show_clips {
        for clip in scored {
            let (mut words, mut chars) = (Rate::default(), Rate::default());
            words.add(&clip.words);
            chars.add(&clip.chars);
            text.push_str(&format!(
                "{}  WER {}  CER {}\n  said   {}\n  heard  {}\n",
                clip.clip.file,
                words.text(),
                chars.text(),
                clip.clip.transcript,
                clip.hypothesis.trim(),
            ));
        }
        text.push('\n');
    }
    text.push_str(&format!(
        "{BOLD}{:<16} {:>5} {:>6} {:>7} {:>9} {:>9} {:>9} {:>8}{BOLD:#}\n",
        "SPLIT", "CLIPS", "WORDS", "ERRORS", "WER", "CER", "AUDIO", "SPEED"
    ));
    for (split, total) in totals(scored) {
        let name = if split.is_empty() { "all" } else { split };
        text.push_str(&format!(
            "{name:<16} {:>5} {:>6} {:>7} {:>9} {:>9} {:>7.1} s {:>7.1}x\n",
            total.clips,
            total.words.length,
            total.words.errors,
            total.words.text(),
            total.chars.text(),
            total.seconds,
            total.seconds / total.time.max(1e-9),
        ));
    }
    text
}

fn json_of(scored: &[Scored]) -> serde_json::Value {
    let splits: serde_json::Map<_, _> = totals(scored)
        .into_iter()
        .map(|(split, total)| {
            let value = json!({
                "clips": total.clips,
                "words": total.words.length,
                "word_errors": total.words.errors,
                "wer_percent": total.words.percent(),
                "cer_percent": total.chars.percent(),
                "audio_seconds": total.seconds,
                "transcription_seconds": total.time,
            });
            (split.to_owned(), value)
        })
        .collect();
    let clips: Vec<_> = scored
        .iter()
        .map(|clip| {
            json!({
                "file": clip.clip.file,
                "split": clip.clip.split,
                "reference": clip.clip.transcript,
                "hypothesis": clip.hypothesis.trim(),
                "words": clip.words.reference_len(),
                "word_errors": clip.words.errors(),
                "wer_percent": (clip.words.reference_len() > 0).then(|| 100.0 * clip.words.rate()),
                "cer_percent": (clip.chars.reference_len() > 0).then(|| 100.0 * clip.chars.rate()),
            })
        })
        .collect();
    json!({ "splits": splits, "clips": clips })
}

fn check(scored: &[Scored], max_wer: Option<f64>) -> anyhow::Result<()> {
    let Some(max) = max_wer else { return Ok(()) };
    for (split, total) in totals(scored) {
        let Some(wer) = total.words.percent() else {
            anyhow::bail!("split {split:?} has no words, so no word error rate");
        };
        if wer > max {
            anyhow::bail!(
                "the word error rate of split {split:?} is {wer:.2} %, at most {max} % is allowed"
            );
        }
    }
    Ok(())
}
