//! Rates of the kernels at the shapes of Whisper tiny.
//!
//! `cargo bench -p tensoryard-cpu` prints GFLOP/s for products and attention,
//! GB/s for kernels that stream memory, and the cost of a barrier. Arguments
//! select lines that contain one of them.

#![allow(clippy::print_stdout, clippy::unwrap_used, unsafe_code, missing_docs)]

use std::time::Instant;

use half::f16;
use tensoryard_cpu::kernels::attention::{AnyHeads, Attention, Heads};
use tensoryard_cpu::kernels::mat_mul::{Epilogue, MatMulSplit, mat_mul, mat_mul_scratch_len};
use tensoryard_cpu::kernels::rows::Rows;
use tensoryard_cpu::pack::{PANEL_ALIGNMENT, PANEL_ROWS, PanelType, Panels};
use tensoryard_cpu::span::{DstRows, SharedSlice};
use tensoryard_cpu::{Isa, Level, Member, Stopped, Team};

fn main() {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let selected = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f));
    let isas = Isa::available().into_iter().filter(|isa| isa.level() != Level::Scalar);
    for isa in isas {
        for threads in [1, 2] {
            let mut team = Team::new(threads).unwrap();
            for (m, n, k) in [(384, 1500, 384), (1536, 1500, 384), (384, 1500, 1536)] {
                for panel_type in [PanelType::F32, PanelType::F16] {
                    let name = format!("mat_mul {m}x{n}x{k} {panel_type:?} {isa} {threads}t");
                    if selected(&name) {
                        let flops = 2.0 * (m * n * k) as f64;
                        report(
                            &name,
                            flops,
                            "GFLOP/s",
                            product(isa, &mut team, panel_type, m, n, k),
                        );
                    }
                }
            }
            for (m, n, k) in [(51864, 1, 384), (1536, 1, 384), (384, 1, 1536), (51864, 5, 384)] {
                for panel_type in [PanelType::F32, PanelType::F16] {
                    let name = format!("mat_vec {m}x{n}x{k} {panel_type:?} {isa} {threads}t");
                    if selected(&name) {
                        let bytes = panel_type.packed_bytes(m, k).unwrap() as f64;
                        report(&name, bytes, "GB/s", product(isa, &mut team, panel_type, m, n, k));
                    }
                }
            }
        }
    }
    for isa in Isa::available().into_iter().filter(|isa| isa.level() != Level::Scalar) {
        for threads in [1, 2] {
            let mut team = Team::new(threads).unwrap();
            for n_q in [1500, 1] {
                let name = format!("attention 6x{n_q}x1500x64 F16 {isa} {threads}t");
                if selected(&name) {
                    let flops = 4.0 * (6 * n_q * 1500 * 64) as f64;
                    report(&name, flops, "GFLOP/s", attention(isa, &mut team, n_q));
                }
            }
        }
    }
    let mut team = Team::new(2).unwrap();
    if selected("barrier") {
        let barriers = 100_000;
        let seconds =
            best(|| run(&mut team, |member| (0..barriers).try_for_each(|_| member.barrier())));
        println!("barrier of 2: {:.0} ns", seconds / f64::from(barriers) * 1e9);
    }
}

