//! Whole recordings against the original's transcripts.

use tensoryard::speech::{Language, ModelOptions, SpeechModel};

use crate::goldens::{float, goldens, ids};
use crate::support::{assets, model_path};

#[test]
fn transcripts_are_the_golden_ones() {
    let test = "transcripts_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(path) = model_path(test, name) else { continue };
        let mut options = ModelOptions::default();
        options.threads = 1;
        let model = SpeechModel::load_with(path, &options, |_, _| true).unwrap();
        let mut transcriber = model.transcriber().unwrap();
        for golden in goldens(&assets, name) {
            let expected = &golden.json["transcribe_t0_greedy_words"];
            let language: Language = expected["language"].as_str().unwrap().parse().unwrap();
            let transcript = transcriber.transcribe(&golden.samples).unwrap();
            let name = &golden.name;
            assert_eq!(transcript.text, expected["text"].as_str().unwrap().trim(), "{name}");
            assert_eq!(transcript.language, Some(language), "{name}");

            let segments = expected["segments"].as_array().unwrap();
            assert_eq!(transcript.segments.len(), segments.len(), "{name}");
            for (segment, expected) in transcript.segments.iter().zip(segments) {
                assert_eq!(segment.text, expected["text"].as_str().unwrap(), "{name}");
                assert_eq!(segment.tokens, ids(&expected["tokens"]), "{name}");
                assert_eq!(segment.seek as u64, expected["seek"].as_u64().unwrap(), "{name}");
                for (what, got) in [
                    ("avg_logprob", segment.avg_logprob),
                    ("no_speech_prob", segment.no_speech_prob),
                ] {
                    let error = (got - float(&expected[what])).abs();
                    assert!(error <= 2e-3, "{name} {what}: {error}");
                }
                // The golden times come from the words; the tokens' own are a little wider.
                let start = expected["start"].as_f64().unwrap();
                assert!(segment.start <= start + 0.5, "{name}: {} {start}", segment.start);
                assert!(segment.start < segment.end, "{name}");
                assert!(segment.end <= transcript.duration_seconds, "{name}");
            }
        }
    }
}

#[test]
fn silence_gives_an_empty_transcript() {
    let test = "silence_gives_an_empty_transcript";
    let Some(assets) = assets(test) else { return };
    let Some(model) = crate::support::speech_model(test) else { return };
    let file = assets.join("audio/hard/silence_10s.wav");
    let transcript = model.transcriber().unwrap().transcribe_file(file).unwrap();
    assert_eq!((transcript.text.as_str(), transcript.segments.len()), ("", 0));
    assert_eq!((transcript.duration_seconds, transcript.processed_seconds), (10.0, 10.0));
}
