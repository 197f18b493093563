"""Loading a model: the one function that the driver calls.

path or zoo name, shapes, batch  -->  Model(graph, constants, source, warnings, sha256)
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx

from codegen.generic import NEUTRAL
from dsa_sched.frontend.decomposition.caches import with_caches
from dsa_sched.frontend.graph.build import Built, build_graph
from dsa_sched.frontend.graph.tables import with_tables
from dsa_sched.frontend.integers.preparation import prepare
from dsa_sched.frontend.model_file import ModelFile, checked_model, read_model
from dsa_sched.frontend.network.bindings import Bindings
from dsa_sched.frontend.network.branches import with_chosen_branches
from dsa_sched.frontend.network.constant_folding import fold_constants
from dsa_sched.frontend.network.names import keep_names_apart
from dsa_sched.frontend.network.network import Found, Network, Origin, Value
from dsa_sched.frontend.network.refusals import (
    Judge,
    RefusedNode,
    Unsupported,
    model_without,
    network_without,
    refused_nodes,
)
from dsa_sched.frontend.network.shapes import fix_shapes, initializer_names, sized_values, skeleton
from dsa_sched.frontend.network.terms import Term
from dsa_sched.frontend.patterns.found import decisions
from dsa_sched.frontend.quantised.decomposed import with_pairs
from dsa_sched.frontend.quantised.rewrite import quantised
from dsa_sched.frontend.rewrites.row_lookups import with_row_lookups
from dsa_sched.frontend.rewrites.simplify import simplify
from dsa_sched.frontend.rules.operators import Known, RefusedNodes, require_whole, unknown_nodes
from dsa_sched.zoo import zoo_file, zoo_names
from hw_models.errors import ModelError
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.target import WeightPacking, WeightUse

LARGEST_LOOKED_AT = 1 << 20
"""Largest constant, in elements, of which the numbers may say something about a network: a mask, not a weight."""

NOBODY = Judge(NEUTRAL)
"""Judge where no target is asked."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that was read and checked once, to be loaded more than once; messages call it `who`."""

    who: str
    file: ModelFile

    def copy(self) -> ModelFile:
        """A copy of the file, whose model loading may change."""
        model = onnx.ModelProto()
        model.CopyFrom(self.file.model)
        return ModelFile(model, self.file.sha256, self.file.refused)


@dataclass(frozen=True, slots=True)
class Model:
    """A network ready to compile, and the file that it came from.

    `source` is the checked original with external data, static shapes and the branches that these choose, and with
    quantisation as QuantizeLinear and DequantizeLinear, never the simplified one; verification judges by it.
    `constants` are in device layout by content hash. `sha256` is that of the bytes of the file. `origins` says how
    values of the file follow from those that a rewrite put in their place, `terms` how the graph's constants follow
    from the file's, `found` which norms, activations and attentions it has, and `decisions` what was decided about its
    nodes.
    """

    graph: Graph
    constants: dict[str, npt.NDArray[np.generic]]
    source: onnx.ModelProto
    warnings: tuple[str, ...]
    sha256: str
    origins: Mapping[str, Origin] = field(default_factory=dict)
    terms: Mapping[str, Term] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    decisions: tuple[Decision, ...] = ()


def open_model(source: str | Path | onnx.ModelProto, bindings: Bindings | None = None) -> Opened:
    """Read and check a file or a network of the zoo, in which inputs among the `bindings` are constants. Raises
    ModelError, for unknown operators only where the model is loaded."""
    return Opened(*_open(source, bindings=bindings))


