//! High-bandwidth memory of processors that have it, as a buffer type.
//!
//! The system shows such memory as NUMA nodes that have memory and no processors. Which nodes
//! there are is read at run time from a directory of node files, and pages are bound to them by
//! a system call before they are touched. A machine without such nodes has no such buffer type.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapMut;
use tensoryard_graph::Layout;
use tensoryard_runtime::{BufferType, HostMemory, Memory, MemoryError};

const NAME: &str = "CPU_HBM";
const ALIGNMENT: usize = 64;

/// Where Linux describes the nodes of the machine.
const NODE_DIRECTORY: &str = "/sys/devices/system/node";

/// Linux knows no more nodes than this.
const MAX_NODES: u32 = 1024;

/// Memory on nodes of high bandwidth.
#[derive(Debug)]
#[doc(alias = "ggml_backend_cpu_hbm_buffer_type")]
pub struct HbmBufferType {
    directory: Box<Path>,
    nodes: Vec<u32>,
    total: usize,
}

/// The buffer type of this machine's high-bandwidth memory.
///
/// # Errors
/// A machine without such memory.
#[doc(alias = "ggml_backend_cpu_hbm_buffer_type")]
pub fn hbm_buffer_type() -> Result<Arc<dyn BufferType>, MemoryError> {
    Ok(Arc::new(HbmBufferType::find(Path::new(NODE_DIRECTORY))?))
}

impl HbmBufferType {
    /// The buffer type of the nodes that a directory describes, laid out as Linux does it under
    /// `/sys/devices/system/node`. Where the files state bandwidths, nodes of memory only that
    /// are no faster than the others, such as memory behind an expansion card, are left out.
    ///
    /// # Errors
    /// A directory without such nodes.
    pub fn find(directory: &Path) -> Result<Self, MemoryError> {
        let nodes = memory_only_nodes(directory);
        if nodes.is_empty() {
            let place = directory.display();
            return Err(unavailable(format!(
                "no node in {place} has fast memory and no processor"
            )));
        }
        let total = nodes.iter().map(|&node| memory_info(directory, node).total).sum();
        Ok(Self { directory: directory.into(), nodes, total })
    }

    /// Numbers of the nodes.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }
}

fn unavailable(reason: String) -> MemoryError {
    MemoryError::Unavailable { buffer_type: NAME.to_owned(), reason }
}

impl BufferType for HbmBufferType {
    fn name(&self) -> &str {
        NAME
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn max_size(&self) -> usize {
        if self.total == 0 { isize::MAX as usize - ALIGNMENT } else { self.total }
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        if size == 0 {
            return Ok(Box::new(HostMemory::allocate(0, ALIGNMENT)?));
        }
        // Pages that are bound to a full node are not refused, the process is killed instead.
        let infos = self.nodes.iter().map(|&node| memory_info(&self.directory, node));
        let free: usize = infos.map(|info| info.free).sum();
        if self.total > 0 && size > free {
            return Err(MemoryError::Allocation { bytes: size });
        }
        let mut pages =
            MmapMut::map_anon(size).map_err(|_| MemoryError::Allocation { bytes: size })?;
        bind(&mut pages, &self.nodes).map_err(unavailable)?;
        Ok(Box::new(HostMemory::from_owned(Box::new(pages))))
    }
}

/// Binds pages that nobody has touched yet to nodes.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "there is no safe way to the system call")]
fn bind(pages: &mut MmapMut, nodes: &[u32]) -> Result<(), String> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask = [0 as libc::c_ulong; MAX_NODES as usize / BITS];
    for &node in nodes {
        mask[node as usize / BITS] |= 1 << (node as usize % BITS);
    }
    // The system leaves the last bit of the count out.
    let bits = MAX_NODES as libc::c_ulong + 1;
    let policy = libc::MPOL_BIND;
    // SAFETY: the range is a mapping of our own, borrowed exclusively, and the mask has `bits - 1`
    // bits. The call changes where the pages will lie, not what is in them.
    let outcome = unsafe {
        let (address, bytes) = (pages.as_mut_ptr(), pages.len());
        libc::syscall(libc::SYS_mbind, address, bytes, policy, mask.as_ptr(), bits, 0)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(format!("{} bytes were not bound to nodes {nodes:?}: {error}", pages.len()))
}

#[cfg(not(target_os = "linux"))]
fn bind(_: &mut MmapMut, _: &[u32]) -> Result<(), String> {
    Err("memory is bound to nodes on Linux only".to_owned())
}

fn memory_only_nodes(directory: &Path) -> Vec<u32> {
    let of_file = |name: &str| Some(parse_list(&fs::read_to_string(directory.join(name)).ok()?));
    let Some(with_memory) = of_file("has_memory") else { return Vec::new() };
    let has_processor = |node: u32| {
        let list = fs::read_to_string(directory.join(format!("node{node}/cpulist")));
        list.is_ok_and(|list| !list.trim().is_empty())
    };
    let with_processor = of_file("has_cpu").unwrap_or_default();
    let (near, far): (Vec<u32>, Vec<u32>) = with_memory
        .iter()
        .partition(|&&node| with_processor.contains(&node) || has_processor(node));
    let bandwidth = |node: u32| -> Option<u64> {
        let path = format!("node{node}/access0/initiators/read_bandwidth");
        fs::read_to_string(directory.join(path)).ok()?.trim().parse().ok()
    };
    let usual = near.iter().filter_map(|&node| bandwidth(node)).max();
    let is_fast = |node: &u32| match (bandwidth(*node), usual) {
        (Some(own), Some(usual)) => own > usual,
        (_, None) | (None, _) => true,
    };
    far.into_iter().filter(is_fast).collect()
}

/// Numbers of a list such as `0-2,5`. What is no number of a node is left out.
fn parse_list(text: &str) -> BTreeSet<u32> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&node| node < MAX_NODES);
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(part).map(|node| node..=node),
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[derive(Debug, Default)]
struct NodeMemory {
    total: usize,
    free: usize,
}

/// Memory of a node; zeros where the files do not say. What holds files can be had, too.
fn memory_info(directory: &Path, node: u32) -> NodeMemory {
    let text =
        fs::read_to_string(directory.join(format!("node{node}/meminfo"))).unwrap_or_default();
    let mut memory = NodeMemory::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let kib = value.trim().strip_suffix(" kB").and_then(|kib| kib.trim().parse::<usize>().ok());
        let bytes = kib.unwrap_or(0).saturating_mul(1024);
        match key.rsplit(' ').next() {
            Some("MemTotal") => memory.total = bytes,
            Some("MemFree" | "Active(file)" | "Inactive(file)") => {
                memory.free = memory.free.saturating_add(bytes);
            }
            Some(_) | None => {}
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes() {
        let list = |text| parse_list(text).into_iter().collect::<Vec<_>>();
        assert_eq!(list("0\n"), [0]);
        assert_eq!(list("0-2,5,7-7\n"), [0, 1, 2, 5, 7]);
        assert_eq!(list("\n"), []);
        assert_eq!(list("3-1,x,2"), [2]);
        assert_eq!(list("0-4294967295,1024,99999999999"), []);
    }
}
