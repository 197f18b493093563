"""What the networks are fed: each function takes the folder of packages, for vocabularies, and makes feeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.trained import pictures, sounds
from tests.trained.network import Arrays

__all__ = [
    "chinese_sentence", "echo_spectra", "faces", "file_types", "lines_of_text", "log_spectra", "mel_windows", "music",
    "page_of_text", "quality_samples", "quality_spectra", "raw_audio", "thai_letters", "thai_windows", "turned_lines",
    "turned_pages", "voice_sequence", "voice_windows",
]  # fmt: skip

Feeds = Callable[[Path], Sequence[Arrays]]

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "README.md", "setup.py", "Makefile", "pyproject.toml", "LICENSE", ".ci/run", "hw_models/chips/stcp920.yaml",
    "benchmarks/results/code_size.json",
)  # fmt: skip
"""Files of this repository, of seven types."""

BYTES, PADDING = 1024, 256
"""magika reads this many bytes from each end of the first and last 4,096, and pads by a token."""


def file_types(_folder: Path) -> Sequence[Arrays]:
    return [{"bytes": _ends((ROOT / name).read_bytes())} for name in FILES]


def _ends(content: bytes) -> npt.NDArray[np.int32]:
    first, last = content[:4096].lstrip()[:BYTES], content[-4096:].rstrip()[-BYTES:]
    padded = [*first, *[PADDING] * (BYTES - len(first)), *[PADDING] * (BYTES - len(last)), *last]
    return np.array([padded], np.int32)


def _voice(seconds: float) -> sounds.Samples:
    """Silence, speech over a little noise, noise alone."""
    part = seconds / 3
    spoken = sounds.speech(part, seed=3) + sounds.noise(part, level=0.003, seed=4)
    return np.concatenate([0 * spoken, spoken, sounds.noise(part, level=0.02, seed=5)])


def voice_windows(seconds: float) -> Feeds:
    """Windows of 512 samples with the 64 before them, one a run; the state is zero at first."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        state = np.zeros((2, 1, 128), np.float32)
        return [{"input": window[None], "state": state} for window in _windows(_voice(seconds))]

    return feeds


def _windows(samples: sounds.Samples) -> sounds.Samples:
    padded = np.pad(samples, (64, 0))
    return np.stack([padded[start : start + 576] for start in range(0, len(padded) - 576 + 1, 512)])


def voice_sequence(seconds: float) -> Feeds:
    """All windows in one run."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        state = np.zeros((1, 1, 128), np.float32)
        return [{"input": _windows(_voice(seconds)), "h": state, "c": state}]

    return feeds


def raw_audio(name: str, seconds: float, scale: float = 1.0) -> Feeds:
    def feeds(_folder: Path) -> Sequence[Arrays]:
        clips = (sounds.speech(seconds, seed=1), sounds.notes(((48,), (72,), (96,)), seconds, 16_000))
        return [{name: np.asarray(scale * clip, np.float32)[None]} for clip in clips]

    return feeds


def mel_windows(name: str) -> Feeds:
    """76 frames of 32 bands of a spectrogram, as the embedding of speech reads them: dB / 10 + 2."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        clips = [sounds.speech(0.8, seed=seed) for seed in (1, 7)]
        clips += [sounds.chirp(0.8, 16_000, first_hz, 6_000) for first_hz in (200, 300)]
        clips += [sounds.notes(((60,), (64,)), 0.8, 16_000), sounds.notes(((62,), (65,)), 0.8, 16_000)]
        mels = [sounds.mel_power(clip, 32, 512, 160)[:76] for clip in clips]
        return [{name: (mel / 10 + 2)[None, :, :, None].astype(np.float32)} for mel in mels]

    return feeds


def music(name: str, samples: int) -> Feeds:
    """Two seconds at 22,050 Hz: a broken chord, then two notes at once."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        sound = sounds.notes(((60,), (64,), (67,), (72, 76)), samples / 22_050, 22_050)
        return [{name: np.resize(sound, samples)[None, :, None]}]

    return feeds


LINES = ("HELLO WORLD", "3.14159 km/h")


def lines_of_text(name: str, height: int, width: int, texts: Sequence[str] = LINES) -> Feeds:
    def feeds(_folder: Path) -> Sequence[Arrays]:
        return [{name: pictures.normalised(pictures.text_line(text, height, width))} for text in texts]

    return feeds


def turned_lines(name: str, height: int, width: int) -> Feeds:
    """Each line upright and upside down."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        drawn = [pictures.text_line(text, height, width) for text in LINES]
        both = [turned for line in drawn for turned in (line, np.rot90(line, 2))]
        return [{name: pictures.normalised(picture)} for picture in both]

    return feeds


