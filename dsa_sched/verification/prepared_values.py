"""Values that integers decide, as a run left them: against the target's slow arithmetic and against the reference.

    memory after a run --all prepared and concluded operators, whole, bit for bit--> sentences about what differs
    stored logits --the file's nodes after them, in onnxruntime--> integers and truth values that leave the network

Choices by computed numbers (`Graph.concluded`) are judged by what the reference makes of the numbers as the run left
them: of two logits that differ by less than rounding, either may be the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend import Model
from dsa_sched.frontend.network.refusals import node_reads
from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.evidence import Dump, Feed, Loads, comparable, file_name, of_file
from dsa_sched.verification.onnx_reference import OnnxReference
from isched.program.target import EmulatesPrepared
from partitioner.ir.graph import Op

Array = npt.NDArray[np.generic]


def prepared_names(compilation: Compilation) -> tuple[str, ...]:
    """Values to read after a run: what prepared operators read and make, constants excepted."""
    graph = compilation.model.graph
    names = (name for op in (*graph.prepared, *graph.concluded) for name in (*op.inputs, *op.outputs))
    return tuple(dict.fromkeys(name for name in names if not graph.by_name[name].constant))


def wrong_prepared(compilation: Compilation, dump: Dump, exact: Feed, number: int) -> Iterator[str]:
    """A sentence for each prepared operator whose result in the run of input `number` is wrong."""
    graph, target = compilation.model.graph, compilation.target
    if not graph.prepared and not graph.concluded:
        return
    assert isinstance(target, EmulatesPrepared)  # otherwise nothing is prepared

    def read(name: str) -> Array:
        tensor = graph.by_name[name]
        if tensor.constant:
            return compilation.model.constants[tensor.constant].reshape(tensor.shape)
        return np.frombuffer(dump[name], tensor.dtype).reshape(tensor.shape)

    for op in (*graph.prepared, *graph.concluded):
        name, stored = op.outputs[0], read(op.outputs[0])
        expected = target.emulate_prepared(graph, op, read)
        when = "prepared" if op in graph.prepared else "concluded"
        who = f"{when} {op.source} {op.name}, input {number}"
        yield from _different(who, stored, expected, "emulated")
        reference = exact.get(name) if op in graph.prepared else None
        if reference is None or reference.shape != stored.shape:
            continue
        numbers = reference.astype(np.float64)
        if stored.dtype.kind == "f":
            off = np.abs(stored.astype(np.float64) - numbers)
            wrong = off > np.spacing(np.abs(stored).astype(stored.dtype)).astype(np.float64)
            wrong &= np.abs(numbers) <= float(np.finfo(str(stored.dtype)).max)
            yield from _different(who, np.where(wrong, stored, 0), np.where(wrong, numbers, 0), "in the reference")
        else:
            yield from _different(who, stored, reference, "in the reference")

    for op in graph.concluded:
        if op.kind == "assign":
            yield from _misplaced(compilation, op, read, exact, number)
    for name, reference in answers_of_stored(compilation.model, dump, exact).items():
        yield from _different(f"output {name}, input {number}", read(name), reference, "in the reference")


def as_given(compilation: Compilation, dumps: tuple[Dump, ...], loads: Sequence[Loads]) -> tuple[Dump, ...]:
    """What runs left, with the inputs in whose places their next values lie as they were given."""
    written = [compilation.artifact.tensor(name) for name in compilation.model.graph.in_place.values()]
    return tuple(
        {**dump, **{entry.name: load[entry.address] for entry in written if entry.name in dump}}
        for dump, load in zip(dumps, loads, strict=True)
    )


def _misplaced(
    compilation: Compilation, op: Op, read: Callable[[str], Array], exact: Feed, number: int
) -> Iterator[str]:
    """A sentence where the reference's rows, written where ours were, are not its next value of a cache."""
    model, target, (cache, update, places) = compilation.model, compilation.target, op.inputs
    result, dtype = op.outputs[0], model.graph.by_name[cache].dtype
    if not all(comparable(model, name, exact) for name in (cache, update, result)):
        return
    theirs = {name: of_file(model, name, exact[file_name(model, name)]).astype(dtype)
              for name in (cache, update, result)}  # fmt: skip
    assert isinstance(target, EmulatesPrepared)  # otherwise nothing is concluded
    made = target.emulate_prepared(model.graph, op, lambda name: read(name) if name == places else theirs[name])
    yield from _different(f"places of {op.source} {op.name}, input {number}", made, theirs[result], "in the reference")


def _different(who: str, stored: Array, expected: Array, where: str) -> Iterator[str]:
    same = stored.tobytes() == expected.tobytes() if stored.dtype == expected.dtype else False
    if same:
        return
    places = np.argwhere(stored != expected) if stored.ndim else np.argwhere((stored != expected).reshape(1))
    if len(places):
        at = tuple(int(i) for i in places[0])[: stored.ndim]
        first = f"first at {list(at)}: {stored[at]}, {expected[at]} {where}"
        yield f"{who}: {len(places)} of {stored.size} elements differ, {first}"


def answers_of_stored(model: Model, dump: Dump, feed: Feed) -> dict[str, Array]:
    """Values that the file makes of the numbers that a run left, by the name of the concluded output. `feed` has the
    inputs of the network.
    """
    graph = model.graph
    answers = [name for op in graph.concluded for name in op.outputs if name in graph.answers and op.kind != "assign"]
    if not answers:
        return {}
    numbers: dict[str, Array] = {}
    for op in graph.concluded:
        for own, value in op.attributes:
            if own == "of":
                tensor = graph.by_name[op.inputs[0]]
                stored = np.frombuffer(dump[op.inputs[0]], tensor.dtype).reshape(tensor.source_shape)
                numbers[str(value)] = stored.astype(tensor.source_dtype)
    part = _after(model.source, numbers, answers)
    given = {item.name: np.asarray(numbers.get(item.name, feed.get(item.name))) for item in part.graph.input}
    found = OnnxReference(part).values(given)
    return {name: found[name] for name in answers}


def _after(source: onnx.ModelProto, numbers: Feed, answers: list[str]) -> onnx.ModelProto:
    """The nodes from these numbers, and from inputs, to these outputs."""
    needed, kept = set(answers), []
    for node in reversed(source.graph.node):
        if needed.intersection(node.output) and not numbers.keys() & set(node.output):
            needed.update(node_reads(node))
            kept.append(node)
    part = onnx.ModelProto()
    part.CopyFrom(source)
    for field in (part.graph.node, part.graph.output, part.graph.input):
        del field[:]
    part.graph.node.extend(reversed(kept))
    part.graph.output.extend(item for item in source.graph.output if item.name in answers)
    part.graph.input.extend(item for item in source.graph.input if item.name in needed and item.name not in numbers)
    part.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in numbers.items()
    )
    return part
