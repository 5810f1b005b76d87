//! Cases of the one-dimensional convolution.

use super::STORED;
use crate::case::{CaseList, Leaf};
use crate::data::Fill;

pub(super) fn add(list: &mut CaseList) {
    for &dtype in STORED {
        for channels in [1, 3, 80, 384] {
            for kernel in [1, 3, 5] {
                for stride in [1, 2] {
                    for padding in [0, 1, 2] {
                        for (leaf, frames, out) in [(Leaf::Weight, 9, 17), (Leaf::Input, 14, 5)] {
                            let name = format!(
                                "conv_1d/{dtype} channels={channels} kernel={kernel} \
                                 stride={stride} padding={padding} frames={frames} w={}",
                                leaf.name()
                            );
                            list.add(name, move |m| {
                                let x = m.input("x", &[channels, frames], &Fill::Unit);
                                let dims = [channels, kernel, out];
                                m.leaf(leaf, "w", dtype, &dims, &Fill::Unit)
                                    .conv_1d(x, stride, padding)
                                    .output("y");
                            });
                        }
                    }
                }
            }
        }
        // The two convolutions of Whisper, shortened.
        for (channels, stride) in [(80, 1), (384, 2)] {
            list.add(format!("conv_1d/{dtype} channels={channels} out=384 whisper"), move |m| {
                let x = m.input("x", &[channels, 50], &Fill::Unit);
                m.leaf(Leaf::Weight, "w", dtype, &[channels, 3, 384], &Fill::Unit)
                    .conv_1d(x, stride, 1)
                    .output("y");
            });
        }
        for (frames, kernel, padding) in [(1, 3, 1), (1, 1, 0), (2, 5, 2), (0, 1, 1), (0, 3, 2)] {
            let name = format!("conv_1d/{dtype} frames={frames} kernel={kernel} padding={padding}");
            list.add(name, move |m| {
                let x = m.input("x", &[3, frames], &Fill::Unit);
                m.leaf(Leaf::Weight, "w", dtype, &[3, kernel, 4], &Fill::Unit)
                    .conv_1d(x, 1, padding)
                    .output("y");
            });
        }
        list.add(format!("conv_1d/{dtype} batch=3"), move |m| {
            let x = m.input("x", &[6, 11, 3], &Fill::Unit);
            m.leaf(Leaf::Weight, "w", dtype, &[6, 3, 7], &Fill::Unit).conv_1d(x, 2, 1).output("y");
        });
        list.add(format!("conv_1d/{dtype} stride=5 beyond_kernel"), move |m| {
            let x = m.input("x", &[6, 23], &Fill::Unit);
            m.leaf(Leaf::Weight, "w", dtype, &[6, 3, 7], &Fill::Unit).conv_1d(x, 5, 1).output("y");
        });
        list.add(format!("conv_1d/{dtype} one_nan_frame"), move |m| {
            let mut values = vec![0.5; 4 * 12];
            values[4 * 6 + 1] = f32::NAN;
            let x = m.input("x", &[4, 12], &Fill::Cycle(values));
            m.leaf(Leaf::Weight, "w", dtype, &[4, 3, 5], &Fill::Unit).conv_1d(x, 1, 1).output("y");
        });
    }
}
