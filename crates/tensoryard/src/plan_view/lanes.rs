//! Where the operations of a graph stand along a horizontal axis, for pictures.

use super::report::GraphReport;

/// Room before a split that waits for copies, in widths of an operation, when time is not known.
const COPY_GAP: f64 = 1.6;
/// Room before any other split.
const SPLIT_GAP: f64 = 0.4;

/// Positions of everything that is drawn, from 0 to `end`.
#[derive(Debug, PartialEq)]
pub(super) struct Lanes {
    pub(super) end: f64,
    /// Levels of parts.
    pub(super) depth: usize,
    pub(super) operations: Vec<(f64, f64)>,
    pub(super) splits: Vec<(f64, f64)>,
    pub(super) bands: Vec<Band>,
    pub(super) bundles: Vec<Bundle>,
}

/// A part of the model: operations behind each other that belong to it.
#[derive(Debug, PartialEq)]
pub(super) struct Band {
    pub(super) level: usize,
    pub(super) path: Vec<String>,
    pub(super) start: f64,
    pub(super) end: f64,
}

/// The copies of one split that come from one device.
#[derive(Debug, PartialEq)]
pub(super) struct Bundle {
    pub(super) from: Option<usize>,
    pub(super) to: usize,
    pub(super) bytes: usize,
    /// Where they have been sent.
    pub(super) start: f64,
    /// Where the split begins that waits for them.
    pub(super) end: f64,
    /// Room for a label around the end, as a share of the axis times 1000.
    pub(super) room: f64,
}

/// Lays a graph out: by predicted time where every split has one, else in order.
pub(super) fn lanes(graph: &GraphReport, max_depth: usize) -> Lanes {
    let timed =
        !graph.splits.is_empty() && graph.splits.iter().all(|split| split.predicted.is_some());
    let mut operations = Vec::with_capacity(graph.operations.len());
    let mut splits = Vec::with_capacity(graph.splits.len());
    let mut end: f64 = 0.0;
    for (number, split) in graph.splits.iter().enumerate() {
        let last = split.first_operation + split.operations;
        let own = graph.operations.get(split.first_operation..last).unwrap_or_default();
        let gap = match (split.copies.is_empty(), number) {
            (false, _) => COPY_GAP,
            (true, 0) => 0.0,
            (true, _) => SPLIT_GAP,
        };
        let (mut at, begin, stop) = match split.predicted.filter(|_| timed) {
            Some(time) => {
                let known: u64 = own.iter().filter_map(|operation| operation.predicted_ns).sum();
                let overhead = time.compute_ns.saturating_sub(known);
                (
                    time.start_ns.saturating_add(overhead) as f64,
                    time.start_ns as f64,
                    Some(time.end_ns as f64),
                )
            }
            None => (end + gap, end + gap, None),
        };
        for operation in own {
            let width = if timed { operation.predicted_ns.unwrap_or(0) as f64 } else { 1.0 };
            operations.push((at, at + width));
            at += width;
        }
        let stop = stop.unwrap_or(at);
        splits.push((begin, stop));
        end = end.max(stop);
    }
    let end = end.max(1e-9);
    let depth = graph.operations.iter().map(|operation| operation.group.len()).max().unwrap_or(0);
    let depth = depth.min(max_depth);
    let bands = bands(graph, &operations, depth);
    let bundles = bundles(graph, &operations, &splits, timed, end);
    Lanes { end, depth, operations, splits, bands, bundles }
}

fn bands(graph: &GraphReport, operations: &[(f64, f64)], depth: usize) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for level in 0..depth {
        let mut is_open = false;
        for (operation, &(start, end)) in graph.operations.iter().zip(operations) {
            let Some(path) = operation.group.get(..=level) else {
                is_open = false;
                continue;
            };
            match bands.last_mut().filter(|band| is_open && band.path == path) {
                Some(band) => band.end = band.end.max(end),
                None => bands.push(Band { level, path: path.to_vec(), start, end }),
            }
            is_open = true;
        }
    }
    bands
}

fn bundles(
    graph: &GraphReport,
    operations: &[(f64, f64)],
    splits: &[(f64, f64)],
    timed: bool,
    end: f64,
) -> Vec<Bundle> {
    let mut bundles: Vec<Bundle> = Vec::new();
    for (number, split) in graph.splits.iter().enumerate() {
        let first = bundles.len();
        for copy in split.copies.iter().filter_map(|&at| graph.copies.get(at)) {
            let begin = splits[number].0;
            let made = copy.operation.and_then(|at| operations.get(at)).map(|&(_, end)| end);
            let sent = copy.predicted.filter(|_| timed).map(|time| time.end_ns as f64);
            let start = sent.or(made).unwrap_or(begin).min(begin);
            match bundles[first..].iter_mut().find(|bundle| bundle.from == copy.from) {
                Some(bundle) => {
                    bundle.bytes += copy.bytes;
                    bundle.start = bundle.start.max(start);
                }
                None => bundles.push(Bundle {
                    from: copy.from,
                    to: split.device,
                    bytes: copy.bytes,
                    start,
                    end: begin,
                    room: 0.0,
                }),
            }
        }
    }
    // Labels stand in the gap before the lane that is copied to.
    for at in 0..bundles.len() {
        let others = bundles.iter().enumerate().filter(|(other, bundle)| {
            *other != at && bundle.to == bundles[at].to && bundle.from == bundles[at].from
        });
        let nearest = others.map(|(_, bundle)| (bundle.end - bundles[at].end).abs());
        bundles[at].room = nearest.fold(end, f64::min) / end * 1000.0;
    }
    bundles
}
