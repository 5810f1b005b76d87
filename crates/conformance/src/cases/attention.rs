//! Cases of attention.

use tensoryard_graph::{DType, Tensor};

use super::STORED;
use crate::case::{CaseList, Form, Leaf, Maker};
use crate::data::Fill;

/// Sizes of one case.
#[derive(Clone, Copy)]
struct Sizes {
    head: usize,
    value: usize,
    queries: usize,
    slots: usize,
    heads: usize,
    kv_heads: usize,
}

impl Sizes {
    fn name(self) -> String {
        let Self { head, value, queries, slots, heads, kv_heads } = self;
        format!("head={head} value={value} q={queries} kv={slots} heads={heads}/{kv_heads}")
    }

    fn leaves<'g>(self, m: &Maker<'g>, dtype: DType) -> (Tensor<'g>, Tensor<'g>, Tensor<'g>) {
        let q = m.input("q", &[self.head, self.queries, self.heads], &Fill::Unit);
        let k =
            m.leaf(Leaf::Input, "k", dtype, &[self.head, self.slots, self.kv_heads], &Fill::Unit);
        let v =
            m.leaf(Leaf::Input, "v", dtype, &[self.value, self.slots, self.kv_heads], &Fill::Unit);
        (q, k, v)
    }

    fn scale(self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }
}

const MASK: Fill = Fill::Choice(&[0.0, 0.0, f32::NEG_INFINITY, -0.5]);

pub(super) fn add(list: &mut CaseList) {
    let sizes = |head, value, queries, slots, heads, kv_heads| Sizes {
        head,
        value,
        queries,
        slots,
        heads,
        kv_heads,
    };
    let mut all = Vec::new();
    for head in [40, 64, 80, 96, 112, 128, 256, 576] {
        all.push(sizes(head, head, 3, 17, 2, 2));
    }
    for slots in [0, 1, 2, 15, 16, 17, 33, 64, 100, 257] {
        all.push(sizes(64, 64, 5, slots, 2, 2));
        all.push(sizes(64, 64, 1, slots, 6, 6));
    }
    for queries in [0, 1, 2, 11, 12, 13, 25, 40] {
        all.push(sizes(64, 64, queries, 40, 1, 1));
    }
    all.extend([sizes(64, 32, 3, 9, 4, 2), sizes(576, 512, 1, 9, 8, 1), sizes(1, 1, 3, 9, 2, 1)]);
    all.extend([
        sizes(3, 5, 4, 7, 6, 3),
        sizes(33, 17, 4, 21, 2, 2),
        sizes(64, 64, 150, 150, 2, 2),
    ]);
    for &dtype in STORED {
        for &size in &all {
            list.add(format!("flash_attn_ext/{dtype} {}", size.name()), move |m| {
                let (q, k, v) = size.leaves(m, dtype);
                q.attention(k, v, None, size.scale()).output("y");
            });
            if size.slots == 0 {
                continue;
            }
            for &mask in STORED {
                let name = format!("flash_attn_ext/{dtype} {} mask={mask}", size.name());
                list.add(name, move |m| {
                    let (q, k, v) = size.leaves(m, dtype);
                    let dims = [size.slots, size.queries];
                    let mask = m.leaf(Leaf::Input, "mask", mask, &dims, &MASK);
                    q.attention(k, v, Some(mask), size.scale()).output("y");
                });
            }
        }
        for (queries, slots) in [(1, 20), (4, 33), (13, 80)] {
            add_hidden(list, dtype, sizes(64, 64, queries, slots, 2, 2));
        }
        add_layouts(list, dtype);
    }
}

