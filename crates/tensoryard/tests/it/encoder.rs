//! Spectrogram and encoder against the original.

use std::sync::Arc;

use tensoryard::graph::{DType, GraphBuilder};
use tensoryard::models::whisper::WhisperSession;
use tensoryard::runtime::Input;

use crate::goldens::{Golden, goldens, read_json, safetensors};
use crate::support::{assets, max_abs, model, nmse};

/// Accepted error of the encoder, as a share of the energy.
const ENCODER_NMSE: f64 = 1e-6;

/// The spectrogram as the original's `decode` sees it, filled up with silence.
pub fn mel_window(session: &WhisperSession, samples: &[f32]) -> Vec<f32> {
    session.model().log_mel().window_30s(samples, 1).into_data()
}

#[test]
fn spectrograms_with_the_filters_of_the_model_are_the_golden_ones() {
    let test = "spectrograms_with_the_filters_of_the_model_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        for golden in goldens(&assets, name) {
            let mel = model.log_mel().window_30s(&golden.samples, 1);
            let (array, step) = match golden.arrays.get("mel") {
                Some(array) => (array, 1),
                None => (golden.array("mel_cols"), 25),
            };
            let [n_mels, n_columns] = array.shape[..] else { panic!("shape of {}", golden.name) };
            let got: Vec<f32> = (0..n_mels)
                .flat_map(|band| (0..n_columns).map(move |column| (band, column * step)))
                .map(|(band, frame)| mel.frame(frame)[band])
                .collect();
            let error = max_abs(&got, &array.data);
            eprintln!("{}: mel max abs error {error:.1e}", golden.name);
            assert!(error <= 1e-4, "{}: {error}", golden.name);
        }
    }
}

#[test]
fn rows_of_the_encoder_are_the_golden_ones() {
    let test = "rows_of_the_encoder_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        for golden in goldens(&assets, name) {
            let mel = mel_window(&session, &golden.samples);
            let features = session.audio_features(&mel).unwrap();
            let rows = pick_rows(&features, &golden.json["encoder_rows"], model_width(&golden));
            let error = nmse(&rows, &golden.array("encoder_rows").data);
            eprintln!("{}: encoder NMSE {error:.1e}", golden.name);
            assert!(error <= ENCODER_NMSE, "{}: {error}", golden.name);
        }
    }
}

#[test]
fn a_window_filled_up_in_mel_space_encodes_as_in_the_original() {
    let test = "a_window_filled_up_in_mel_space_encodes_as_in_the_original";
    let Some(assets) = assets(test) else { return };
    let folder = assets.join("golden/whisper");
    let records = read_json(&folder.join("padvariant_transcribe.json"));
    let (arrays, _) = safetensors(&folder.join("padvariant_transcribe.safetensors"));
    for (key, record) in records.as_object().unwrap() {
        let (name, clip) = key.split_once("__").unwrap();
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let golden = Golden::load(&assets, name, clip);
        let mel = model.log_mel().recording(&golden.samples, 1);
        assert_eq!(mel.n_frames() as u64, record["content_frames"].as_u64().unwrap(), "{key}");
        let features = session.audio_features(&mel.window(0, 3000)).unwrap();
        let rows = pick_rows(&features, &record["rows"], model_width(&golden));
        let error = nmse(&rows, &arrays[&format!("{key}|encoder_rows")].data);
        eprintln!("{key}: encoder NMSE {error:.1e}");
        assert!(error <= ENCODER_NMSE, "{key}: {error}");
    }
}

#[test]
fn convolutions_before_their_activation_are_the_golden_ones() {
    let test = "convolutions_before_their_activation_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let golden = Golden::load(&assets, name, "en_jfk");
        let config = *model.graph_config();
        let n_state = config.sizes.n_audio_state;

        let g = GraphBuilder::new("convolutions");
        let mel = g.input("mel", DType::F32, [config.sizes.n_mels, config.n_frames()]);
        let mut x = mel;
        for (layer, stride) in [("conv1", 1), ("conv2", 2)] {
            let weight = format!("encoder.{layer}.weight");
            let bias = format!("encoder.{layer}.bias");
            let sum = g
                .weight(weight, config.matrix, [x.dim(0), 3, n_state])
                .conv_1d(x, stride, 1)
                .add(g.weight(bias, DType::F32, [n_state]));
            sum.output(layer);
            x = sum.gelu_erf();
        }
        let graph = Arc::new(g.finish().unwrap());
        let mel = mel_window(&session, &golden.samples);
        let outputs = session.runtime().run(&graph, &[Input::f32("mel", &mel)]).unwrap();
        for layer in ["conv1", "conv2"] {
            let values = outputs.f32(layer).unwrap(); // [n_state, n_frames]
            let array = golden.array(&format!("enc_{layer}_pre_gelu"));
            let [n_channels, n_frames] = array.shape[..] else { panic!("shape of {layer}") };
            let got: Vec<f32> = (0..n_channels)
                .flat_map(|channel| (0..n_frames).map(move |frame| frame * n_state + channel))
                .map(|at| values[at])
                .collect();
            let error = nmse(&got, &array.data);
            eprintln!("{name} {layer}: NMSE {error:.1e}");
            assert!(error <= 1e-9, "{name} {layer}: {error}");
        }
    }
}

fn model_width(golden: &Golden) -> usize {
    golden.array("encoder_rows").shape[1]
}

fn pick_rows(features: &[f32], rows: &serde_json::Value, width: usize) -> Vec<f32> {
    assert_eq!(features.len(), 1500 * width);
    let rows = rows.as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as usize);
    rows.flat_map(|row| &features[row * width..][..width]).copied().collect()
}
