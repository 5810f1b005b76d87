//! Copies between tensors.
//!
//! Four ways, the first that applies: from host memory the destination is written; into host
//! memory the source is read; memory that can copies on its device; otherwise the bytes go
//! through host memory, which is counted as slow. Only elements are copied: gaps between them
//! belong to others.

use tensoryard_graph::Layout;

use super::data::{Source, unplaced};
use super::error::Access;
use super::queue::{bind, order, stamp};
use super::{TensorDataError, TensorKey, TensorPlace, TensorSlot, Tensors};
use crate::submission::Submission;
use crate::{Backend, Buffer, DeviceError, Location, Memory, MemoryError, Region};

/// The way that a copy took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyPath {
    /// Nothing to copy: the same tensor, or no elements.
    Nothing,
    /// The source lies in host memory.
    FromHost,
    /// The destination lies in host memory.
    ToHost,
    /// The device copied.
    OnDevice,
    /// Through host memory, since no device copies between the two: slow.
    ThroughHost,
}

/// The two ends of a copy.
#[derive(Debug, Clone, Copy)]
struct Ends {
    src: TensorKey,
    dst: TensorKey,
}

impl Tensors {
    /// Copies a tensor to another of this set, once what is queued on both is done.
    ///
    /// # Errors
    /// Other types, shapes or strides; a tensor without memory; a destination that cannot be
    /// written.
    #[doc(alias = "ggml_backend_tensor_copy")]
    pub fn copy(&mut self, src: TensorKey, dst: TensorKey) -> Result<CopyPath, TensorDataError> {
        let ends = Ends { src, dst };
        let Some([from, to]) = self.check_copy(None, ends)? else { return Ok(CopyPath::Nothing) };
        if from == to {
            return Ok(CopyPath::Nothing);
        }
        let (source, layout) = (self.whole(src)?, self.slot(src)?.layout);
        self.settled(src, 0, layout.data_bytes(), self.buffer(from.buffer)?)?;
        let outcome = if source.cut.is_some() {
            let bytes = self.read(src)?;
            self.buffer_mut(to.buffer)?
                .memory_mut()
                .write_tensor(to.offset_bytes, &layout, &bytes)
                .map(|()| CopyPath::ThroughHost)
        } else if from.buffer == to.buffer {
            let memory = self.buffer_mut(to.buffer)?.memory_mut();
            copy_inside(memory, from.offset_bytes, to.offset_bytes, &layout)
        } else {
            match self.buffers.get_disjoint_mut([from.buffer.0, to.buffer.0]) {
                Ok([source, target]) => {
                    copy_between(source, from.offset_bytes, target, to.offset_bytes, &layout)
                }
                Err(_) => Err(MemoryError::Allocation { bytes: layout.data_bytes() }),
            }
        };
        self.count(dst, &layout, outcome)
    }

    /// Copies a tensor of another set to one of this set, once what is queued on both is done.
    ///
    /// # Errors
    /// As of [`Tensors::copy`].
    pub fn copy_from(
        &mut self,
        other: &Tensors,
        src: TensorKey,
        dst: TensorKey,
    ) -> Result<CopyPath, TensorDataError> {
        let ends = Ends { src, dst };
        let checked = self.check_copy(Some(other), ends)?;
        let Some([from, to]) = checked else { return Ok(CopyPath::Nothing) };
        let (source, layout) = (other.whole(src)?, other.slot(src)?.layout);
        other.settled(src, 0, layout.data_bytes(), other.buffer(from.buffer)?)?;
        let outcome = if source.cut.is_some() {
            let bytes = other.read(src)?;
            self.buffer_mut(to.buffer)?
                .memory_mut()
                .write_tensor(to.offset_bytes, &layout, &bytes)
                .map(|()| CopyPath::ThroughHost)
        } else {
            let source = other.buffer(from.buffer)?;
            let target = self.buffer_mut(to.buffer)?;
            copy_between(source, from.offset_bytes, target, to.offset_bytes, &layout)
        };
        self.count(dst, &layout, outcome)
    }

