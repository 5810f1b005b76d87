//! `tensoryard transcribe`: from audio files to text.

mod sink;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::value_parser;
use tensoryard::audio::{AudioError, AudioSource, LoadOptions, load_mono};
use tensoryard::speech::{Observer, Segment, Task, Transcriber};
use tensoryard::{TranscribeOptions, Transcript};

use crate::app::App;
use crate::model::{LostDevices, ModelArgs};
use crate::output::{self, Interrupted};
use crate::progress::AudioBar;
use sink::{Format, Sink};

/// Samples a second that models hear.
const RATE: f64 = 16_000.0;

/// The sample that is transcribed when no file is named.
const SAMPLE: &[u8] = tensoryard::SAMPLE_WAV;

/// Transcribes audio files: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A, WebM or AIFF, at any rate.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tensoryard transcribe talk.mp3\n  \
    tensoryard transcribe --format srt --output talk.srt talk.mp3\n  \
    tensoryard transcribe --model base --language de --output texts/ *.wav\n  \
    ffmpeg -i talk.mkv -f wav - | tensoryard transcribe -")]
pub struct Args {
    /// Audio files; `-` reads standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Refuse recordings that are longer; they would fill the memory
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = value_parser!(u32).range(1..))]
    max_hours: u32,

    /// Form of the transcript
    #[arg(long, short, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    format: Format,

    /// File to write to, or folder: one file for each input, named after it
    ///
    /// A folder that does not exist yet ends with a slash. Existing files are replaced, each
    /// when its transcript is complete.
    #[arg(long, short, value_name = "PATH", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Translate to English instead of transcribing
    #[arg(long, help_heading = "Decoding")]
    translate: bool,

    /// Text that comes before, such as names that will occur
    #[arg(long, value_name = "TEXT", help_heading = "Decoding")]
    prompt: Option<String>,

    /// Do not condition a window on the text before it
    #[arg(long, help_heading = "Decoding")]
    no_condition: bool,

    #[command(flatten)]
    model: ModelArgs,
}

/// Where an input comes from.
enum Input {
    File(PathBuf),
    Stdin,
    Sample,
}

impl Input {
    fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Stdin => "standard input".to_owned(),
            Input::Sample => "the sample".to_owned(),
        }
    }

    /// What an output file is named after.
    fn stem(&self) -> &Path {
        match self {
            Input::File(path) => path,
            Input::Stdin => Path::new("stdin"),
            Input::Sample => Path::new("sample"),
        }
    }

    /// Why a file cannot be opened, as far as that shows without opening it.
    fn missing(&self) -> Option<anyhow::Error> {
        let Input::File(path) = self else { return None };
        let error = path.metadata().err()?;
        Some(anyhow::Error::new(error).context(format!("cannot open {}", path.display())))
    }

    fn source(&self) -> AudioSource {
        match self {
            Input::File(path) => AudioSource::from(path.as_path()),
            Input::Stdin => AudioSource::stream(self.name(), std::io::stdin()),
            Input::Sample => AudioSource::from(SAMPLE.to_vec()),
        }
    }
}

/// Where the time of one input went.
struct Times {
    audio: Duration,
    speech: Duration,
    seconds: f64,
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let inputs: Vec<Input> = if args.files.is_empty() {
        vec![Input::Sample]
    } else {
        let input = |path: &PathBuf| {
            if path.as_os_str() == "-" { Input::Stdin } else { Input::File(path.clone()) }
        };
        args.files.iter().map(input).collect()
    };
    let missing: Vec<anyhow::Error> = inputs.iter().filter_map(Input::missing).collect();
    if missing.len() == inputs.len() {
        // Told now, not after a model was fetched.
        for error in missing {
            output::say(output::describe(&error).trim_end());
        }
        return Err(output::Reported.into());
    }
    let stems: Vec<&Path> = inputs.iter().map(Input::stem).collect();
    let mut sink = Sink::new(args.format, args.output.as_deref(), &stems)?;
    let loaded = args.model.load(app)?;
    if app.verbose > 0 {
        let (path, milliseconds) = (loaded.path.display(), loaded.time.as_millis());
        output::say(&format!("model {path} loaded in {milliseconds} ms"));
    }
    let mut transcriber = loaded.transcriber(app)?.with_options(args.options());
    let mut lost = LostDevices::default();

