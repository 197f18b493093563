"""One trained network: where its file is, what it is fed, what its decision is, what is expected of it here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

__all__ = ["Arrays", "Network", "Outputs"]

Arrays = dict[str, npt.NDArray[Any]]
Outputs = Mapping[str, Sequence[npt.NDArray[Any]]]
"""By name, the arrays of all feeds."""


@dataclass(frozen=True, slots=True)
class Network:
    """`file` is a path in the folder of packages, `fed` says what `feeds` makes, which takes that folder. `decide`
    reads from the outputs what a user would, as something that can be compared, by `agree`, and printed.

    `state` names for each output of state the input by which the next run reads it; `constants` are inputs that are
    known when the file is compiled; `opened` lists inputs whose fixed shape the package itself opens before use.
    `sums` says whether the engine's sums are imitated, which takes an hour for the largest.
    `refused` is a part of what the compiler says as long as it refuses the file, `wrong` why its results are not right
    yet, `remark` why an error is larger than usual."""

    name: str
    package: str
    file: str
    kind: str
    fed: str
    feeds: Callable[[Path], Sequence[Arrays]]
    decide: Callable[[Outputs, Path], Any]
    agree: Callable[[Any, Any], bool] = operator.eq
    state: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    recurrent: bool = False
    sums: bool = True
    refused: str = ""
    wrong: str = ""
    remark: str = ""

    def prepared(self, folder: Path, scratch: Path) -> Path:
        """The file to compile: the package's own, or a copy whose shapes are opened and whose constants are bound."""
        if not self.opened and not self.constants:
            return folder / self.file
        model = onnx.load(folder / self.file)
        for name, value in self.constants.items():
            (item,) = (item for item in model.graph.input if item.name == name)
            model.graph.input.remove(item)
            model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
        for item in (*model.graph.input, *model.graph.output):
            shape = item.type.tensor_type.shape.dim
            for place in range(len(shape)):
                if place != 1 and (item.name in self.opened or item in model.graph.output):
                    shape[place].dim_param = f"{item.name}_{place}"
        path = scratch / Path(self.file).name
        onnx.save(model, path)
        return path

    def all_feeds(self, folder: Path) -> list[Arrays]:
        """With the constants, as onnxruntime is fed."""
        constants = {name: np.array(value, np.int64) for name, value in self.constants.items()}
        return [{**feed, **constants} for feed in self.feeds(folder)]

    def shapes(self, feed: Arrays) -> dict[str, tuple[int, ...]]:
        """What `--shape` says."""
        return {name: array.shape for name, array in feed.items() if name not in self.constants}
