//! One model in every format that is read, with and without a memory map.

use tensoryard::models::whisper::LoadOptions;
use tensoryard::models::whisper::decode::{DecodeOptions, Decoder, SpeechModel};
use tensoryard::speech::Language;
use tensoryard::{ConvertOptions, WeightType, convert};

use crate::encoder::mel_window;
use crate::goldens::{Golden, ids};
use crate::support::{assets, load, model_path};

#[test]
fn every_format_gives_the_golden_tokens() {
    let test = "every_format_gives_the_golden_tokens";
    let Some(assets) = assets(test) else { return };
    for (name, language) in [("tiny.en", "en_jfk"), ("base", "ja_pico")] {
        let Some(published) = model_path(test, name) else { continue };
        let golden = Golden::load(&assets, name, language);
        let expected = ids(&golden.json["decode_greedy"]["tokens"]);
        let folder = tempfile::tempdir().unwrap();
        let mut paths = vec![published.clone()];
        for (file, weights) in [
            ("f16.gguf", WeightType::F16),
            ("f32.gguf", WeightType::F32),
            ("f16.bin", WeightType::F16),
        ] {
            let path = folder.path().join(file);
            let mut options = ConvertOptions::default();
            options.weights = weights;
            convert(&published, &path, Some(name), options, &mut |_| true).unwrap();
            paths.push(path);
        }
        for path in paths {
            for mmap in [true, false] {
                let mut options = LoadOptions::default();
                options.mmap = mmap;
                let model = load(&path, &options);
                assert_eq!(model.config().n_vocab, if name == "base" { 51_865 } else { 51_864 });
                let mut session = model.session().unwrap();
                let mel = mel_window(&session, &golden.samples);
                session.encode(&mel).unwrap();
                let language: Language = golden.language();
                let window =
                    Decoder::new(model.tokenizer(), session.dims(), DecodeOptions::default())
                        .unwrap()
                        .decode(&mut session, language, &[], &mut || false)
                        .unwrap();
                assert_eq!(window.tokens, expected, "{} mmap {mmap}", path.display());
                let text = golden.json["decode_greedy"]["text"].as_str().unwrap();
                assert_eq!(window.text, text, "{}", path.display());
            }
        }
    }
}
