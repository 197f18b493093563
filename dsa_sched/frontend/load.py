"""Loading a model: the one function that the driver calls.

path or zoo name, shapes, batch  -->  Model(graph, constants, source, warnings, sha256)
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.build import build_graph
from dsa_sched.frontend.constant_folding import fold_constants
from dsa_sched.frontend.model_file import ModelFile, checked_model, read_model
from dsa_sched.frontend.network import Network, Origin
from dsa_sched.frontend.shapes import fix_shapes
from dsa_sched.frontend.simplify import simplify
from dsa_sched.frontend.terms import Term
from dsa_sched.zoo import zoo_model, zoo_names
from hw_models.errors import ModelError
from partitioner.graph import Graph

__all__ = ["Model", "load_model", "load_network", "load_source"]


@dataclass(frozen=True, slots=True)
class Model:
    """A compiled-ready network and the file that it came from.

    `source` is the checked original with external data and static shapes, never the simplified one: what verification
    judges by. `constants` are in device layout by content hash. `sha256` is that of the bytes of the file. `origins`
    says of values that a rewrite put in the place of the file's how the file's follow from them, `terms` of the
    graph's constants how they follow from the file's.
    """

    graph: Graph
    constants: dict[str, npt.NDArray[np.generic]]
    source: onnx.ModelProto
    warnings: tuple[str, ...]
    sha256: str
    origins: Mapping[str, Origin] = field(default_factory=dict)
    terms: Mapping[str, Term] = field(default_factory=dict)


def load_model(
    source: str | Path | onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None, batch: int | None = None
) -> Model:
    """Read, check, simplify and build. `batch` replaces the leading dimension of every input. A model in memory is
    taken over: its nodes get names, its inputs the shapes.

    Raises ModelError: file, shape, batch or operators that cannot be compiled; all operators at once.
    """
    file, network = _simplified(source, shapes or {}, batch)
    built = build_graph(network)
    return Model(built.graph, built.constants, file.model, built.warnings, file.sha256, network.origins, built.terms)


def load_network(
    source: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None, batch: int | None = None
) -> Network:
    """The simplified network alone, in ONNX axes, as the fusion oracle takes it. Raises ModelError."""
    return _simplified(source, shapes or {}, batch)[1]


def load_source(
    source: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None, batch: int | None = None
) -> onnx.ModelProto:
    """The checked model with static input shapes, of any standard operators: those that onnxruntime may know and the
    compiler does not. Raises ModelError."""
    model = _open(source, any_standard=True).model
    fix_shapes(model, shapes or {}, batch)
    return model


def _simplified(
    source: str | Path | onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None
) -> tuple[ModelFile, Network]:
    file = _open(source)
    values = fix_shapes(file.model, shapes, batch)
    return file, simplify(fold_constants(file.model, values))


def _open(source: str | Path | onnx.ModelProto, *, any_standard: bool = False) -> ModelFile:
    """A path wins over a zoo name when the file exists."""
    if isinstance(source, onnx.ModelProto):
        return checked_model(source, source.graph.name or "model", any_standard=any_standard)
    path = Path(source)
    if path.is_file():
        return read_model(path, any_standard=any_standard)
    if str(source) in zoo_names():
        return checked_model(zoo_model(str(source)), str(source))
    close = difflib.get_close_matches(str(source), zoo_names(), n=1)
    raise ModelError(
        f"model {source}",
        needs=f"a file, or one of {', '.join(zoo_names())}",
        has="neither",
        change=f"did you mean {close[0]}?" if close else "",
    )
