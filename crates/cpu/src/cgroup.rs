//! Memory limits of the control groups that a process is in, as containers and service managers
//! set them on Linux.
//!
//! A group is inside other groups, and the tightest limit on the way up counts. Both versions of
//! the interface are read, since a machine may have both: the files of version 2, and those of the
//! memory controller of version 1. What a group keeps of files that nobody has read lately counts
//! as free, since the system gives it up first.

use std::fs;
use std::path::Path;

use tensoryard_runtime::MemoryInfo;

/// Names of one version of the interface.
struct Interface {
    file_system: &'static str,
    /// Option of the mount that has the memory controller, where there is one mount each.
    option: Option<&'static str>,
    /// Where it is mounted if the list of mounts does not say.
    usual_mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Keys of `memory.stat`.
    cache: &'static str,
    limit_of_all: Option<&'static str>,
}

const VERSION_2: Interface = Interface {
    file_system: "cgroup2",
    option: None,
    usual_mount: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file",
    limit_of_all: None,
};

const VERSION_1: Interface = Interface {
    file_system: "cgroup",
    option: Some("memory"),
    usual_mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file",
    limit_of_all: Some("hierarchical_memory_limit"),
};

/// The tightest limits on total and free memory of this process's groups, as the files below
/// `root` tell them; `None` where no group has a limit.
pub(crate) fn memory(root: &Path) -> Option<MemoryInfo> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mut groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    if groups.is_empty() {
        // The mounts of a container usually show its own group at the top.
        groups.push_str("1:memory:/\n0::/\n");
    }
    let of_group = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let interface = if controllers.is_empty() {
            &VERSION_2
        } else if controllers.split(',').any(|name| name == "memory") {
            &VERSION_1
        } else {
            return None;
        };
        interface.tightest(root, &mounts, group)
    };
    groups.lines().filter_map(of_group).reduce(tighter)
}

fn tighter(a: MemoryInfo, b: MemoryInfo) -> MemoryInfo {
    MemoryInfo { total: a.total.min(b.total), free: a.free.min(b.free) }
}

impl Interface {
    /// The tightest limit of a group and of those that it is inside of.
    fn tightest(&self, root: &Path, mounts: &str, group: &str) -> Option<MemoryInfo> {
        let (top, below) = mounts
            .lines()
            .find_map(|line| self.find(line, group))
            .unwrap_or_else(|| (self.usual_mount.to_owned(), group.to_owned()));
        let top = root.join(top.trim_start_matches('/'));
        // The directory of the group, then those above it. What is not there has no limit.
        let names: Vec<&str> =
            below.split('/').filter(|name| !matches!(*name, "" | "..")).collect();
        let depths = (0..=names.len()).rev();
        let directories =
            depths.map(|depth| names[..depth].iter().fold(top.clone(), |at, name| at.join(name)));
        directories.filter_map(|directory| self.limit(&directory)).reduce(tighter)
    }

