"""The other side of `cargo xtask bench`: the same as examples/bench_transcribe.rs, by whisper.cpp.

Greedy at temperature 0 without fallback, with timestamps, as ours. Both sides transcribe twice.
"""

import json
import sys
import time
import wave

import numpy
from pywhispercpp.model import Model


def peak_kib():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def samples_of(path):
    with wave.open(path) as wav:
        form = (wav.getframerate(), wav.getnchannels(), wav.getsampwidth())
        if form != (16000, 1, 2):
            sys.exit(f"{path}: wanted 16 kHz, mono, 16 bits")
        data = wav.readframes(wav.getnframes())
    return numpy.frombuffer(data, numpy.int16).astype(numpy.float32) / 32768


def timed(work):
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


model_path, audio, threads = sys.argv[1:]
samples = samples_of(audio)
start = peak_kib()
options = dict(
    n_threads=int(threads),
    temperature=0.0,
    temperature_inc=0.0,
    greedy={"best_of": 1},
    print_progress=False,
    print_realtime=False,
)
model, load = timed(lambda: Model(model_path, redirect_whispercpp_logs_to=None, **options))
_, first = timed(lambda: model.transcribe(samples))
cpu_began = time.process_time()
segments, second = timed(lambda: model.transcribe(samples))
cpu = time.process_time() - cpu_began
result = {
    "load_s": load,
    "first_s": first,
    "second_s": second,
    "cpu_s": cpu,
    "start_kib": start,
    "peak_kib": peak_kib(),
    "text": " ".join(segment.text.strip() for segment in segments),
}
print(json.dumps(result))