    /// Copies a tensor to another of this set after what was queued on `src_backend`, and before
    /// what is queued on `dst_backend` later; also before what is queued on `src_backend` later
    /// and after what was queued on `dst_backend`, so that neither tensor changes under way.
    /// `None` for the second queue stands for the first. Where neither queue copies between the
    /// two kinds of memory, both are waited for, and the tensor is copied at once.
    ///
    /// # Errors
    /// As of [`Tensors::copy`]; what went wrong in a queue that was waited for.
    #[doc(alias = "ggml_backend_tensor_copy_async")]
    pub fn copy_async(
        &mut self,
        src_backend: &mut dyn Backend,
        dst_backend: Option<&mut dyn Backend>,
        src: TensorKey,
        dst: TensorKey,
    ) -> Result<CopyPath, TensorDataError> {
        let ends = Ends { src, dst };
        let Some([from, to]) = self.check_copy(None, ends)? else { return Ok(CopyPath::Nothing) };
        if from == to {
            return Ok(CopyPath::Nothing);
        }
        let mut queues = Queues::new(src_backend, dst_backend);
        let able = from.buffer != to.buffer && self.whole(src)?.cut.is_none();
        let bytes = self.slot(src)?.layout.data_bytes();
        if able {
            let (source, target) = (self.buffer(from.buffer)?, self.buffer(to.buffer)?);
            let layout = self.slot(src)?.layout;
            let locations = locations(from, to, layout);
            let outcome = queues.copy(source, target, &locations);
            if self.name_device(dst, 0, bytes, outcome)? {
                return self.count(dst, &layout, Ok(CopyPath::OnDevice));
            }
        }
        self.name_device(dst, 0, bytes, queues.synchronize())?;
        self.copy(src, dst)
    }

    /// As [`Tensors::copy_async`], from a tensor of another set.
    ///
    /// # Errors
    /// As of [`Tensors::copy_async`].
    pub fn copy_from_async(
        &mut self,
        other: &mut Tensors,
        src_backend: &mut dyn Backend,
        dst_backend: Option<&mut dyn Backend>,
        src: TensorKey,
        dst: TensorKey,
    ) -> Result<CopyPath, TensorDataError> {
        let ends = Ends { src, dst };
        let checked = self.check_copy(Some(other), ends)?;
        let Some([from, to]) = checked else { return Ok(CopyPath::Nothing) };
        let mut queues = Queues::new(src_backend, dst_backend);
        let layout = other.slot(src)?.layout;
        let bytes = layout.data_bytes();
        if other.whole(src)?.cut.is_none() {
            let (source, target) = (other.buffer(from.buffer)?, self.buffer(to.buffer)?);
            let outcome = queues.copy(source, target, &locations(from, to, layout));
            if self.name_device(dst, 0, bytes, outcome)? {
                return self.count(dst, &layout, Ok(CopyPath::OnDevice));
            }
        }
        self.name_device(dst, 0, bytes, queues.synchronize())?;
        self.copy_from(other, src, dst)
    }

    /// The places of both ends, once the copy is found to be possible; `None` if there are no
    /// elements to copy.
    fn check_copy(
        &self,
        other: Option<&Tensors>,
        ends: Ends,
    ) -> Result<Option<[TensorPlace; 2]>, TensorDataError> {
        let src = other.unwrap_or(self).slot(ends.src)?;
        let dst = self.slot(ends.dst)?;
        if src.layout != dst.layout {
            return Err(TensorDataError::LayoutMismatch {
                src: src.name.clone(),
                found: src.layout,
                dst: dst.name.clone(),
                wanted: dst.layout,
            });
        }
        let bytes = src.layout.data_bytes();
        if bytes == 0 || (other.is_none() && ends.src == ends.dst) {
            return Ok(None);
        }
        let place = |slot: &TensorSlot| slot.place.ok_or_else(|| unplaced(slot, 0, bytes));
        let (from, to) = (place(src)?, place(dst)?);
        let target = self.buffer(to.buffer)?;
        let access = Access { tensor: &dst.name, offset_bytes: 0, bytes };
        if dst.view.is_some() && !target.buffer_type().takes_views() {
            return Err(access.memory(MemoryError::WholeTensorsOnly {
                buffer_type: target.name().to_owned(),
                what: "a copy into a view",
            }));
        }
        if !target.is_writable() {
            return Err(access.memory(MemoryError::ReadOnly));
        }
        Ok(Some([from, to]))
    }

    /// All of a tensor as its memory holds it.
    fn whole(&self, tensor: TensorKey) -> Result<Source, TensorDataError> {
        let slot = self.slot(tensor)?;
        let extent = slot.layout.extent_bytes();
        self.readable(tensor, 0, extent)?.ok_or_else(|| unplaced(slot, 0, extent))
    }

    fn count(
        &mut self,
        dst: TensorKey,
        layout: &Layout,
        outcome: Result<CopyPath, MemoryError>,
    ) -> Result<CopyPath, TensorDataError> {
        let path = self.name(dst, 0, layout.data_bytes(), outcome)?;
        self.counters.copies += 1;
        self.counters.copied_bytes += layout.data_bytes() as u64;
        self.counters.slow_copies += u64::from(path == CopyPath::ThroughHost);
        Ok(path)
    }
}

fn locations(from: TensorPlace, to: TensorPlace, layout: Layout) -> [Location; 2] {
    let at = |region, place: TensorPlace| {
        let offset_bytes = place.offset_bytes;
        Location { region: Region::Chunk(region), offset_bytes, layout }
    };
    [at(0, from), at(1, to)]
}

