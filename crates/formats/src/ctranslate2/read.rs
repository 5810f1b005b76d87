//! The reader of `model.bin`.
//!
//! All numbers are little-endian; strings have a 16-bit length that counts a
//! terminating zero byte. Every variable is followed at once by its data.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensoryard_tensor::{DType, MAX_DIMS, Shape, decode_to_f32};

use crate::detect::{Format, detect_bytes, model_in_directory};
use crate::error::{FormatError, Result};
use crate::file::{FileData, ModelFile, OpenOptions, ReadSeek, TensorInfo, tensor_size_bytes};
use crate::reader::{self, Reader, capacity};
use crate::value::Value;

/// The version of the binary format that is read.
const VERSION: u32 = 6;

/// A CTranslate2 model whose variables were listed and checked.
#[derive(Debug)]
pub struct CTranslate2File {
    spec: String,
    revision: u32,
    variables: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    aliases: Vec<(String, String)>,
    directory: Option<PathBuf>,
    data: Arc<FileData>,
}

impl CTranslate2File {
    /// Opens a model directory, or the `model.bin` in one.
    ///
    /// # Errors
    /// The path cannot be opened, or the file breaks a rule of the format; the
    /// message names the path and the variable.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let open = || {
            let model = if path.is_dir() { model_in_directory(path)? } else { path.to_owned() };
            let data = FileData::open(&model, options)?;
            let mut file = Self::from_data(data).map_err(|error| error.in_file(&model))?;
            file.directory = model.parent().map(Path::to_owned);
            Ok(file)
        };
        open().map_err(|error: FormatError| error.in_file(path))
    }

    /// Reads a `model.bin` that is in memory.
    ///
    /// # Errors
    /// The bytes break a rule of the format.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::from_data(FileData::from_bytes(bytes))
    }

    fn from_data(data: FileData) -> Result<Self> {
        let header = data.parse(parse)?;
        Ok(Self {
            spec: header.spec,
            revision: header.revision,
            variables: header.variables,
            index: header.index,
            aliases: header.aliases,
            directory: None,
            data: Arc::new(data),
        })
    }

    /// The kind of model, such as `WhisperSpec`.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// The revision of the kind of model.
    pub fn revision(&self) -> u32 {
        self.revision
    }

    /// Second names of variables: (alias, variable).
    pub fn aliases(&self) -> &[(String, String)] {
        &self.aliases
    }

    /// A file beside `model.bin`, such as `config.json`, when there is one.
    pub fn side_file(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(name)).filter(|path| path.is_file())
    }

    /// The integer that a scalar variable holds, `None` when there is no such variable.
    ///
    /// # Errors
    /// The variable is no integer scalar.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        let Some(info) = self.tensor(name) else { return Ok(None) };
        let is_integer = matches!(info.dtype, DType::I8 | DType::I16 | DType::I32);
        if !is_integer || info.shape.elements() != 1 {
            let problem = format!("{} of shape {}, an integer is needed", info.dtype, info.shape);
            return Err(FormatError::placement(name, problem));
        }
        let bytes = self.tensor_bytes(info)?;
        let mut value = [0.0];
        decode_to_f32(info.dtype, &bytes, &mut value).map_err(FormatError::tensor(name))?;
        let [value] = value;
        Ok(Some(value as i64))
    }
}

impl ModelFile for CTranslate2File {
    fn format(&self) -> Format {
        Format::CTranslate2
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.variables
    }

    /// The variable of a name or alias.
    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = self.index.get(name).or_else(|| {
            let (_, target) = self.aliases.iter().find(|(alias, _)| alias == name)?;
            self.index.get(target)
        })?;
        self.variables.get(*at)
    }

    fn metadata(&self) -> Cow<'_, [(String, Value)]> {
        let mut entries: Vec<(String, Value)> = vec![
            ("spec".into(), self.spec.clone().into()),
            ("revision".into(), self.revision.into()),
        ];
        for info in self.variables.iter().filter(|info| info.shape.elements() == 1) {
            if let Ok(Some(value)) = self.integer(&info.name) {
                entries.push((info.name.clone(), Value::I64(value)));
            }
        }
        for (alias, target) in &self.aliases {
            entries.push((format!("alias {alias}"), target.clone().into()));
        }
        Cow::Owned(entries)
    }

    fn data(&self) -> &Arc<FileData> {
        &self.data
    }
}

struct Header {
    spec: String,
    revision: u32,
    variables: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    aliases: Vec<(String, String)>,
}

