"""Evidence for a verdict: the values of a run that can be compared, what they are compared with, and the comparisons.

manifest + memory after a run + reference values  -->  errors, changed constants, levels bit for bit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.tensors import TensorEntry, from_device, to_device
from dsa_sched.frontend import Model
from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.masked_values import held_in_range, leaves_range, masked_values
from dsa_sched.verification.moved_values import moved_value, only_moves
from dsa_sched.verification.tolerances import (
    Share,
    first_difference,
    independent_rows,
    judge_layer,
    relative_error,
)
from dsa_sched.verification.verdict import LevelResult, ShippedResult, Steps
from hw_models.errors import ModelError
from hw_models.routes import main_memory
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.steps import RunStep

Array = npt.NDArray[np.generic]
Feed = Mapping[str, Array]
"""Value name -> array in ONNX layout: the inputs of a network, or all values of the reference."""

Dump = Mapping[str, bytes]
"""Tensor name -> its bytes in memory after a run."""

Loads = Mapping[int, bytes]
"""Address -> bytes to place before a run."""


def computing_layers(compilation: Compilation) -> tuple[Layer, ...]:
    """Layers that compute, in order of execution; views own no kernel."""
    plan, graph = compilation.plan, compilation.model.graph
    found = (layer for step in plan.steps for layer in plan.group_by_name[step.group].layers)
    return tuple(layer for layer in dict.fromkeys(found) if not layer.is_view(graph))


def stored_values(compilation: Compilation) -> tuple[str, ...]:
    """Values that the run leaves in the main memory: the inputs, outputs of layers, views of them. Sorted as run."""
    return values_in_main(compilation.plan, compilation.model.graph, main_memory(compilation.chip))


def values_in_main(plan: Plan, graph: Graph, main: str) -> tuple[str, ...]:
    """Values that a plan leaves whole in the memory `main`, in order of execution, the inputs first."""
    scopes: dict[str, set[str]] = {name: {main} for name in graph.inputs}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        if isinstance(step, RunStep):
            for name, scope in (*step.exports, (group.output, step.scope)):
                scopes.setdefault(name, set()).add(scope)
        for layer in group.layers:
            op = layer.anchor(graph)
            if op.is_view and op.inputs[0] in scopes:
                scopes[layer.output] = scopes[op.inputs[0]]
    return tuple(name for name, kept in scopes.items() if kept == {main})


def file_name(model: Model, name: str) -> str:
    """The file's name of a value; it differs where a rewrite put the value in place of the file's."""
    return model.origins[name].name if name in model.origins else name


def of_file(model: Model, name: str, theirs: Array) -> Array:
    """The part of the file's array `theirs` that a value still has after a rewrite."""
    origin = model.origins.get(name)
    return origin.of_file(theirs) if origin else theirs


def comparable(model: Model, name: str, exact: Feed) -> bool:
    """Does the reference have this value, and is the device's array a permutation of it?"""
    tensor, theirs = model.graph.by_name[name], file_name(model, name)
    permutes = sorted(tensor.axes) == list(range(len(tensor.shape)))
    return permutes and theirs in exact and of_file(model, name, exact[theirs]).shape == tensor.source_shape


def compared_name(model: Model, name: str, exact: Feed) -> str:
    """The value by which a layer's output `name` is compared: itself, or the first view of it that the reference has
    (a change of rank makes one). `name` where there is none.
    """
    graph = model.graph
    if comparable(model, name, exact):
        return name
    same = {name}
    for op in graph.ops:
        if op.is_view and op.inputs[0] in same:
            if comparable(model, op.outputs[0], exact):
                return op.outputs[0]
            same.update(op.outputs)
    return name


def file_array(compilation: Compilation, name: str, dump: Dump) -> Array:
    """The file's value as the run's value of this name has it."""
    ours, origin = from_device(compilation.artifact.tensor(name), dump[name]), compilation.model.origins.get(name)
    return origin.from_ours(ours) if origin else ours