    /// Where a line of the list of mounts says that groups are, and the path of a group in there.
    fn find(&self, line: &str, group: &str) -> Option<(String, String)> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (shown, place) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let has_option = |wanted| kind.clone().nth(2)?.split(',').find(|&option| option == wanted);
        if self.option.is_some_and(|wanted| has_option(wanted).is_none())
            || kind.next() != Some(self.file_system)
        {
            return None;
        }
        // A container may be shown its own group as the top one while it is told the whole path.
        let below = Path::new(group).strip_prefix(shown).ok().and_then(Path::to_str);
        // Groups outside of what is shown are named by `..`.
        let below = below.filter(|path| !path.split('/').any(|name| name == ".."));
        Some((place.to_owned(), below.unwrap_or_default().to_owned()))
    }

    fn limit(&self, directory: &Path) -> Option<MemoryInfo> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<usize>().ok();
        let statistics = read("memory.stat").unwrap_or_default();
        let statistic = |wanted: &str| {
            statistics.lines().find_map(|line| {
                let (key, value) = line.split_once(' ')?;
                (key == wanted).then(|| value.trim().parse::<usize>().ok())?
            })
        };
        let own = number(self.limit);
        let total = [own, self.limit_of_all.and_then(statistic)].into_iter().flatten().min()?;
        let cache = statistic(self.cache).unwrap_or(0);
        let used = number(self.used).unwrap_or(0).saturating_sub(cache);
        Some(MemoryInfo { total, free: total.saturating_sub(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A directory with these files below it.
    fn files(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(list: &[(&str, &str)]) -> Option<(usize, usize)> {
        memory(files(list).path()).map(|memory| (memory.total, memory.free))
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_tightest_limit_of_nested_groups_counts() {
        let inner = "sys/fs/cgroup/user.slice/app.scope";
        let limits = |own: &str, above: &str| {
            found(&[
                ("proc/self/cgroup", "0::/user.slice/app.scope\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                (&format!("{inner}/memory.max"), own),
                (&format!("{inner}/memory.current"), "300\n"),
                (&format!("{inner}/memory.stat"), "anon 200\ninactive_file 100\n"),
                ("sys/fs/cgroup/user.slice/memory.max", above),
                ("sys/fs/cgroup/user.slice/memory.current", "900\n"),
            ])
        };
        // 300 bytes are in use, 100 of them for files that can be dropped.
        assert_eq!(limits("1000\n", "max\n"), Some((1000, 800)));
        // Of the group above, 900 of 1200 bytes are in use, by others too.
        assert_eq!(limits("1000\n", "1200\n"), Some((1000, 300)));
        assert_eq!(limits("max\n", "950\n"), Some((950, 50)));
        assert_eq!(limits("max\n", "800\n"), Some((800, 0)));
        assert_eq!(limits("max\n", "max\n"), None);
    }

    #[test]
    fn the_memory_controller_of_version_1_is_read() {
        let groups = "5:devices:/\n4:cpuset,memory:/job/7\n1:cpu:/\n0::/\n";
        let mounts = "34 31 0:31 / /cg/set rw - cgroup cgroup rw,cpuset\n\
                      35 31 0:32 / /cg/mem rw,relatime - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";
        let limits = |own: &str, stat: &str| {
            found(&[
                ("proc/self/cgroup", groups),
                ("proc/self/mountinfo", mounts),
                ("cg/mem/job/7/memory.limit_in_bytes", own),
                ("cg/mem/job/7/memory.usage_in_bytes", "5000\n"),
                ("cg/mem/job/7/memory.stat", stat),
            ])
        };
        let cache = "inactive_file 1\ntotal_inactive_file 2000\n";
        assert_eq!(limits("8000\n", cache), Some((8000, 5000)));
        // A limit of a group that the mount does not show.
        assert_eq!(limits("8000\n", "hierarchical_memory_limit 6000\n"), Some((6000, 1000)));
        // The number that stands for no limit is more than any machine has.
        assert_eq!(
            limits("9223372036854771712\n", cache),
            Some((9_223_372_036_854_771_712, 9_223_372_036_854_768_712))
        );
    }

    #[test]
    fn both_versions_count_where_a_machine_has_both() {
        let list = [
            ("proc/self/cgroup", "4:memory:/a\n0::/b\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700"),
            ("sys/fs/cgroup/b/memory.max", "600"),
            ("sys/fs/cgroup/b/memory.current", "50"),
        ];
        assert_eq!(found(&list), Some((600, 550)));
    }

    #[test]
    fn a_container_finds_its_group_at_the_top_of_its_mount() {
        // The whole path is told, the mount shows its last part as the top.
        let mount = "30 23 0:26 /docker/9f /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for group in ["0::/docker/9f\n", "0::/\n", "0::/../other\n", "0::/elsewhere\n"] {
            let list = [
                ("proc/self/cgroup", group),
                ("proc/self/mountinfo", mount),
                ("sys/fs/cgroup/memory.max", "4096"),
                ("sys/fs/cgroup/memory.current", "96"),
                ("sys/fs/memory.max", "1"),
            ];
            assert_eq!(found(&list), Some((4096, 4000)), "{group}");
        }
        let inner = [
            ("proc/self/cgroup", "0::/docker/9f/inner\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/inner/memory.max", "4095"),
        ];
        assert_eq!(found(&inner), Some((4095, 4095)));
    }

    #[test]
    fn what_is_missing_or_no_number_is_no_limit() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("sys/fs/cgroup/memory.max", "77")]), Some((77, 77)));
        assert_eq!(found(&[("proc/self/cgroup", "nonsense\n:\n0::\n")]), None);
        let odd = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", "- cgroup2\n - \n1 2 3 - cgroup2 x rw\n"),
            ("sys/fs/cgroup/memory.max", "-5"),
        ];
        assert_eq!(found(&odd), None);
    }
}
