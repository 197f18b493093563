"""The inputs that a network is calibrated on, read or drawn one set at a time.

FOLDER of .npz files | FILE.npz | seeded   -->   CalibrationInputs: {input name: array}, as often as it is iterated
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from dsa_sched.quantisation.sessions import InputSet
from dsa_sched.verification.inputs import given_inputs, seeded_or_given
from hw_models.errors import ModelError

SEEDED = "seeded"
"""The word for drawn inputs."""


@dataclass(frozen=True, slots=True)
class DrawnInputs:
    """How many inputs are drawn, from which seed."""

    inputs: int
    seed: int
    feeds: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class CalibrationInputs:
    """Input sets for a model with static shapes. Files are read again at each iteration, so that one set at a time is
    in memory; drawn sets are kept. Iterating raises ModelError for arrays that are not those of the model's inputs."""

    model: onnx.ModelProto
    files: tuple[Path, ...] = ()
    drawn: tuple[InputSet, ...] = ()

    def __len__(self) -> int:
        return len(self.files) + len(self.drawn)

    def __iter__(self) -> Iterator[InputSet]:
        for path in self.files:
            yield from given_inputs(self.model, [path]).feeds
        yield from self.drawn


def calibration_inputs(model: onnx.ModelProto, source: str | Path | None, count: int, seed: int) -> CalibrationInputs:
    """The inputs that --calibrate names; `count` of them are drawn with `seed` for the word seeded. Raises ModelError
    where there are none, and for drawn inputs that onnxruntime refuses."""
    where = "a folder of .npz files, an .npz file, or the word seeded"
    if source is None:
        raise ModelError("--calibrate", needs=where, has="none")
    path = Path(source)
    if path.is_dir():
        files = tuple(sorted(path.glob("*.npz")))
        if not files:
            needs = "at least one .npz file, with one array per input of the network"
            raise ModelError(f"--calibrate {source}", needs=needs, has="none", change="write them with numpy.savez")
        return CalibrationInputs(model, files)
    if path.is_file():
        return CalibrationInputs(model, (path,))
    if str(source) == SEEDED:
        return CalibrationInputs(model, drawn=_drawn(model, DrawnInputs(count, seed)))
    raise ModelError(f"--calibrate {source}", needs=where, has="no such file or folder")


def _drawn(model: onnx.ModelProto, options: DrawnInputs) -> tuple[InputSet, ...]:
    """Inputs as `verify` draws them; its advice names the option of this command."""
    try:
        return seeded_or_given(model, options).feeds
    except ModelError as error:
        change = "give some with --calibrate"
        raise ModelError(error.who, needs=error.needs, has=error.has, change=change) from error