def load_model(
    source: str | Path | onnx.ModelProto | Opened,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
    judge: Judge | None = None,
    bindings: Bindings | None = None,
    state: Mapping[str, str] | None = None,
) -> Model:
    """Read, check, simplify and build. `batch` replaces the leading dimension of every input. A model in memory is
    changed: its nodes get names, its inputs the shapes, its quantised operators one spelling. Inputs among the
    `bindings` become constants; in an opened model they are constants already. `state` are outputs with the inputs
    whose next values they are, besides those that names tell.

    The graph is as the target of `judge` wants it; without one, as an unknown target wants it. Raises
    ModelError: file, shape, batch or operators that cannot be compiled; all operators at once, with those that the chip
    of `judge` cannot compute. Raises TargetError for a target that wants what the frontend cannot give.
    """
    judge = judge or NOBODY
    who, file = _open(source, bindings=bindings)
    if file.refused:
        refused = (*file.refused, *_rest_refused(file, shapes or {}, batch, judge))
        raise _unsupported(who, file.model, refused, judge)
    source, network = _simplified(file.model, shapes or {}, batch, judge, state or {})
    built, refused = _judged(network, file.model, judge)
    if built is None or refused:
        raise _unsupported(who, file.model, refused, judge)
    return Model(
        built.graph,
        built.constants,
        source,
        built.warnings,
        file.sha256,
        network.origins,
        built.terms,
        network.found,
        tuple(decisions(network)),
    )


def _rest_refused(
    file: ModelFile, shapes: Mapping[str, tuple[int, ...]], batch: int | None, judge: Judge
) -> tuple[RefusedNode, ...]:
    """Refusals other than those of nodes of unknown types. Empty where nothing is left that can be judged."""
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    names = frozenset(node.name for node in file.refused)
    try:
        values = sized_values(model, shapes, batch)
        rest = model_without(model, names, values)
        if rest is None:
            return ()
        checked = checked_model(rest, "the rest of the model")
        return _judged(_simplified(checked.model, {}, None, judge)[1], file.model, judge)[1]
    except ModelError:
        return ()  # another problem, which shows when the first ones are solved


def _judged(network: Network, model: onnx.ModelProto, judge: Judge) -> tuple[Built | None, tuple[RefusedNode, ...]]:
    """The graph of what can be read, and everything that frontend and chip refuse, by the nodes of `model`."""
    found: list[tuple[str, str, str]] = []
    values: Mapping[str, Value] = network.values
    built = None
    try:
        built = build_graph(network, judge.wants)
    except RefusedNodes as error:
        of = {node.name: node.op_type for node in network.nodes}
        found += ((name, of[name], reason) for name, reason in error.reasons.items() if reason)
        values = error.values
        rest = network_without(network, frozenset(error.reasons))
        with suppress(ModelError):  # of the rest alone: earlier refusals are to be reported
            built = build_graph(rest, judge.wants) if rest.nodes else None
    if built is not None and judge.table_for is not None:
        built = with_tables(built, judge.table_for)
    if built is not None and judge.refuses is not None:
        refusals = judge.refuses(built.graph, built.constants)
        found += ((op.name, op.source or op.kind, why) for op, why in refusals)
    return built, refused_nodes(model, values, found)


def _unsupported(who: str, model: onnx.ModelProto, refused: tuple[RefusedNode, ...], judge: Judge) -> Unsupported:
    """Refusals in the file's order. Other devices are mentioned if a chip was asked and all operators are ONNX's."""
    places = {proto.name: number for number, proto in enumerate(model.graph.node)}
    ordered = tuple(sorted(refused, key=lambda node: places.get(node.name, len(places))))
    return Unsupported(who, ordered, place=judge.refuses is not None and all(node.standard for node in ordered))


def load_network(
    source: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None, batch: int | None = None
) -> Network:
    """The simplified network alone, in ONNX axes, as the fusion oracle takes it. Raises ModelError."""
    return _simplified(_known(source).model, shapes or {}, batch, NOBODY)[1]


def load_source(
    source: str | Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
    bindings: Bindings | None = None,
) -> onnx.ModelProto:
    """The checked model with static input shapes, of any standard operators: those that onnxruntime may know and the
    compiler does not. Raises ModelError."""
    return read_source(source, shapes, batch, bindings).model


def read_source(
    source: str | Path | onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
    bindings: Bindings | None = None,
    known: Known = "standard",
) -> ModelFile:
    """Like `open_model`, with the hash of the file, for as many operators as are to be `known`. Raises ModelError."""
    file = _known(source, known=known, bindings=bindings)
    _with_shapes(file.model, shapes or {}, batch, known)
    return file