    let mut failed = 0;
    for (number, input) in inputs.iter().enumerate() {
        let done = transcribe(input, number, args, &mut transcriber, &mut sink, app);
        lost.tell(&mut transcriber);
        match done {
            Ok(times) if app.verbose > 0 => report(&times, &mut transcriber),
            Ok(_) => {}
            Err(error) if app.interrupt.is_raised() => {
                return Err(error.context(Interrupted));
            }
            Err(error) if output::is_reader_gone(&error) => return Err(error),
            Err(error) => {
                failed += 1;
                let error = error.context(format!("cannot transcribe {}", input.name()));
                output::say(output::describe(&error).trim_end());
            }
        }
    }
    sink.finish()?;
    match failed {
        0 => Ok(()),
        _ if inputs.len() == 1 => Err(output::Reported.into()),
        _ => anyhow::bail!("{failed} of {} inputs failed", inputs.len()),
    }
}

fn transcribe(
    input: &Input,
    number: usize,
    args: &Args,
    transcriber: &mut Transcriber,
    sink: &mut Sink,
    app: &App,
) -> anyhow::Result<Times> {
    let start = Instant::now();
    let limit = u64::from(args.max_hours) * 3600 * RATE as u64;
    let loaded = match load_mono(input.source(), LoadOptions::new().max_samples(limit)) {
        Err(error @ AudioError::TooLong { .. }) => {
            anyhow::bail!("{error}; --max-hours HOURS allows more");
        }
        loaded => loaded?,
    };
    let audio = start.elapsed();
    if loaded.stats.damaged_packets > 0 || loaded.stats.truncated {
        let name = input.name();
        output::say(&format!("warning: {name} is damaged; some of it may be missing"));
    }
    let seconds = loaded.samples.len() as f64 / RATE;
    let start = Instant::now();
    sink.begin(&input.name())?;
    let bar = AudioBar::new(seconds, app);
    let mut watch = Watch { bar: &bar, sink, app, failure: None };
    let result = transcriber.transcribe_observed(&loaded.samples, &mut watch);
    let failure = watch.failure.take();
    bar.finish();
    if let Some(failure) = failure {
        return Err(failure);
    }
    let transcript: Transcript = result?;
    for warning in &transcript.warnings {
        output::say(&format!("warning: {warning}"));
    }
    sink.end(number, &input.name(), &transcript)?;
    Ok(Times { audio, speech: start.elapsed(), seconds })
}

fn report(times: &Times, transcriber: &mut Transcriber) {
    let session = transcriber.session();
    let timings = session.take_timings();
    let mebibytes = |bytes: usize| bytes / (1024 * 1024);
    let workspace = mebibytes(session.runtime().workspace_bytes());
    let state = mebibytes(session.runtime().state().bytes());
    let speech = times.speech.as_secs_f64().max(1e-9);
    output::say(&format!(
        "{:.2} s of audio read in {} ms, transcribed in {} ms: {:.1} times as fast as speech",
        times.seconds,
        times.audio.as_millis(),
        times.speech.as_millis(),
        times.seconds / speech,
    ));
    output::say(&format!(
        "encoder {} ms in {} runs, decoder {} ms in {} runs; {workspace} MiB of compute memory, \
         {state} MiB of caches",
        timings.encoder.as_millis(),
        timings.encoder_runs,
        timings.decoder.as_millis(),
        timings.decoder_runs,
    ));
}

impl Args {
    fn options(&self) -> TranscribeOptions {
        let mut options = TranscribeOptions::default();
        options.language = self.model.language.0;
        options.initial_prompt.clone_from(&self.prompt);
        options.condition_on_previous_text = !self.no_condition;
        options.decode.task = if self.translate { Task::Translate } else { Task::Transcribe };
        options
    }
}

/// Shows progress and passes segments on while the model works.
struct Watch<'a> {
    bar: &'a AudioBar,
    sink: &'a mut Sink,
    app: &'a App,
    failure: Option<anyhow::Error>,
}

impl Observer for Watch<'_> {
    fn should_stop(&mut self) -> bool {
        self.failure.is_some() || self.app.interrupt.is_raised()
    }

    fn progress(&mut self, done_frames: usize, _: usize) {
        self.bar.set(done_frames as f64 / 100.0);
    }

    fn segment(&mut self, segment: &Segment) {
        let written = self.bar.suspend(|| self.sink.segment(segment));
        if let Err(error) = written {
            self.failure = Some(error);
        }
    }
}