/// The queues at both ends; `None` for the second stands for the first.
struct Queues<'a> {
    src: &'a mut dyn Backend,
    dst: Option<&'a mut dyn Backend>,
}

impl Queues<'_> {
    fn new<'q, 's: 'q, 'd: 'q>(
        src: &'q mut (dyn Backend + 's),
        dst: Option<&'q mut (dyn Backend + 'd)>,
    ) -> Queues<'q> {
        Queues { src, dst: dst.map(|dst| dst as &mut dyn Backend) }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.src.synchronize()?;
        self.dst.as_mut().map_or(Ok(()), |backend| backend.synchronize())
    }

    /// Copies in the queue of one end, in order with the other's. Says whether one could.
    fn copy(
        &mut self,
        source: &Buffer,
        target: &Buffer,
        [from, to]: &[Location; 2],
    ) -> Result<bool, DeviceError> {
        let (from_kind, to_kind) = (&**source.buffer_type(), &**target.buffer_type());
        let copies = |backend: &mut dyn Backend| {
            backend.transfers().is_some_and(|transfers| transfers.copies(from_kind, to_kind))
        };
        let by_source = copies(self.src);
        let by_target = !by_source && self.dst.as_mut().is_some_and(|dst| copies(&mut **dst));
        if !by_source && !by_target {
            return Ok(false);
        }
        let first = &mut *self.src;
        let copy = Queued { source, target, from, to };
        match &mut self.dst {
            Some(second) if by_target => copy.run(&mut **second, Some(first))?,
            Some(second) => copy.run(first, Some(&mut **second))?,
            None => copy.run(first, None)?,
        }
        Ok(true)
    }
}

struct Queued<'a> {
    source: &'a Buffer,
    target: &'a Buffer,
    from: &'a Location,
    to: &'a Location,
}

impl Queued<'_> {
    fn run(
        &self,
        runner: &mut dyn Backend,
        mut other: Option<&mut dyn Backend>,
    ) -> Result<(), DeviceError> {
        if let Some(other) = &mut other {
            runner.wait(&other.record()?)?;
        }
        let both = [self.source.shared(), self.target.shared()];
        for memory in both {
            order(runner, memory)?;
        }
        let memory = Submission::copy(&bind(&both), self.from.region, self.to.region);
        if let Some(transfers) = runner.transfers() {
            transfers.copy(memory, self.from, self.to)?;
        }
        for memory in both {
            stamp(runner, memory)?;
        }
        if let Some(other) = &mut other {
            other.wait(&runner.record()?)?;
        }
        Ok(())
    }
}

fn copy_between(
    src: &Buffer,
    from: usize,
    dst: &mut Buffer,
    to: usize,
    layout: &Layout,
) -> Result<CopyPath, MemoryError> {
    let (source, target) = (src.memory(), dst.memory_mut());
    let bytes = layout.data_bytes();
    if let Some(host) = source.host() {
        if layout.is_contiguous() {
            target.write_tensor(to, layout, host.slice(from, bytes)?)?;
        } else {
            target.write_tensor(to, layout, &read(source, from, layout)?)?;
        }
        return Ok(CopyPath::FromHost);
    }
    if target.host().is_some() {
        match target.host_mut().filter(|_| layout.is_contiguous()) {
            Some(host) => source.read_tensor(from, layout, host.slice_mut(to, bytes)?)?,
            None => target.write_tensor(to, layout, &read(source, from, layout)?)?,
        }
        return Ok(CopyPath::ToHost);
    }
    if target.copy_tensor(to, layout, Some(source), from)? {
        return Ok(CopyPath::OnDevice);
    }
    target.write_tensor(to, layout, &read(source, from, layout)?)?;
    Ok(CopyPath::ThroughHost)
}

fn copy_inside(
    memory: &mut dyn Memory,
    from: usize,
    to: usize,
    layout: &Layout,
) -> Result<CopyPath, MemoryError> {
    let is_host = memory.host().is_some();
    if !is_host && memory.copy_tensor(to, layout, None, from)? {
        return Ok(CopyPath::OnDevice);
    }
    let path = if is_host { CopyPath::FromHost } else { CopyPath::ThroughHost };
    let bytes = read(memory, from, layout)?;
    memory.write_tensor(to, layout, &bytes)?;
    Ok(path)
}

fn read(memory: &dyn Memory, from: usize, layout: &Layout) -> Result<Vec<u8>, MemoryError> {
    let size = layout.data_bytes();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| MemoryError::Allocation { bytes: size })?;
    bytes.resize(size, 0);
    memory.read_tensor(from, layout, &mut bytes)?;
    Ok(bytes)
}
