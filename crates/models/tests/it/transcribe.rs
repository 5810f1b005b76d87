//! Transcription of whole recordings by scripted models.

use serde_json::Value;
use tensoryard_models::Error;
use tensoryard_models::tokenizer::Tokenizer;
use tensoryard_models::whisper::decode::{LanguageProbabilities, SpeechModel};
use tensoryard_models::whisper::special::SpecialTokens;
use tensoryard_models::whisper::transcribe::{Observer, TranscribeOptions, transcribe};
use tensoryard_models::whisper::transcript::{Segment, Transcript, Warning};

use crate::golden::{float, golden, ids};
use crate::scripted::{Frames, N_MELS, Noise, Random, Script, Scripted};
use crate::vocabulary::{real, synthetic, word};

struct Bench {
    tokenizer: Tokenizer,
    special: SpecialTokens,
    options: TranscribeOptions,
}

impl Bench {
    fn new(n_vocab: usize) -> Self {
        let (tokenizer, special) = synthetic(n_vocab);
        Self { tokenizer, special, options: TranscribeOptions::default() }
    }

    /// Timestamp token of a time in seconds.
    fn at(&self, seconds: f64) -> u32 {
        self.special.timestamp_begin + (seconds * 50.0).round() as u32
    }

    fn run(&self, frames: usize, scripts: Vec<Script>) -> (Transcript, Scripted) {
        let mut model = Scripted::new(self.special, scripts);
        let transcript = self.run_with(frames, &mut model, &mut Log::default()).unwrap();
        (transcript, model)
    }

    fn run_with(
        &self,
        frames: usize,
        model: &mut dyn SpeechModel,
        observer: &mut dyn Observer,
    ) -> Result<Transcript, Error> {
        transcribe(model, &Frames(frames), &self.tokenizer, &self.options, observer)
    }
}

/// Remembers what was reported, and stops when told.
#[derive(Default)]
struct Log {
    progress: Vec<(usize, usize)>,
    segments: Vec<Segment>,
    languages: Vec<LanguageProbabilities>,
    polls: usize,
    stop_at_poll: Option<usize>,
}

impl Observer for Log {
    fn should_stop(&mut self) -> bool {
        self.polls += 1;
        self.stop_at_poll.is_some_and(|at| self.polls >= at)
    }

    fn progress(&mut self, done_frames: usize, total_frames: usize) {
        self.progress.push((done_frames, total_frames));
    }

    fn language_detected(&mut self, probabilities: &LanguageProbabilities) {
        self.languages.push(probabilities.clone());
    }

    fn segment(&mut self, segment: &Segment) {
        self.segments.push(segment.clone());
    }
}

fn times(transcript: &Transcript) -> Vec<(f64, f64, &str)> {
    transcript.segments.iter().map(|s| (s.start, s.end, s.text.as_str())).collect()
}

