//! Tensors that go from one memory to another during a run.
//!
//! Four ways, the first that applies: a device that copies between the two kinds of memory does
//! so in its queue; from host memory the bytes are written to the device; into host memory they
//! are read from the device; otherwise they go through host memory, which is counted as slow.

use super::route::CopyRoute;
use super::run::Run;
use crate::submission::Submission;
use crate::{DeviceIndex, Event, Location, MemoryError, Region, RunError};

impl Run<'_> {
    /// Copies a tensor to where a later split reads it, unless it is there from the last run.
    pub fn arrive(&mut self, index: usize) -> Result<(), RunError> {
        let route = &self.route.arrivals[index];
        let counters = &mut self.workspace.counters;
        if self.arrived[index] {
            counters.unchanged += 1;
            return Ok(());
        }
        self.copy(route)?;
        self.arrived[index] = route.kept;
        Ok(())
    }

    fn copy(&mut self, route: &CopyRoute) -> Result<(), RunError> {
        let counters = &mut self.workspace.counters;
        counters.copies += 1;
        counters.copied_bytes += route.from.layout.data_bytes() as u64;
        if self.copy_on_device(route)? {
            return Ok(());
        }
        if !route.from_kind.is_host() && !route.to_kind.is_host() {
            self.workspace.counters.slow_copies += 1;
        }
        let mut bytes = std::mem::take(&mut self.workspace.staging);
        let outcome = self.copy_through_host(route, &mut bytes);
        self.workspace.staging = bytes;
        outcome
    }

    fn copy_through_host(
        &mut self,
        route: &CopyRoute,
        bytes: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        if let Some(read) = self.read(route.from_device, &route.from, bytes)? {
            // It has come by now, but in simulated time the write comes after it, too.
            self.backends[route.to_device.0].wait(&read)?;
        }
        self.write(route.to_device, &route.to, bytes)
    }

    fn copy_on_device(&mut self, route: &CopyRoute) -> Result<bool, RunError> {
        if !self.is_asynchronous {
            return Ok(false);
        }
        let (from_kind, to_kind) = (&*route.from_kind, &*route.to_kind);
        let mut ends = [route.from_device, route.to_device].into_iter();
        let able = ends.find(|device| {
            let transfers = self.backends[device.0].transfers();
            transfers.is_some_and(|transfers| transfers.copies(from_kind, to_kind))
        });
        let Some(device) = able else { return Ok(false) };
        let regions = [route.from.region, route.to.region];
        self.order(device, &regions)?;
        let memory = Submission::copy(&self.bindings, route.from.region, route.to.region);
        if let Some(transfers) = self.backends[device.0].transfers() {
            transfers.copy(memory, &route.from, &route.to)?;
        }
        self.stamp(device, &regions)?;
        Ok(true)
    }

    /// Reads a tensor into contiguous bytes, once what was queued on its memory is done. Returns
    /// when that was, if a queue did it.
    fn read(
        &mut self,
        device: DeviceIndex,
        from: &Location,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Event>, RunError> {
        let size = from.layout.data_bytes();
        if self.is_asynchronous && !matches!(from.region, Region::Weight(_)) {
            let regions = [from.region];
            if self.backends[device.0].transfers().is_some() {
                self.order(device, &regions)?;
                let memory = Submission::copy(&self.bindings, from.region, from.region);
                if let Some(transfers) = self.backends[device.0].transfers() {
                    let pending = transfers.read(memory, from)?;
                    self.stamp(device, &regions)?;
                    let event = pending.event().clone();
                    *bytes = pending.wait()?;
                    return Ok(Some(event));
                }
            }
            if let Some(event) = self.bindings.region(from.region).and_then(|r| r.shared.last()) {
                event.wait()?;
            }
        }
        bytes.clear();
        bytes.try_reserve(size).map_err(|_| MemoryError::Allocation { bytes: size })?;
        bytes.resize(size, 0);
        let missing = || RunError::PlanMismatch(format!("{:?} is not bound", from.region));
        let bound = self.bindings.region(from.region).ok_or_else(missing)?;
        let offset = bound.offset_bytes.saturating_add(from.offset_bytes);
        let memory = bound.shared.when_idle();
        memory
            .read_tensor(offset, &from.layout, bytes)
            .map_err(|error| self.plan.memory_error(device, error))?;
        Ok(None)
    }

    /// Whether an input in plain host memory holds these bytes already.
    pub fn holds(&self, to: &Location, bytes: &[u8]) -> bool {
        let Some(bound) = self.bindings.region(to.region) else { return false };
        let host = bound.shared.when_idle().host();
        let held = host.and_then(|host| host.slice(to.offset_bytes, bytes.len()).ok());
        to.layout.is_contiguous() && held == Some(bytes)
    }

    /// Writes a tensor of compute memory from contiguous bytes, after what was queued on its
    /// memory: in the queue where the device has transfers, else at once.
    pub fn write(
        &mut self,
        device: DeviceIndex,
        to: &Location,
        bytes: &[u8],
    ) -> Result<(), RunError> {
        let regions = [to.region];
        let missing = || RunError::PlanMismatch(format!("{:?} is no compute memory", to.region));
        let Region::Chunk(chunk) = to.region else { return Err(missing()) };
        if self.is_asynchronous && self.backends[device.0].transfers().is_some() {
            self.order(device, &regions)?;
            let memory = Submission::copy(&self.bindings, to.region, to.region);
            if let Some(transfers) = self.backends[device.0].transfers() {
                transfers.write(memory, to, bytes)?;
            }
            self.stamp(device, &regions)?;
            return Ok(());
        }
        if self.is_asynchronous
            && let Some(event) = self.bindings.region(to.region).and_then(|r| r.shared.last())
        {
            event.wait()?;
        }
        let buffer =
            self.workspace.chunk_mut(self.plan, chunk as usize, self.copy).ok_or_else(missing)?;
        buffer
            .memory_mut()
            .write_tensor(to.offset_bytes, &to.layout, bytes)
            .map_err(|error| self.plan.memory_error(device, error))?;
        Ok(())
    }
}