def page_of_text(name: str, height: int, width: int) -> Feeds:
    def feeds(_folder: Path) -> Sequence[Arrays]:
        lines = ((12, 10, 20, "Invoice 2026"), (20, height // 2, 16, "Total 42.50"))
        return [{name: pictures.normalised(pictures.page(lines, height, width))}]

    return feeds


PROSE = "the quick brown fox jumps over the lazy dog and runs away from it"


def turned_pages(name: str) -> Feeds:
    """A page of 224 by 224, turned by every quarter."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        lines = tuple((10, 8 + 26 * row, 18, PROSE[5 * row : 5 * row + 22]) for row in range(8))
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        return [{name: pictures.normalised(pictures.page(lines, 224, 224, turns), mean, std)} for turns in range(4)]

    return feeds


def faces(name: str, size: int) -> Feeds:
    """A large face, two small ones, none; in [0, 255]."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        drawn = [
            pictures.face(size, size, ((size // 2, size // 2, size // 5),)),
            pictures.face(size, size, ((size // 4, size // 3, size // 8), (3 * size // 4, size // 2, size // 8))),
            pictures.shapes(size, size),
        ]
        return [{name: np.ascontiguousarray(picture.transpose(2, 0, 1)[None])} for picture in drawn]

    return feeds


THAI = "ฉันรักภาษาไทยและชอบกินข้าวผัด"
CHINESE = "张三在北京市工作明天去上海开会"


def thai_letters(vocabulary: str) -> Feeds:
    """A sentence as numbers of letters."""

    def feeds(folder: Path) -> Sequence[Arrays]:
        numbers = json.loads((folder / vocabulary).read_text(encoding="utf-8"))
        return [{"input": np.array([[numbers.get(letter, numbers["<UNK>"]) for letter in THAI]], np.int64)}]

    return feeds


LETTERS = (
    "\n !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_abcdefghijklmno\0pqrstuvwxyz}~"
    "กขฃคฅฆงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรฤลวศษสหฬอฮฯะัาำิีึืฺุูเแโใไๅๆ็่้๊๋์ํ๐๑๒๓๔๕๖๗๘๙"
)
"""Order of the letters that the cutters of Thai text know; \0 stands for any other."""

KINDS = {"c": 1, "n": 3, "p": 5, "t": 9, "v": 10, "w": 11}
KIND_OF = dict.fromkeys("กขฃคฆงจชซญฎฏฐฑฒณดตถทธนบปพภมยรลวศษสฬอ", "c")
KIND_OF |= dict.fromkeys("ฅฉผฟฌหฮฝ", "n") | dict.fromkeys("ะาำิีืึุูั", "v") | dict.fromkeys("เแโใไ", "w")
KIND_OF |= dict.fromkeys("่้๊๋", "t") | {" ": "p"}


def thai_windows(*names: str) -> Feeds:
    """For every letter the ten after it, the ten before it, itself: as numbers, and as numbers of their kinds."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        padded = " " * 10 + THAI + " " * 10
        rows = [padded[n + 1 : n + 11] + padded[n - 10 : n][::-1] + padded[n] for n in range(10, 10 + len(THAI))]
        numbers = [[LETTERS.find(letter) if letter in LETTERS else 80 for letter in row] for row in rows]
        kinds = [[KINDS.get(KIND_OF.get(letter, "o"), 4) for letter in row] for row in rows]
        return [dict(zip(names, (np.array(table, np.float32) for table in (numbers, kinds)), strict=True))]

    return feeds


def chinese_sentence(vocabulary: str) -> Feeds:
    def feeds(folder: Path) -> Sequence[Arrays]:
        rows = (line.split("\t", 1) for line in (folder / vocabulary).read_text(encoding="utf-8").splitlines())
        numbers = {row[1]: int(row[0]) for row in rows if len(row) == 2}
        ids = np.array([[numbers.get(letter, numbers["OOV"]) for letter in CHINESE]], np.int64)
        return [{"token_ids": ids, "length": np.array([len(CHINESE)], np.int64)}]

    return feeds


def _clips(seconds: float) -> list[sounds.Samples]:
    """Clean speech-like sound, the same in noise, noise alone."""
    clean = sounds.speech(seconds, seed=2)
    return [clean, clean + sounds.noise(seconds, level=0.1, seed=6), sounds.noise(seconds, level=0.2, seed=8)]


def quality_spectra(name: str, seconds: float, bands: int, frames: int) -> Feeds:
    """Spectra of windows of 320 samples, (dB + 40) / 40."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        spectra = [sounds.mel_power(clip, bands, 320, 160)[:frames] for clip in _clips(seconds)]
        return [{name: ((spectrum + 40) / 40)[None]} for spectrum in spectra]

    return feeds


def quality_samples(name: str, samples: int) -> Feeds:
    def feeds(_folder: Path) -> Sequence[Arrays]:
        clean, _, noise = _clips(samples / 16_000)
        return [{name: clip[None, :samples]} for clip in (clean, noise)]

    return feeds


def echo_spectra(name: str, state: str) -> Feeds:
    """Spectra of the far end, the microphone and what is left of it, here one clip three times, and a state."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        spectra = [(sounds.mel_power(clip, 160, 512, 256) + 40) / 40 for clip in _clips(1.5)]
        return [{name: np.stack([spectrum] * 3)[None], state: np.zeros((4, 1, 64), np.float32)} for spectrum in spectra]

    return feeds


def log_spectra(name: str, listener: str) -> Feeds:
    """Logarithms of spectra, and a vector that says who listens."""

    def feeds(_folder: Path) -> Sequence[Arrays]:
        vector = np.linspace(-1, 1, 64, dtype=np.float32)[None]
        spectra = [sounds.log_power(clip, 512, 256) / 20 for clip in _clips(0.5)]
        return [{name: spectrum[None, None], listener: vector} for spectrum in spectra]

    return feeds