def _exact(model: Model, name: str, exact: Feed) -> Array:
    """The reference's array for a comparable value."""
    origin = model.origins.get(name)
    return origin.to_ours(exact[origin.name]) if origin else exact[name]


def probe_loads(isolated: Compilation, feed: Feed, stored: Dump, exact: Feed) -> Loads:
    """Everything to place before an isolated run: the inputs, and the copies that layers read, with the reference's
    values.

    A view holds the bytes of its source, and a value that only moves elements of others (`moved_values.py`) follows
    from theirs. What the reference does not know otherwise (a value that only our rewriting made) is taken from the run
    of the whole network, and so is what the stored type cannot hold: a guard of a division that is 1e-12 in the file is
    another small number there.
    """
    graph, artifact, model = isolated.model.graph, isolated.artifact, isolated.model
    placed = {name: to_device(artifact.tensor(name), feed[name]) for name in graph.fed}
    for op in graph.ops:
        for name in op.outputs:
            if comparable(model, name, exact):
                probe = artifact.tensor(f"{name}::probe")
                placed[name] = to_device(probe, _holdable(probe, _exact(model, name, exact), stored.get(name)))
            elif op.is_view and op.inputs[0] in placed:
                placed[name] = placed[op.inputs[0]]
            elif only_moves(op) and all(read in placed for read in op.inputs):
                placed[name] = moved_value(graph, op, placed)
            elif name in stored:
                placed[name] = stored[name]
    place = {name: name if name in graph.fed else f"{name}::probe" for name in placed}
    return {artifact.tensor(place[name]).address: data for name, data in placed.items()}


def _holdable(entry: TensorEntry, reference: Array, stored: bytes | None) -> Array:
    """The reference's value, except elements that the type makes zero or infinite where the run stored others."""
    if stored is None or reference.dtype.kind != "f" or np.dtype(entry.device_dtype).kind != "f":
        return reference
    with np.errstate(over="ignore"):
        narrow = reference.astype(entry.device_dtype)
    lost = ((narrow == 0) & (reference != 0)) | (np.isinf(narrow) & np.isfinite(reference))
    if not lost.any():
        return reference
    ours = from_device(entry, stored)
    return np.where(lost & np.isfinite(ours), ours, reference)


def worst_error(whole: Compilation, name: str, dumps: tuple[Dump, ...], exact: tuple[Feed, ...]) -> float | None:
    """The largest relative error of a value over all inputs; None where the reference has no such value. Numbers of a
    mask beyond the range of the stored type (-3.4e38 stored as -65504) are compared as the end of the range.
    """
    if not comparable(whole.model, name, exact[0]):
        return None
    theirs, dtype = file_name(whole.model, name), whole.model.graph.by_name[name].dtype
    masked = name in masked_values(whole.model.graph, whole.model.constants)
    found = []
    for dump, values in zip(dumps, exact, strict=True):
        ours, reference = file_array(whole, name, dump), of_file(whole.model, name, values[theirs])
        if masked or leaves_range(reference, dtype):
            ours, reference = held_in_range(ours, dtype), held_in_range(reference, dtype)
        found.append(relative_error(ours, reference))
    return max(found)


def isolated_shares(
    judged: Compilation,
    name: str,
    dumps: tuple[Dump, ...],
    exact: tuple[Feed, ...],
    rounded: tuple[Array | None, ...],
    layer: Layer,
) -> tuple[Share, Share] | None:
    """Shares of a layer's value by itself and of its worst channel, each for the input for which it comes nearest to
    its bound. `rounded` is what rounding alone makes of the value for each input. None where the reference has no such
    value.
    """
    if not comparable(judged.model, name, exact[0]):
        return None
    theirs, tensor = file_name(judged.model, name), judged.model.graph.by_name[name]
    masked = name in masked_values(judged.model.graph, judged.model.constants)
    channel = tensor.axes[-1] if tensor.axes else 0
    found = []
    for dump, values, floor in zip(dumps, exact, rounded, strict=True):
        ours, reference = file_array(judged, name, dump), of_file(judged.model, name, values[theirs])
        floor = None if floor is None else of_file(judged.model, name, floor)
        if masked or leaves_range(reference, tensor.dtype):
            ours, reference = (held_in_range(array, tensor.dtype) for array in (ours, reference))
            floor = None if floor is None else held_in_range(floor, tensor.dtype)
        draws = _independent_rows(judged.model, layer, values, tensor.dtype)
        found.append(judge_layer(ours, reference, floor, channel, draws, _sums_by_channel(judged.model.graph, layer)))
    wholes, channels = zip(*found, strict=True)
    return max(wholes, key=lambda share: share.share), max(channels, key=lambda share: share.share)