def file_network(source: Opened, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> Network:
    """The network of a file with its own operators, constants folded, before it is rewritten, without the numbers of
    large constants. Raises ModelError."""
    model = source.copy().model
    values = _with_shapes(model, shapes, batch)
    constants = initializer_names(model)
    network = fold_constants(skeleton(model, LARGEST_LOOKED_AT), values)
    return replace(network, inputs=tuple(name for name in network.inputs if name not in constants))


def packed_weights(
    source: Opened, shapes: Mapping[str, tuple[int, ...]], batch: int | None, judge: Judge
) -> frozenset[tuple[int, int]]:
    """Depth and columns of the weights that stay int8 next to values in floating point. Raises ModelError."""
    model, found = source.copy().model, set[tuple[int, int]]()
    packing = judge.packing
    if packing is None or not any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        return frozenset()

    def recorded(use: WeightUse) -> WeightPacking:
        result = packing(use)
        if result.packed:
            found.add((use.depth, use.columns))
        return result

    _quantised(model, shapes, batch, replace(judge, packing=recorded))
    return frozenset(found)


def sized_source(source: Opened, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> onnx.ModelProto:
    """A copy of the file's model with static input shapes. Raises ModelError."""
    model = source.copy().model
    _with_shapes(model, shapes, batch)
    return model


def _simplified(
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
    judge: Judge,
    state: Mapping[str, str] = MappingProxyType({}),
) -> tuple[onnx.ModelProto, Network]:
    """The network, and the model whose nodes and values it has: `model`, or a copy."""
    wants = judge.wants
    model, network = _quantised(model, shapes, batch, judge)
    network = with_caches(network, state, in_place=wants.in_place)
    network = prepare(with_row_lookups(network), gathers=wants.gathers) if wants.words else network
    require_whole(wants.whole)
    return model, simplify(network, wants)


def _quantised(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None, judge: Judge
) -> tuple[onnx.ModelProto, Network]:
    """The same, with quantised operators as the target wants them and nothing else rewritten."""
    wants, values = judge.wants, _with_shapes(model, shapes, batch)
    if wants.int8:
        model = with_pairs(model, values)
    network = replace(fold_constants(model, values), rounding=wants.rounding)
    return model, quantised(network, wants, judge.packing)


def _with_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None, known: Known = "compiled"
) -> dict[str, Value]:
    """Shape of every value. Writes into `model` the shapes of inputs and outputs and, in the place of each If whose
    condition is known, the branch that it chooses. Raises Unsupported for nodes of unknown types in these."""
    values = fix_shapes(model, shapes, batch)
    chosen = with_chosen_branches(model)
    if chosen is model:
        return values
    model.CopyFrom(chosen)
    keep_names_apart(model, model.graph.name or "model")
    if refused := unknown_nodes(model, known):
        raise Unsupported(model.graph.name or "model", refused)
    return fix_shapes(model, {}, None)


def _known(
    source: str | Path | onnx.ModelProto, *, known: Known = "compiled", bindings: Bindings | None = None
) -> ModelFile:
    """Raises ModelError for nodes of unknown types too."""
    who, file = _open(source, known=known, bindings=bindings)
    if file.refused:
        raise Unsupported(who, file.refused)
    return file


def _open(
    source: str | Path | onnx.ModelProto | Opened, *, known: Known = "compiled", bindings: Bindings | None = None
) -> tuple[str, ModelFile]:
    """Name of the model in messages, and the model. A path wins over a zoo name when the file exists."""
    if isinstance(source, Opened):
        return source.who, source.copy()
    if isinstance(source, onnx.ModelProto):
        who = source.graph.name or "model"
        return who, checked_model(source, who, known=known, bindings=bindings)
    path = Path(source)
    if path.is_file():
        return str(path), read_model(path, known=known, bindings=bindings)
    if str(source) in zoo_names():
        model, sha256 = zoo_file(str(source))
        return str(source), checked_model(model, str(source), sha256=sha256, bindings=bindings)
    close = difflib.get_close_matches(str(source), zoo_names(), n=1)
    raise ModelError(
        f"model {source}",
        needs=f"a file, or one of {', '.join(zoo_names())}",
        has="neither",
        change=f"did you mean {close[0]}?" if close else "",
    )