#[test]
fn pairs_of_timestamps_cut_segments_and_the_last_pair_is_taken_up_again() {
    let bench = Bench::new(51864);
    let (transcript, model) = bench.run(
        5000,
        vec![
            Script::new(&[
                bench.at(0.0),
                word('a'),
                bench.at(12.5),
                bench.at(13.0),
                word('b'),
                bench.at(25.0),
                bench.at(25.0),
            ]),
            Script::new(&[bench.at(0.5), word('c'), bench.at(24.0)]),
        ],
    );
    assert_eq!(times(&transcript), [(0.0, 12.5, " a"), (13.0, 25.0, " b"), (25.0, 49.0, " c")]);
    assert_eq!(transcript.text, "a b c");
    assert_eq!(transcript.segments.iter().map(|s| s.seek).collect::<Vec<_>>(), [0, 0, 2500]);
    assert_eq!(transcript.segments.iter().map(|s| s.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(model.encoded.len(), 2);
    assert_eq!(model.encoded[1][0], 2500.0);
    assert_eq!(model.encoded[1][2499 * N_MELS], 4999.0);
    assert_eq!(model.encoded[1][2500 * N_MELS..], vec![0.0; 500 * N_MELS]);
    assert_eq!(transcript.duration_seconds, 50.0);
    assert_eq!(transcript.processed_seconds, 50.0);
}

#[test]
fn a_single_timestamp_at_the_end_uses_the_window_up() {
    let bench = Bench::new(51864);
    let (transcript, model) = bench.run(
        3100,
        vec![
            Script::new(&[
                bench.at(0.0),
                word('a'),
                bench.at(4.0),
                bench.at(4.0),
                word('b'),
                bench.at(9.0),
            ]),
            Script::new(&[bench.at(0.0), word('c'), bench.at(0.8)]),
        ],
    );
    assert_eq!(times(&transcript), [(0.0, 4.0, " a"), (4.0, 9.0, " b"), (30.0, 30.8, " c")]);
    assert_eq!(model.encoded[1][0], 3000.0);
}

#[test]
fn text_without_an_end_time_lasts_to_the_end_of_the_window() {
    let bench = Bench::new(51864);
    let (transcript, _) =
        bench.run(1234, vec![Script::new(&[bench.at(0.0), word('a'), word('b')])]);
    assert_eq!(times(&transcript), [(0.0, 12.34, " a b")]);
}

#[test]
fn no_segment_leaves_the_recording() {
    let bench = Bench::new(51864);
    let tokens =
        [bench.at(0.0), word('a'), bench.at(29.0), bench.at(29.0), word('b'), bench.at(30.0)];
    let (transcript, _) = bench.run(500, vec![Script::new(&tokens)]);
    assert_eq!(times(&transcript), [(0.0, 5.0, " a")]);
    for frames in [2990, 3000, 3010] {
        let (transcript, _) = bench.run(frames, vec![Script::new(&tokens)]);
        let end = frames.min(3000) as f64 / 100.0;
        assert_eq!(times(&transcript), [(0.0, 29.0, " a"), (29.0, end, " b")], "{frames}");
    }
}

#[test]
fn empty_segments_are_left_out() {
    let bench = Bench::new(51864);
    let space = b'\n'.into();
    let tokens = [bench.at(0.0), space, bench.at(2.0), bench.at(2.0), word('b'), bench.at(4.0)];
    let (transcript, _) = bench.run(1000, vec![Script::new(&tokens)]);
    assert_eq!(times(&transcript), [(2.0, 4.0, " b")]);
    assert_eq!(transcript.segments[0].id, 0);
}

#[test]
fn silence_needs_doubt_as_well() {
    let bench = Bench::new(51864);
    let tokens = [bench.at(0.0), word('a'), bench.at(2.0)];
    for (no_speech, confidence, kept) in
        [(0.9, 7.5, false), (0.9, 20.0, true), (0.5, 7.5, true), (0.05, 20.0, true)]
    {
        let script = Script { tokens: tokens.to_vec(), no_speech, confidence };
        let (transcript, _) = bench.run(1000, vec![script]);
        assert_eq!(!transcript.segments.is_empty(), kept, "{no_speech} {confidence}");
        assert_eq!(transcript.text, if kept { "a" } else { "" });
    }
}

#[test]
fn very_short_recordings_have_defined_results() {
    let bench = Bench::new(51864);
    let script = || vec![Script::new(&[bench.at(0.0), word('a'), bench.at(1.0)])];
    for frames in [0, 1, 9] {
        let (transcript, model) = bench.run(frames, script());
        assert_eq!(transcript.segments, [], "{frames}");
        assert_eq!(transcript.text, "");
        assert_eq!(transcript.duration_seconds, frames as f64 / 100.0);
        assert!(model.encoded.is_empty());
    }
    for frames in [10, 80] {
        let (transcript, _) = bench.run(frames, script());
        assert_eq!(times(&transcript), [(0.0, frames as f64 / 100.0, " a")]);
    }
}

#[test]
fn earlier_text_is_the_prompt_unless_told_otherwise() {
    let mut bench = Bench::new(51864);
    let scripts = || {
        vec![
            Script::new(&[bench_at(0.0), word('a'), bench_at(30.0)]),
            Script::new(&[bench_at(0.0), word('b'), bench_at(30.0)]),
        ]
    };
    bench.options.initial_prompt = Some(" e f ".to_owned());
    let sot = bench.special.sot;
    let prev = bench.special.sot_prev;
    let (_, model) = bench.run(6000, scripts());
    let hint = vec![prev, word('e'), word('f'), sot];
    assert_eq!(model.prompts[0], hint);
    let conditioned =
        vec![prev, word('e'), word('f'), bench_at(0.0), word('a'), bench_at(30.0), sot];
    assert_eq!(model.prompts[1], conditioned);

    bench.options.condition_on_previous_text = false;
    let (_, model) = bench.run(6000, scripts());
    assert_eq!(model.prompts, [hint, vec![sot]]);
}

fn bench_at(seconds: f64) -> u32 {
    Bench::new(51864).at(seconds)
}

#[test]
fn a_prompt_of_five_thousand_words_is_trimmed_with_a_warning() {
    let mut bench = Bench::new(51864);
    bench.options.initial_prompt = Some("a b ".repeat(2500));
    let script = Script::new(&[bench.at(0.0), word('c'), bench.at(2.0)]);
    let (transcript, model) = bench.run(1000, vec![script]);
    assert_eq!(
        transcript.warnings,
        [Warning::PromptTrimmed { given_tokens: 5000, kept_tokens: 223 }]
    );
    assert!(transcript.warnings[0].to_string().contains("5000 tokens; only the last 223"));
    assert_eq!(model.prompts[0].len(), 1 + 223 + 1);
    assert_eq!(model.prompts[0][223], word('b'));
}

#[test]
fn without_timestamps_each_window_is_one_segment() {
    let mut bench = Bench::new(51864);
    bench.options.decode.rules.timestamps = false;
    let (transcript, _) = bench.run(
        4000,
        vec![Script::new(&[word('a')]), Script::new(&[word('b'), bench.at(3.0), bench.at(3.0)])],
    );
    assert_eq!(times(&transcript), [(0.0, 30.0, " a"), (30.0, 40.0, " b")]);
}

#[test]
fn the_language_is_detected_once_and_the_window_encoded_once() {
    let bench = Bench::new(51865);
    let tokens = [bench.at(0.0), word('a'), bench.at(30.0)];
    let mut model = Scripted::new(bench.special, vec![Script::new(&tokens); 2]);
    model.language = "fr";
    let mut log = Log::default();
    let transcript = bench.run_with(6000, &mut model, &mut log).unwrap();
    assert_eq!(transcript.language.unwrap().code(), "fr");
    assert!(transcript.language_probability.unwrap() > 0.9);
    assert_eq!(log.languages.len(), 1);
    assert_eq!(model.encoded.len(), 2);
    let french = bench.special.language_token("fr".parse().unwrap()).unwrap();
    assert!(model.prompts.iter().all(|prompt| prompt.contains(&french)));
}

#[test]
fn a_language_that_is_given_is_not_detected() {
    let mut bench = Bench::new(51865);
    bench.options.language = Some("de".parse().unwrap());
    let (transcript, model) =
        bench.run(100, vec![Script::new(&[bench.at(0.0), word('a'), bench.at(1.0)])]);
    assert_eq!(transcript.language.unwrap().code(), "de");
    assert_eq!(transcript.language_probability, None);
    assert_eq!(model.prompts.len(), 1);
}

#[test]
fn impossible_requests_fail_before_any_work() {
    let mut bench = Bench::new(51864);
    bench.options.language = Some("de".parse().unwrap());
    let mut model = Scripted::new(bench.special, Vec::new());
    let error = bench.run_with(1000, &mut model, &mut ()).unwrap_err();
    assert!(matches!(error, Error::EnglishOnly { .. }));
    assert!(model.encoded.is_empty());
}

#[test]
fn progress_is_monotonic_and_complete() {
    let bench = Bench::new(51864);
    let pair = [bench.at(0.0), word('a'), bench.at(7.0), bench.at(7.0)];
    let mut model = Scripted::new(bench.special, vec![Script::new(&pair); 20]);
    let mut log = Log::default();
    let transcript = bench.run_with(5000, &mut model, &mut log).unwrap();
    assert!(log.progress.is_sorted());
    assert_eq!(log.progress[0], (0, 5000));
    assert_eq!(log.progress[1], (700, 5000));
    assert_eq!(*log.progress.last().unwrap(), (5000, 5000));
    assert_eq!(log.segments, transcript.segments);
}

#[test]
fn cancelling_keeps_what_was_done() {
    let bench = Bench::new(51864);
    let tokens = [bench.at(0.0), word('a'), bench.at(30.0)];
    let scripts = vec![Script::new(&tokens); 3];
    let mut whole = Log::default();
    let mut model = Scripted::new(bench.special, scripts.clone());
    let complete = bench.run_with(9000, &mut model, &mut whole).unwrap();
    assert_eq!(complete.segments.len(), 3);

    for poll in 1..=whole.polls {
        let mut log = Log { stop_at_poll: Some(poll), ..Log::default() };
        let mut model = Scripted::new(bench.special, scripts.clone());
        let error = bench.run_with(9000, &mut model, &mut log).unwrap_err();
        let Error::Cancelled { partial } = error else { panic!("{error}") };
        assert_eq!(log.polls, poll, "nothing is asked after a stop");
        let done = (poll - 1) / (whole.polls / 3);
        assert_eq!(partial.segments, complete.segments[..done], "poll {poll}");
        assert_eq!(partial.processed_seconds, 30.0 * done as f64);
        assert_eq!(partial.duration_seconds, 90.0);
    }
}

/// A model that reports a stop from inside, as one with an interruptible encoder does.
struct StopsInside(Scripted);

impl SpeechModel for StopsInside {
    fn dims(&self) -> tensoryard_models::whisper::decode::ModelDims {
        self.0.dims()
    }

    fn encode(&mut self, mel: &[f32]) -> Result<(), Error> {
        if self.0.encoded.len() == 1 { Err(Error::Stopped) } else { self.0.encode(mel) }
    }

    fn decode(
        &mut self,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        self.0.decode(tokens, position, rows, logits)
    }
}

#[test]
fn a_stop_inside_the_model_is_a_cancellation() {
    let bench = Bench::new(51864);
    let tokens = [bench.at(0.0), word('a'), bench.at(30.0)];
    let mut model = StopsInside(Scripted::new(bench.special, vec![Script::new(&tokens); 2]));
    let error = bench.run_with(6000, &mut model, &mut ()).unwrap_err();
    assert_eq!(error.to_string(), "cancelled on request after 30 of 60 s");
}

#[test]
fn garbage_ends_and_stays_inside_the_recording() {
    for (seed, may_end) in [(1, false), (2, true), (3, true)] {
        let mut bench = Bench::new(51864);
        bench.options.decode.max_tokens = Some(25);
        bench.options.no_speech_threshold = None;
        let mut model = Noise { special: bench.special, random: Random::new(seed), may_end };
        let mut log = Log::default();
        let transcript = bench.run_with(4321, &mut model, &mut log).unwrap();
        assert!(log.progress.is_sorted(), "seed {seed}");
        let windows = log.progress.len() - 1;
        assert!(windows <= 4321 / 10 + 1, "seed {seed}: {windows} windows");
        for segment in &transcript.segments {
            assert!(segment.start < segment.end && segment.end <= 43.21, "seed {seed}");
            assert!(!segment.text.trim().is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn a_pair_that_does_not_move_still_moves_on() {
    let mut bench = Bench::new(51864);
    bench.options.no_speech_threshold = None;
    // The smallest step the rules allow is 0.02 s.
    let tokens = [bench.at(0.0), word('a'), bench.at(0.02), bench.at(0.02)];
    let (transcript, model) = bench.run(100, vec![Script::new(&tokens); 100]);
    assert_eq!(model.encoded.len(), 10);
    assert_eq!(transcript.segments.len(), 10);
    assert_eq!(transcript.segments[9].start, 0.9);
}

#[test]
fn a_character_cut_by_a_timestamp_is_joined() {
    let bench = Bench::new(51864);
    // 実 is E5 AE 9F; in the synthetic vocabulary bytes are their own ids.
    let tokens = [
        bench.at(0.0),
        word('a'),
        0xe5,
        bench.at(2.0),
        bench.at(2.0),
        0xae,
        0x9f,
        word('b'),
        bench.at(4.0),
        bench.at(4.0),
        word('c'),
        0xe5,
        bench.at(6.0),
    ];
    let (transcript, _) = bench.run(1000, vec![Script::new(&tokens)]);
    assert_eq!(
        times(&transcript),
        [(0.0, 2.0, " a"), (2.0, 4.0, "実 b"), (4.0, 6.0, " c\u{fffd}")]
    );
}

#[test]
fn a_session_can_be_used_again_with_the_same_result() {
    let bench = Bench::new(51864);
    let speech = Script::new(&[bench.at(0.0), word('a'), bench.at(2.0)]);
    let silence = Script { no_speech: 0.95, confidence: 7.5, ..speech.clone() };
    let mut model = Scripted::new(bench.special, vec![speech.clone(), silence, speech]);
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(bench.run_with(500, &mut model, &mut ()).unwrap().text);
    }
    assert_eq!(texts, ["a", "", "a"]);
    assert!(model.prompts.iter().all(|prompt| *prompt == [bench.special.sot]));
}

#[test]
fn golden_windows_give_the_golden_segments() {
    let name = "golden_windows_give_the_golden_segments";
    let Some(windows) = golden(name, "whisper/padvariant_transcribe.json") else { return };
    let Some(reference) = golden(name, "wer_reference.json") else { return };
    for (model_name, clip, n_vocab) in [
        ("tiny.en", "en_jfk", 51864),
        ("base", "en_jfk", 51865),
        ("base", "zh_aishell_BAC009S0724W0121", 51865),
    ] {
        let Some(tokenizer) = real(name, model_name) else { return };
        let window = &windows[format!("{model_name}__{clip}")];
        let special = SpecialTokens::from_vocab_size(n_vocab).unwrap();
        let script = Script::new(&ids(&window["decode_greedy"]["tokens"]));
        let mut model = Scripted::new(special, vec![script]);
        model.language = if clip.starts_with("zh") { "zh" } else { "en" };
        let frames = window["content_frames"].as_u64().unwrap() as usize;
        let options = TranscribeOptions::default();
        let transcript =
            transcribe(&mut model, &Frames(frames), tokenizer, &options, &mut ()).unwrap();

        let expected = &reference[format!("{model_name}|greedy|{clip}.wav")];
        check_segments(&transcript, expected, &format!("{model_name} {clip}"));
    }
}

fn check_segments(transcript: &Transcript, expected: &Value, clip: &str) {
    assert_eq!(transcript.text, expected["text"].as_str().unwrap().trim(), "{clip}");
    assert_eq!(transcript.language.unwrap().code(), expected["language"], "{clip}");
    let segments = expected["segments"].as_array().unwrap();
    assert_eq!(transcript.segments.len(), segments.len(), "{clip}");
    for (segment, expected) in transcript.segments.iter().zip(segments) {
        assert_eq!(segment.start as f32, float(&expected[0]), "{clip}");
        assert_eq!(segment.end as f32, float(&expected[1]), "{clip}");
        assert_eq!(segment.text, expected[2].as_str().unwrap(), "{clip}");
    }
}