def isolated_steps(
    judged: Compilation,
    name: str,
    dumps: tuple[Dump, ...],
    exact: tuple[Feed, ...],
    rounded: tuple[Array | None, ...],
    linked: bool,
) -> Steps | None:
    """Integers of a layer by itself against the reference's; None for a value of other types, and where the reference
    has no such value. `rounded` is what rounding alone makes of the value for each input; a `linked` layer reads what
    layers before it made."""
    if judged.model.graph.by_name[name].dtype != "int8" or not comparable(judged.model, name, exact[0]):
        return None
    theirs, apart, by_rounding = file_name(judged.model, name), list[Array](), [0]
    for dump, values, floor in zip(dumps, exact, rounded, strict=True):
        reference = of_file(judged.model, name, values[theirs]).astype(np.int64)
        apart.append(np.abs(file_array(judged, name, dump).astype(np.int64) - reference))
        if floor is not None:
            by_rounding.append(int(np.abs(of_file(judged.model, name, floor).astype(np.int64) - reference).max()))
    steps = np.concatenate([each.reshape(-1) for each in apart])
    return Steps(steps.size, float(np.mean(steps > 0)), int(steps.max()), max(by_rounding), linked)


def _sums_by_channel(graph: Graph, layer: Layer) -> bool:
    """Whether each channel of a layer is a sum of products with weights of that channel."""
    product = layer.anchor(graph)
    return product.kind in ("conv", "matmul") and graph.by_name[product.inputs[1]].constant != ""


def _independent_rows(model: Model, layer: Layer, values: Feed, dtype: str) -> int | None:
    """Number of rows of a layer's product with constants that are rounded independently; None where it multiplies
    otherwise, or the reference has no such value. Words of a text become alike in deep layers, and then so do their
    errors.
    """
    product = layer.anchor(model.graph)
    if product.kind != "matmul" or np.dtype(dtype).kind != "f":
        return None
    read, weight = (model.graph.by_name[name] for name in product.inputs[:2])
    if read.constant or not weight.constant or not comparable(model, read.name, values):
        return None
    array = _exact(model, read.name, values)
    rows = np.transpose(array, read.axes) if read.axes else array
    return independent_rows(rows.reshape(-1, rows.shape[-1]), float(np.finfo(np.dtype(dtype)).eps))


def logits_names(model: Model, exact: Feed) -> tuple[str, ...]:
    """For each output the value before a final softmax, else the output itself; those that the reference has too.

    Outputs that are constants are judged with all constants, integers and truth values by the numbers that decide
    them. Raises ModelError where there are no others."""
    graph = model.graph
    chosen_by = {op.inputs[0]: str(value) for op in graph.concluded for name, value in op.attributes if name == "of"}
    ends = dict.fromkeys(name if name in graph.results else chosen_by.get(name, name) for name in graph.outputs)
    computed = [output for output in ends if not graph.by_name[output].constant]
    if not computed and not graph.answers:
        raise ModelError(graph.name, needs="an output that depends on an input", has="outputs that are constants")
    before = {output: _before_softmax(graph, output) for output in computed}
    names = (name if comparable(model, name, exact) else output for output, name in before.items())
    return tuple(dict.fromkeys(name for name in names if comparable(model, name, exact)))