/// Slots that the mask hides hold NaN and infinities, and one query sees nothing.
fn add_hidden(list: &mut CaseList, dtype: DType, size: Sizes) {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let name = format!("flash_attn_ext/{dtype} {} hidden_slots_hold={value}", size.name());
        list.add(name, move |m| {
            let Sizes { head, value: value_dim, queries, slots, heads, kv_heads } = size;
            let q = m.input("q", &[head, queries, heads], &Fill::Unit);
            let seen = slots / 2;
            let poisoned = |n: usize| {
                let row = |at: usize| (at % 11) as f32 * 0.1 - 0.5;
                let hidden = |at: usize| (at / n) % slots >= seen;
                let all = n * slots * kv_heads;
                Fill::Cycle((0..all).map(|at| if hidden(at) { value } else { row(at) }).collect())
            };
            let k = m.leaf(Leaf::Input, "k", dtype, &[head, slots, kv_heads], &poisoned(head));
            let v = m.leaf(
                Leaf::Input,
                "v",
                dtype,
                &[value_dim, slots, kv_heads],
                &poisoned(value_dim),
            );
            let masked = (0..slots * queries)
                .map(|at| if at % slots >= seen { f32::NEG_INFINITY } else { 0.0 })
                .collect();
            let mask =
                m.leaf(Leaf::Input, "mask", DType::F32, &[slots, queries], &Fill::Cycle(masked));
            q.attention(k, v, Some(mask), size.scale()).output("y");
        });
    }
    let name = format!("flash_attn_ext/{dtype} {} one_query_sees_nothing", size.name());
    list.add(name, move |m| {
        let (q, k, v) = size.leaves(m, dtype);
        let blind = size.queries / 2;
        let values = (0..size.slots * size.queries)
            .map(|at| if at / size.slots == blind { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        let dims = [size.slots, size.queries];
        let mask = m.leaf(Leaf::Input, "mask", DType::F16, &dims, &Fill::Cycle(values));
        q.attention(k, v, Some(mask), size.scale()).output("y");
    });
}

/// From `[head, heads, tokens]` to `[head, tokens, heads]`.
#[track_caller]
fn heads(x: Tensor<'_>) -> Tensor<'_> {
    x.permute([0, 2, 1, 3])
}

fn add_layouts(list: &mut CaseList, dtype: DType) {
    for &form in Form::ROWS {
        for which in ["q", "k", "v"] {
            let name = format!("flash_attn_ext/{dtype} form_{which}={}", form.name());
            list.add(name, move |m| {
                let of = |name: &str| if name == which { form } else { Form::Plain };
                let fill = Fill::Unit;
                let q = m.shaped(Leaf::Input, "q", DType::F32, [32, 5, 4, 2], of("q"), &fill);
                let k = m.shaped(Leaf::Input, "k", dtype, [32, 9, 2, 2], of("k"), &fill);
                let v = m.shaped(Leaf::Input, "v", dtype, [32, 9, 2, 2], of("v"), &fill);
                q.attention(k, v, None, 0.2).output("y");
            });
        }
        let name = format!("flash_attn_ext/{dtype} form_mask={}", form.name());
        list.add(name, move |m| {
            let q = m.input("q", &[32, 5, 4], &Fill::Unit);
            let k = m.leaf(Leaf::Input, "k", dtype, &[32, 9, 2], &Fill::Unit);
            let v = m.leaf(Leaf::Input, "v", dtype, &[32, 9, 2], &Fill::Unit);
            let mask = m.shaped(Leaf::Input, "mask", DType::F16, [9, 5, 1, 1], form, &MASK);
            q.attention(k, v, Some(mask), 0.2).output("y");
        });
    }
    list.add(format!("flash_attn_ext/{dtype} cache_of_all_heads"), move |m| {
        // Heads side by side in each slot, as a decoder writes its cache.
        let q = heads(m.input("q", &[64, 6, 3], &Fill::Unit));
        let k = m.leaf(Leaf::State, "k", dtype, &[384, 48], &Fill::Unit);
        let v = m.leaf(Leaf::State, "v", dtype, &[384, 48], &Fill::Unit);
        let ids = m.ids("ids", &[3], &[10, 11, 12]);
        let k = k.set_rows(m.input("new_k", &[384, 3], &Fill::Unit), ids);
        let v = v.set_rows(m.input("new_v", &[384, 3], &Fill::Unit), ids);
        let size = dtype.block_bytes();
        let strides = [size, 64 * size, 384 * size, 384 * 48 * size];
        let k = k.view([64, 6, 13], strides, 0);
        let v = v.view([64, 6, 13], strides, 0);
        let mask = m.input("mask", &[13, 3], &MASK);
        q.attention(heads(k), heads(v), Some(mask), 0.125).output("y");
    });
}
