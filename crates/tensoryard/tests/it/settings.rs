//! Settings that may change the speed but not the text.

use std::path::Path;
use std::sync::Arc;

use tensoryard::cpu::{CpuDriver, Isa, Level};
use tensoryard::graph::DType;
use tensoryard::models::whisper::decode::{DecodeOptions, Decoder, SpeechModel};
use tensoryard::models::whisper::{LoadOptions, WhisperModel};
use tensoryard::runtime::{Registry, Selected};
use tensoryard::speech::Language;

use crate::encoder::mel_window;
use crate::goldens::{Golden, ids};
use crate::support::{assets, cpu, model_path};

fn tokens(path: &Path, devices: &[Selected], options: &LoadOptions, golden: &Golden) -> Vec<u32> {
    let model = Arc::new(WhisperModel::load(path, devices, options, |_, _| true).unwrap());
    let mut session = model.session().unwrap();
    let mel = mel_window(&session, &golden.samples);
    session.encode(&mel).unwrap();
    Decoder::new(model.tokenizer(), session.dims(), DecodeOptions::default())
        .unwrap()
        .decode(&mut session, Language::ENGLISH, &[], &mut || false)
        .unwrap()
        .tokens
}

#[test]
fn types_fusion_and_threads_do_not_change_the_tokens() {
    let test = "types_fusion_and_threads_do_not_change_the_tokens";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(path) = model_path(test, name) else { continue };
        let golden = Golden::load(&assets, name, "en_jfk");
        let expected = ids(&golden.json["decode_greedy"]["tokens"]);
        let with = |change: fn(&mut LoadOptions)| {
            let mut options = LoadOptions::default();
            change(&mut options);
            options
        };
        let cases = [
            ("defaults, 1 thread", 1, with(|_| ())),
            ("defaults, 2 threads", 2, with(|_| ())),
            ("f32 caches", 1, with(|o| o.cache = DType::F32)),
            ("f16 caches", 1, with(|o| o.cache = DType::F16)),
            ("f32 matrices", 1, with(|o| o.matrix = Some(DType::F32))),
            ("f16 matrices", 1, with(|o| o.matrix = Some(DType::F16))),
            ("no fusion", 1, with(|o| o.session.plan.fusion = false)),
            ("no fusion, 2 threads", 2, with(|o| o.session.plan.fusion = false)),
        ];
        for (case, threads, options) in cases {
            let got = tokens(&path, &cpu(threads), &options, &golden);
            assert_eq!(got, expected, "{name}: {case}");
        }
    }
}

#[test]
fn instruction_sets_do_not_change_the_tokens() {
    let test = "instruction_sets_do_not_change_the_tokens";
    let Some(assets) = assets(test) else { return };
    let Some(path) = model_path(test, "tiny.en") else { return };
    let golden = Golden::load(&assets, "tiny.en", "en_jfk");
    let expected = ids(&golden.json["decode_greedy"]["tokens"]);
    for level in [Level::Scalar, Level::Avx2, Level::Avx512, Level::Neon] {
        let Some(isa) = Isa::of_level(level) else { continue };
        let mut registry = Registry::new();
        registry.register(Arc::new(CpuDriver::with_isa(isa))).unwrap();
        let devices = [registry.select("cpu").unwrap()];
        let got = tokens(&path, &devices, &LoadOptions::default(), &golden);
        assert_eq!(got, expected, "{level}");
    }
}