def computed_values(model: Model) -> frozenset[str]:
    """The file's values that the compiled network computes, by their names in the file."""
    return frozenset(file_name(model, tensor.name) for tensor in model.graph.tensors)


def misshapen_outputs(model: Model, exact: Feed) -> Iterator[str]:
    """A sentence for each output that the reference has in another shape."""
    graph = model.graph
    for name in dict.fromkeys((*graph.outputs, *graph.answers)):
        theirs = file_name(model, name)
        if theirs not in exact:
            continue
        needed, shape = of_file(model, name, exact[theirs]).shape, graph.by_name[name].source_shape
        if tuple(needed) != tuple(shape):
            yield f"output {name}: its shape is {list(shape)}, that of the reference is {list(needed)}"


def _before_softmax(graph: Graph, output: str) -> str:
    name = output
    while (op := graph.producer.get(name)) is not None and (op.is_view or _requantises(graph, op)):
        name = op.inputs[0]
    return op.inputs[0] if op is not None and op.kind == "softmax" else output


def _requantises(graph: Graph, op: Op) -> bool:
    """Whether an operator is one of those between numbers and their integers: a softmax before it decides."""
    others = [graph.by_name[name] for name in op.inputs[1:]]
    numbers = op.kind in ("mul", "add") and all(other.constant and prod(other.shape) == 1 for other in others)
    return op.kind in ("narrow", "widen") or numbers


def step_of(model: Model, name: str) -> float:
    """Distance of neighbouring numbers of a value that is made of integers by scales and shifts; 0 for others."""
    graph, step = model.graph, 1.0
    while (op := graph.producer.get(name)) is not None and op.kind != "widen":
        if not (op.is_view or _requantises(graph, op)) or op.kind == "narrow":
            return 0.0
        if op.kind == "mul":
            step *= abs(float(model.constants[graph.by_name[op.inputs[1]].constant].reshape(-1)[0]))
        name = op.inputs[0]
    return step if op is not None else 0.0


def changed_constants(whole: Compilation, dump: Dump) -> Iterator[str]:
    """Constants that do not lie in memory after the run as the graph has them."""
    for tensor in whole.model.graph.tensors:
        if tensor.constant and tensor.name in dump:
            expected = np.ascontiguousarray(whole.model.constants[tensor.constant]).tobytes()
            count, first = first_difference(dump[tensor.name], expected)
            if count:
                yield f"constant {tensor.name}: {count} of {len(expected)} bytes changed in memory, first at {first}"


def compare_shipped(artifact: Artifact, outputs: tuple[Dump, ...] | None, twin: tuple[Dump, ...]) -> ShippedResult:
    """Compare the outputs of an artifact with those of its twin, for every input. `outputs` is None where both are the
    same program."""
    entries = artifact.manifest.outputs
    different = []
    for number, (ours, theirs) in enumerate(zip(outputs or (), twin, strict=bool(outputs))):
        for entry in entries:
            count, first = first_difference(ours[entry.name], theirs[entry.name])
            if count:
                different.append((entry.name, number, count, first))
    return ShippedResult(len(entries), sum(entry.bytes for entry in entries), outputs is None, tuple(different))


def compare_levels(whole: Compilation, ours: tuple[Dump, ...], plain: tuple[Dump, ...]) -> LevelResult:
    """Compare all that a level leaves in the main memory with the same values of level O0, for every input."""
    graph = whole.model.graph
    names = tuple(name for name in stored_values(whole) if name not in graph.inputs)
    different = []
    for number, (mine, expected) in enumerate(zip(ours, plain, strict=True)):
        for name in names:
            count, first = first_difference(mine[name], expected[name])
            if count:
                different.append((name, number, count, first))
    return LevelResult(
        level=whole.plan.level,
        values=len(names),
        bytes=sum(graph.by_name[name].size_bytes for name in names),
        outputs=sum(name in graph.outputs for name in names),
        different=tuple(different),
    )
