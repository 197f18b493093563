"""Synthetic sounds: speech-like, tones, chirps, noise; float32 samples in [-1, 1], the same at every call.

Speech-like is a train of pulses of a gliding pitch, through resonators at the formants of a few vowels, in syllables
with pauses between; hissing starts every second one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["chirp", "log_power", "mel_power", "noise", "notes", "speech"]

Samples = npt.NDArray[np.float32]

VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))
"""Formants in Hz of the vowels in father, see, boot and bed (Peterson and Barney 1952)."""

SYLLABLE_SECONDS, PAUSE_SECONDS = 0.22, 0.06


def speech(seconds: float, rate_hz: int = 16_000, seed: int = 0, pitch_hz: float = 120.0) -> Samples:
    """Syllables of a voice, the last of them followed by silence."""
    generator = np.random.default_rng(seed)
    sound = np.zeros(round(seconds * rate_hz))
    length, step = round(SYLLABLE_SECONDS * rate_hz), round((SYLLABLE_SECONDS + PAUSE_SECONDS) * rate_hz)
    for number, start in enumerate(range(0, len(sound) - step, step)):
        pitch = pitch_hz * (1 + 0.3 * generator.random()) * np.linspace(1.1, 0.9, length)
        turns = np.cumsum(pitch / rate_hz)
        pulses = np.diff(np.floor(turns), prepend=0.0)
        voiced = pulses + 0.005 * generator.standard_normal(length)
        for formant_hz in VOWELS[int(generator.integers(len(VOWELS)))]:
            voiced = _resonated(voiced, formant_hz, rate_hz)
        syllable = voiced / np.abs(voiced).max() * np.sin(np.linspace(0, np.pi, length)) ** 0.5
        if number % 2:
            hiss = length // 4
            syllable[:hiss] += 0.3 * np.diff(generator.standard_normal(hiss + 1)) * np.hanning(hiss)
        sound[start : start + length] = syllable
    return _loud(sound, 0.5)


def _loud(sound: npt.NDArray[np.float64], peak: float) -> Samples:
    return np.asarray(peak * sound / max(1e-9, float(np.abs(sound).max())), np.float32)


def _resonated(sound: npt.NDArray[np.float64], formant_hz: float, rate_hz: int) -> npt.NDArray[np.float64]:
    """The sound through a resonator 90 Hz wide: y[n] = x[n] + 2 r cos(w) y[n-1] - r^2 y[n-2]."""
    radius, angle = np.exp(-np.pi * 90 / rate_hz), 2 * np.pi * formant_hz / rate_hz
    taps = np.arange(1024)
    response = radius**taps * np.sin((taps + 1) * angle) / np.sin(angle)
    size = len(sound) + len(taps)
    return np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(response, size), size)[: len(sound)]


def noise(seconds: float, rate_hz: int = 16_000, level: float = 0.05, seed: int = 0) -> Samples:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * rate_hz))
    return np.clip(level * samples, -1, 1).astype(np.float32)


def chirp(seconds: float, rate_hz: int, first_hz: float, last_hz: float) -> Samples:
    turns = np.cumsum(np.geomspace(first_hz, last_hz, round(seconds * rate_hz)) / rate_hz)
    return (0.5 * np.sin(2 * np.pi * turns)).astype(np.float32)


def notes(pitches: Sequence[Sequence[int]], seconds: float, rate_hz: int) -> Samples:
    """Chords one after the other, by MIDI numbers, each note of six partials that fade as those of a string do."""
    times = np.arange(round(seconds * rate_hz / len(pitches))) / rate_hz
    sounds = []
    for chord in pitches:
        sound = np.zeros(len(times))
        for pitch in chord:
            base_hz = 440 * 2 ** ((pitch - 69) / 12)
            for partial in range(1, 7):
                sound += np.sin(2 * np.pi * base_hz * partial * times) * np.exp(-3 * partial * times) / partial
        sounds.append(sound * np.minimum(1, times * 200))
    return _loud(np.concatenate(sounds), 0.6)


def _frames(samples: Samples, window: int, hop: int) -> npt.NDArray[np.float64]:
    """Power spectra of windows, [frames, window // 2 + 1]."""
    padded = np.pad(samples.astype(np.float64), window // 2, mode="reflect")
    starts = range(0, len(padded) - window + 1, hop)
    taken = np.stack([padded[start : start + window] for start in starts]) * np.hanning(window)
    return np.square(np.abs(np.fft.rfft(taken)))


def mel_power(samples: Samples, bands: int, window: int, hop: int, rate_hz: int = 16_000) -> Samples:
    """Power in bands of the mel scale in dB below the loudest, at least -80: [frames, bands]."""
    power = _frames(samples, window, hop)
    edges_mel = np.linspace(0, 2595 * np.log10(1 + rate_hz / 2 / 700), bands + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    bins_hz = np.arange(power.shape[1]) * rate_hz / window
    rising = (bins_hz[:, None] - edges_hz[:-2]) / (edges_hz[1:-1] - edges_hz[:-2])
    falling = (edges_hz[2:] - bins_hz[:, None]) / (edges_hz[2:] - edges_hz[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling)) * 2 / (edges_hz[2:] - edges_hz[:-2])
    mel = power @ weights
    return np.asarray(np.maximum(10 * np.log10(np.maximum(mel, 1e-10) / mel.max()), -80), np.float32)


def log_power(samples: Samples, window: int, hop: int) -> Samples:
    """Natural logarithms of the power spectra."""
    return np.log(np.maximum(_frames(samples, window, hop), 1e-12)).astype(np.float32)
