//! Ctrl-C: the first one raises a flag that all work looks at, and the program
//! ends with code 130 even if some work does not look in time. Computations
//! are stopped by the abort signal, which they look at inside long kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tensoryard::runtime::AbortSignal;

/// Exit code after Ctrl-C: 128 and the number of the signal.
pub const EXIT_CODE: u8 = 130;

/// How long work may take to stop and clean up.
const GRACE: Duration = Duration::from_millis(250);

/// Tells whether the user wants the program to stop.
#[derive(Debug, Clone)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    signal: AbortSignal,
}

/// While this lives, the work is left to stop by itself, so that it can clean
/// up; only a second Ctrl-C ends the program at once.
#[derive(Debug)]
pub struct Hold(Arc<AtomicBool>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Interrupt {
    /// Takes over the handling of Ctrl-C, once in the life of the program.
    pub fn install() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        let held = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&held);
        let signal = AbortSignal::new();
        let given = signal.clone();
        ctrlc::set_handler(move || {
            given.abort();
            if raised.swap(true, Ordering::Relaxed) {
                end_now();
            }
            let waits = Arc::clone(&waits);
            thread::spawn(move || {
                thread::sleep(GRACE);
                while waits.load(Ordering::Relaxed) {
                    thread::sleep(GRACE);
                }
                end_now();
            });
        })
        .context("cannot handle Ctrl-C")?;
        Ok(Self { flag, held, signal })
    }

    /// Keeps the program alive after Ctrl-C, for work that polls often and
    /// would leave something behind.
    pub fn hold(&self) -> Hold {
        self.held.store(true, Ordering::Relaxed);
        Hold(Arc::clone(&self.held))
    }

    /// The signal, for computations.
    pub fn signal(&self) -> AbortSignal {
        self.signal.clone()
    }

    /// Whether the user wants to stop.
    pub fn is_raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag, for work that polls it.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}

#[expect(clippy::exit, reason = "the main thread is busy and may not look at the flag in time")]
fn end_now() -> ! {
    std::process::exit(EXIT_CODE.into())
}
