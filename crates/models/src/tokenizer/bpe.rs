//! Merging of byte pairs inside one piece of text.
//!
//! The pair of lowest rank is merged first, the leftmost of equals; a heap of
//! candidate pairs over a linked list keeps a long piece at `n log n`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Vocabulary;

/// Where the rank of a merge comes from.
#[derive(Debug, Clone)]
pub(super) enum MergeOrder {
    /// The id of the merged token is its rank.
    ById,
    /// (left id, right id) → (rank, merged id).
    ByPair(HashMap<(u32, u32), (u32, u32)>),
}

#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    id: u32,
    previous: Option<usize>,
    next: Option<usize>,
    merged_away: bool,
}

/// A pair of neighbours that can merge, as it stood when it was found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: usize,
    left_end: usize,
    right_end: usize,
    merged_id: u32,
}

impl MergeOrder {
    /// Appends the ids of one piece to `ids`.
    pub(super) fn encode_piece(
        &self,
        vocabulary: &Vocabulary,
        byte_ids: &[u32; 256],
        piece: &str,
        ids: &mut Vec<u32>,
    ) {
        let bytes = piece.as_bytes();
        if let Self::ById = self
            && let Some(id) = vocabulary.id(bytes)
        {
            ids.push(id);
            return;
        }

        let last = bytes.len().saturating_sub(1);
        let mut parts: Vec<Part> = bytes
            .iter()
            .enumerate()
            .map(|(at, &byte)| Part {
                start: at,
                end: at + 1,
                id: byte_ids[usize::from(byte)],
                previous: at.checked_sub(1),
                next: (at < last).then_some(at + 1),
                merged_away: false,
            })
            .collect();

        let mut heap = BinaryHeap::new();
        for left in 0..last {
            heap.extend(self.candidate(vocabulary, bytes, &parts, left).map(Reverse));
        }
        while let Some(Reverse(best)) = heap.pop() {
            let left = parts[best.left];
            let Some(right_at) = left.next else { continue };
            let right = parts[right_at];
            let is_stale =
                left.merged_away || left.end != best.left_end || right.end != best.right_end;
            if is_stale {
                continue;
            }

            parts[best.left].end = right.end;
            parts[best.left].id = best.merged_id;
            parts[best.left].next = right.next;
            parts[right_at].merged_away = true;
            if let Some(after) = right.next {
                parts[after].previous = Some(best.left);
            }
            for at in [Some(best.left), left.previous].into_iter().flatten() {
                heap.extend(self.candidate(vocabulary, bytes, &parts, at).map(Reverse));
            }
        }
        ids.extend(parts.iter().filter(|part| !part.merged_away).map(|part| part.id));
    }

    fn candidate(
        &self,
        vocabulary: &Vocabulary,
        bytes: &[u8],
        parts: &[Part],
        left_at: usize,
    ) -> Option<Candidate> {
        let left = parts[left_at];
        let right = parts[left.next?];
        let (rank, merged_id) = match self {
            Self::ById => {
                let id = vocabulary.id(&bytes[left.start..right.end])?;
                (id, id)
            }
            Self::ByPair(pairs) => *pairs.get(&(left.id, right.id))?,
        };
        Some(Candidate { rank, left: left_at, left_end: left.end, right_end: right.end, merged_id })
    }
}
