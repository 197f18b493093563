"""What a user of each kind of network reads from its outputs: classes, text, boxes, notes, an order of clips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tests.trained.network import Outputs

__all__ = ["above", "best_class", "boxes", "loudest", "nearest", "order", "peaks", "sounding", "text", "within_a_pixel"]

Decide = Callable[[Outputs, Path], Any]


def best_class(name: str) -> Decide:
    """The numbers of the largest along the last axis."""
    return lambda outputs, _folder: tuple(tuple(np.argmax(array, -1).ravel().tolist()) for array in outputs[name])


def above(name: str, threshold: float) -> Decide:
    return lambda outputs, _folder: tuple(
        flag for array in outputs[name] for flag in (array.ravel() > threshold).tolist()
    )


def text(name: str, file: str) -> Decide:
    """Text by the best class of each step, repeated ones once, blanks (class 0) left out; letters stand in the file."""

    def decide(outputs: Outputs, folder: Path) -> tuple[str, ...]:
        properties = {item.key: item.value for item in onnx.load(folder / file).metadata_props}
        letters = ["", *properties["character"].split("\n"), " "]
        texts = []
        for array in outputs[name]:
            best = np.argmax(array[0], -1)
            kept = best[np.insert(best[1:] != best[:-1], 0, True)]
            texts.append("".join(letters[number] for number in kept))
        return tuple(texts)

    return decide


def loudest(name: str, parts: int) -> Decide:
    """The band that is the loudest on average in each of the parts of a spectrogram, [..., frames, bands]."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[int, ...]:
        frames = [array.reshape(-1, array.shape[-1]) for array in outputs[name]]
        pieces = [piece for clip in frames for piece in np.array_split(clip, parts)]
        return tuple(int(np.argmax(piece.mean(axis=0))) for piece in pieces)

    return decide


def boxes(name: str, threshold: float) -> Decide:
    """Regions of a map above the threshold: top, left, bottom, right of each."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[tuple[int, ...], ...]:
        return tuple(box for array in outputs[name] for box in _regions(array[0, 0] > threshold))

    return decide


def within_a_pixel(ours: tuple[tuple[int, ...], ...], theirs: tuple[tuple[int, ...], ...]) -> bool:
    """Boxes are as many, and no edge is more than a pixel off: one at the threshold may fall to either side."""
    return len(ours) == len(theirs) and bool(np.all(np.abs(np.subtract(ours, theirs)) <= 1))


def _regions(mask: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Boxes around regions of true elements that touch at edges or corners."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found: list[tuple[int, ...]] = []
    while left:
        region: set[tuple[int, int]] = set()
        edge = [min(left)]
        while edge:
            y, x = edge.pop()
            if (y, x) in left:
                left.remove((y, x))
                region.add((y, x))
                edge += [(y + down, x + right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
        rows, columns = zip(*region, strict=True)
        found.append((min(rows), min(columns), max(rows), max(columns)))
    return found


def peaks(name: str, threshold: float) -> Decide:
    """Places of a map where it is the largest of its neighbourhood and above the threshold."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[tuple[int, ...], ...]:
        found = []
        for number, array in enumerate(outputs[name]):
            padded = np.pad(array[0, 0], 1, constant_values=-np.inf)
            height, width = array.shape[-2:]
            around = [padded[y : y + height, x : x + width] for y in range(3) for x in range(3) if (y, x) != (1, 1)]
            best = (array[0, 0] >= np.max(around, axis=0)) & (array[0, 0] > threshold)
            found += [(number, int(y), int(x)) for y, x in np.argwhere(best)]
        return tuple(found)

    return decide


def sounding(name: str, threshold: float, lowest: int, parts: int) -> Decide:
    """MIDI numbers that are above the threshold for most of each of the parts that a clip is divided into."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[tuple[int, ...], ...]:
        pieces = [piece for array in outputs[name] for piece in np.array_split(array[0], parts)]
        return tuple(
            tuple((np.flatnonzero(np.median(piece[: len(piece) // 2], axis=0) > threshold) + lowest).tolist())
            for piece in pieces
        )

    return decide


def nearest(name: str) -> Decide:
    """For each feed the number of the other one whose vector has the smallest angle with its own."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[int, ...]:
        vectors = np.stack([array.ravel().astype(np.float64) for array in outputs[name]])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        alike = vectors @ vectors.T - 2 * np.eye(len(vectors))
        return tuple(np.argmax(alike, -1).tolist())

    return decide


def order(name: str) -> Decide:
    """The feeds from the worst to the best score, by each score."""

    def decide(outputs: Outputs, _folder: Path) -> tuple[tuple[int, ...], ...]:
        scores = np.stack([array.ravel() for array in outputs[name]])
        return tuple(tuple(column) for column in np.argsort(scores, axis=0).T.tolist())

    return decide