/// Seconds of the fastest of several calls.
fn best(mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut fastest = f64::INFINITY;
    let mut calls = 0;
    while calls < 3 || begin.elapsed().as_secs_f64() < 0.4 {
        let start = Instant::now();
        call();
        fastest = fastest.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    fastest
}

fn report(name: &str, work: f64, unit: &str, seconds: f64) {
    println!("{name:<48} {:8.3} ms {:8.1} {unit}", seconds * 1e3, work / seconds / 1e9);
}

fn run(team: &mut Team, closure: impl Fn(&Member<'_>) -> Result<(), Stopped> + Sync) {
    team.run(closure).unwrap();
}

fn product(isa: Isa, team: &mut Team, panel_type: PanelType, m: usize, n: usize, k: usize) -> f64 {
    let elements = PANEL_ROWS * k * m.div_ceil(PANEL_ROWS);
    let values: Vec<f32> = (0..elements).map(|i| (i % 251) as f32 / 251.0).collect();
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let bytes: &[u8] = match panel_type {
        PanelType::F32 => bytemuck::cast_slice(&values),
        PanelType::F16 => bytemuck::cast_slice(&halves),
    };
    // Packed weights begin at a cache line.
    let mut memory = vec![0; bytes.len() + PANEL_ALIGNMENT];
    let skip = memory.as_ptr().align_offset(PANEL_ALIGNMENT);
    memory[skip..skip + bytes.len()].copy_from_slice(bytes);
    let bytes = &memory[skip..skip + bytes.len()];
    let panels = Panels::from_bytes(panel_type, bytes, m, k).unwrap();
    let input: Vec<f32> = (0..n * k).map(|i| (i % 127) as f32 / 127.0).collect();
    let rows = Rows::new(&input, k, n, k).unwrap();
    let mut out = vec![0.0; n * m];
    let out = SharedSlice::new(&mut out);
    let scratch_len = mat_mul_scratch_len(panel_type, k);
    let mut scratch = vec![0.0; scratch_len * team.size()];
    let scratch = SharedSlice::new(&mut scratch);
    let epilogue = Epilogue::default();
    let split = MatMulSplit::new(n, panels.panels(), team.size());
    best(|| {
        run(team, |member| {
            let own = member.index() * scratch_len..(member.index() + 1) * scratch_len;
            // SAFETY: each member has its own part.
            let scratch = unsafe { scratch.slice_mut(own) };
            for chunk in (member.index()..split.chunks()).step_by(member.size()) {
                let (part, panel_range) = split.chunk(chunk);
                let columns = panel_range.start * PANEL_ROWS..m.min(panel_range.end * PANEL_ROWS);
                let first = out.as_mut_ptr().wrapping_add(part.start * m);
                // SAFETY: chunks are disjoint rectangles of the result.
                let mut dst = unsafe { DstRows::from_raw(first, m, part.len(), columns) };
                mat_mul(isa, &panels, panel_range, &rows.slice(part), &epilogue, &mut dst, scratch);
            }
            Ok(())
        });
    })
}

/// Six heads of 64 dimensions over 1500 half-float keys.
fn attention(isa: Isa, team: &mut Team, n_q: usize) -> f64 {
    let (heads, n_kv, dim) = (6, 1500, 64);
    let row = heads * dim;
    let q: Vec<f32> = (0..n_q * row).map(|i| (i % 127) as f32 / 127.0).collect();
    let kv: Vec<f16> = (0..n_kv * row).map(|i| f16::from_f32((i % 97) as f32 / 97.0)).collect();
    let kv = AnyHeads::F16(Heads::new(&kv, n_kv * dim, dim, heads, n_kv, dim).unwrap());
    let q = Heads::new(&q, dim, row, heads, n_q, dim).unwrap();
    let attention = Attention::new(q, kv, kv, None, 0.125).unwrap();
    let mut out = vec![0.0; n_q * row];
    let out = SharedSlice::new(&mut out);
    let scratch_len = attention.scratch_len(n_q);
    let mut scratch = vec![0.0; scratch_len * team.size()];
    let scratch = SharedSlice::new(&mut scratch);
    let split = attention.split(team.size());
    best(|| {
        run(team, |member| {
            let own = member.index() * scratch_len..(member.index() + 1) * scratch_len;
            // SAFETY: each member has its own part.
            let scratch = unsafe { scratch.slice_mut(own) };
            for chunk in (member.index()..split.chunks()).step_by(member.size()) {
                let (head, queries) = split.chunk(chunk);
                let first = out.as_mut_ptr().wrapping_add(queries.start * row + head * dim);
                // SAFETY: chunks are disjoint rectangles of the result.
                let mut dst = unsafe { DstRows::from_raw(first, row, queries.len(), 0..dim) };
                attention.run(isa, head, queries, &mut dst, scratch);
            }
            Ok(())
        });
    })
}
