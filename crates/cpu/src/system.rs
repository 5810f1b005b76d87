//! What the operating system says of processor and memory.

use std::fs;

use tensoryard_runtime::MemoryInfo;

/// Name of the processor, or its architecture where the system does not say.
pub(crate) fn processor_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Memory of the machine, or of the container if that allows less; zeros where the system
/// does not say.
pub(crate) fn memory() -> MemoryInfo {
    let machine = machine_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0);
    match limit {
        Some(limit) if limit < machine.total => {
            MemoryInfo { total: limit, free: limit.saturating_sub(used).min(machine.free) }
        }
        Some(_) | None => machine,
    }
}

fn machine_memory(meminfo: &str) -> MemoryInfo {
    let bytes = |wanted: &str| {
        meminfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let kib = value.trim().strip_suffix(" kB")?;
            (key == wanted).then(|| kib.trim().parse::<usize>().ok())?.map(|kib| kib * 1024)
        })
    };
    MemoryInfo { free: bytes("MemAvailable").unwrap_or(0), total: bytes("MemTotal").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24689764 kB\nMemFree:  1 kB\nMemAvailable:   23000000 kB\n";
        let memory = machine_memory(text);
        assert_eq!(memory.total, 24_689_764 * 1024);
        assert_eq!(memory.free, 23_000_000 * 1024);
        assert_eq!(machine_memory("").total, 0);
    }
}
