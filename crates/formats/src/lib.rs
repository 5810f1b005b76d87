//! Model file formats: GGUF, ggml Whisper .bin, CTranslate2.