fn parse(stream: &mut dyn ReadSeek, len: u64) -> Result<Header> {
    let mut reader = Reader::new(stream, len);
    let version = reader.u32(&"the format version")?;
    if version != VERSION {
        check_kind(version, len)?;
        return Err(FormatError::Version { format: "CTranslate2", version, supported: "6" });
    }
    let spec = read_string(&mut reader, &"the model spec")?;
    let revision = reader.u32(&"the spec revision")?;
    let count = reader.u32(&"the number of variables")?;
    // A variable takes a length, one letter and zero, a rank, a type and a size.
    let count = reader.count(&"the number of variables", count.into(), 2 + 2 + 1 + 1 + 4)?;
    let mut variables = Vec::with_capacity(capacity(count));
    let mut index = HashMap::with_capacity(capacity(count));
    for at in 0..count {
        let info = read_variable(&mut reader, at)?;
        if index.insert(info.name.clone(), at).is_some() {
            return Err(FormatError::Duplicate { kind: "variable", name: info.name });
        }
        variables.push(info);
    }
    let aliases = read_aliases(&mut reader, &index)?;
    if reader.remaining() > 0 {
        let problem = format!("{} bytes follow", reader.remaining());
        return Err(FormatError::invalid("the end of the model", problem));
    }
    Ok(Header { spec, revision, variables, index, aliases })
}

/// Says what a file is whose first number is no CTranslate2 version.
fn check_kind(version: u32, len: u64) -> Result<()> {
    if version < 32 {
        return Ok(());
    }
    match detect_bytes(&version.to_le_bytes(), len) {
        Ok(found) => {
            Err(FormatError::WrongFormat { wanted: "CTranslate2", found: found.name().into() })
        }
        Err(error) => Err(error),
    }
}

fn read_string(reader: &mut Reader<'_>, what: &dyn Display) -> Result<String> {
    let len = reader.u16(what)?;
    let mut bytes = reader.bytes(what, len.into())?;
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    reader::name(what, bytes)
}

fn read_variable(reader: &mut Reader<'_>, at: usize) -> Result<TensorInfo> {
    let name = read_string(reader, &format_args!("variable {at}"))?;
    let what = format_args!("variable {name:?}");
    let rank = usize::from(reader.u8(&what)?);
    if rank > MAX_DIMS {
        return Err(FormatError::Count {
            what: format!("the dimension count of {what}"),
            count: rank as u64,
            limit: MAX_DIMS as u64,
        });
    }
    // The file lists the slowest dimension first.
    let mut dims = [0; MAX_DIMS];
    for dim in dims.iter_mut().take(rank).rev() {
        *dim = reader.u32(&what)? as usize;
    }
    let dtype = match reader.u8(&what)? {
        0 => DType::F32,
        1 => DType::I8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::F16,
        5 => DType::BF16,
        number => {
            let what = what.to_string();
            return Err(FormatError::UnknownType { what, number: number.into() });
        }
    };
    let shape =
        Shape::new(dims.get(..rank).unwrap_or_default()).map_err(FormatError::tensor(&name))?;
    let size = tensor_size_bytes(dtype, shape).map_err(FormatError::tensor(&name))?;
    let stated = reader.u32(&what)?;
    if u64::from(stated) != size {
        let problem = format!("{stated} bytes of data, {dtype} of shape {shape} has {size}");
        return Err(FormatError::placement(&name, problem));
    }
    let start = reader.offset();
    reader.skip(&format_args!("the data of {what}"), size)?;
    Ok(TensorInfo { name, dtype, shape, rank, range: start..start + size })
}

fn read_aliases(
    reader: &mut Reader<'_>,
    index: &HashMap<String, usize>,
) -> Result<Vec<(String, String)>> {
    let count = reader.u32(&"the number of aliases")?;
    let count = reader.count(&"the number of aliases", count.into(), 2 * (2 + 2))?;
    let mut aliases: Vec<(String, String)> = Vec::with_capacity(capacity(count));
    let mut seen = std::collections::HashSet::with_capacity(capacity(count));
    for at in 0..count {
        let alias = read_string(reader, &format_args!("alias {at}"))?;
        let target = read_string(reader, &format_args!("the target of alias {alias:?}"))?;
        if !index.contains_key(&target) {
            return Err(FormatError::MissingTensor(target));
        }
        if index.contains_key(&alias) || !seen.insert(alias.clone()) {
            return Err(FormatError::Duplicate { kind: "variable", name: alias });
        }
        aliases.push((alias, target));
    }
    Ok(aliases)
}
