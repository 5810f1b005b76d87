//! CTranslate2 models: `model.bin` and the files beside it.
//!
//! The binary format (version 6) is a list of named variables in slowest-first
//! shapes, then aliases. Only what a Whisper model needs is interpreted, in
//! [`crate::whisper`]; the JSON files beside the model are the caller's to
//! parse, this crate only says where they are.
//! See <https://opennmt.net/CTranslate2/model_spec.html>.

mod read;
mod vocabulary;

pub use read::CTranslate2File;
pub use vocabulary::{parse_vocabulary, read_vocabulary};
