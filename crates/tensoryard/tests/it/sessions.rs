//! Sessions of one model: independent, repeatable, and stopped at once.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tensoryard::SpeechError;
use tensoryard::models::Error;
use tensoryard::speech::{Observer, Segment, Transcript};

use crate::support::{assets, samples, speech_model};

const JFK: &str = "And so my fellow Americans ask not what your country can do for you \
                   ask what you can do for your country";

/// Counts the model's steps, and does something at one of them.
struct Steps<F> {
    count: usize,
    at: usize,
    act: F,
    segments: usize,
}

impl<F: FnMut() -> bool> Observer for Steps<F> {
    fn should_stop(&mut self) -> bool {
        self.count += 1;
        self.count >= self.at && (self.act)()
    }

    fn segment(&mut self, _segment: &Segment) {
        self.segments += 1;
    }
}

fn partial(result: Result<Transcript, SpeechError>) -> Transcript {
    match result {
        Err(SpeechError::Model(Error::Cancelled { partial })) => *partial,
        other => panic!("{other:?}"),
    }
}

#[test]
fn speech_and_silence_in_one_session_do_not_touch_each_other() {
    let test = "speech_and_silence_in_one_session_do_not_touch_each_other";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let speech = samples(&assets, "en_jfk.wav");
    let first = transcriber.transcribe(&speech).unwrap();
    let silence = transcriber.transcribe(&samples(&assets, "hard/silence_10s.wav")).unwrap();
    let second = transcriber.transcribe(&speech).unwrap();
    assert_eq!(first.text, JFK);
    assert_eq!(silence.text, "");
    assert_eq!(first, second);
}

#[test]
fn sessions_in_parallel_give_equal_results() {
    let test = "sessions_in_parallel_give_equal_results";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let clips = ["en_jfk.wav", "en_pico_quilter.wav"].map(|file| samples(&assets, file));
    let alone = clips.each_ref().map(|clip| model.transcriber().unwrap().transcribe(clip).unwrap());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (model, clip) = (&model, &clips[worker % 2]);
                scope.spawn(move || model.transcriber().unwrap().transcribe(clip).unwrap())
            })
            .collect();
        for (worker, handle) in workers.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap(), alone[worker % 2], "worker {worker}");
        }
    });
}

#[test]
fn the_abort_signal_of_another_thread_ends_the_work_and_the_session_lives_on() {
    let test = "the_abort_signal_of_another_thread_ends_the_work_and_the_session_lives_on";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let signal = transcriber.abort_signal();
    let long = samples(&assets, "en_longform_mix.flac");

    // The other thread is told when the third decoder step begins.
    let (tell, told) = mpsc::channel();
    let aborting = signal.clone();
    let aborter = thread::spawn(move || {
        told.recv().unwrap();
        aborting.abort();
    });
    let mut steps = Steps {
        count: 0,
        at: 4,
        segments: 0,
        act: || {
            // Waits for the signal, so that the number of later steps is known.
            let _ = tell.send(());
            while !signal.is_aborted() {
                thread::sleep(Duration::from_millis(1));
            }
            false
        },
    };
    let stopped = partial(transcriber.transcribe_observed(&long, &mut steps));
    aborter.join().unwrap();
    assert_eq!(steps.count, 4, "no step begins after the signal");
    assert_eq!((stopped.segments.len(), stopped.processed_seconds), (0, 0.0));
    assert!(stopped.duration_seconds > 91.0);

    // A signal that still stands stops the next work, too.
    let speech = samples(&assets, "en_jfk.wav");
    assert!(transcriber.transcribe(&speech).unwrap_err().is_stopped());
    signal.reset();
    assert_eq!(transcriber.transcribe(&speech).unwrap().text, JFK);
}

#[test]
fn a_signal_inside_the_encoder_stops_it() {
    let test = "a_signal_inside_the_encoder_stops_it";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let signal = transcriber.abort_signal();
    let speech = samples(&assets, "en_jfk.wav");
    signal.abort();
    let mut steps = Steps { count: 0, at: usize::MAX, segments: 0, act: || false };
    let stopped = partial(transcriber.transcribe_observed(&speech, &mut steps));
    assert_eq!((steps.count, stopped.segments.len()), (1, 0), "only the encoder was tried");
}

#[test]
fn an_observer_that_stops_gets_the_windows_that_were_done() {
    let test = "an_observer_that_stops_gets_the_windows_that_were_done";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let long = samples(&assets, "en_longform_mix.flac");
    // A first window of 30 s has more than 20 and less than 225 steps.
    let mut steps = Steps { count: 0, at: 230, segments: 0, act: || true };
    let stopped = partial(transcriber.transcribe_observed(&long, &mut steps));
    assert_eq!(steps.count, 230, "no step begins after the stop");
    assert_eq!(stopped.segments.len(), steps.segments);
    assert!(!stopped.segments.is_empty() && stopped.text.contains("Catherine"), "{stopped:?}");
    let covered = stopped.processed_seconds;
    assert!((10.0..stopped.duration_seconds).contains(&covered), "{covered}");
    assert!(stopped.segments.iter().all(|segment| segment.end <= covered));
}
