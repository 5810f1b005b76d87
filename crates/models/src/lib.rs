//! Model graphs, tokenizers and decoding.
//!
//! [`tokenizer`] turns text into token ids and back, [`text`] normalises and
//! scores transcripts, [`whisper`] is speech to text. Nothing here knows a
//! device; models meet one only through the runtime's traits.

mod error;
pub mod text;
pub mod tokenizer;
pub mod whisper;

pub use error::Error;
