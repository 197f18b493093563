"""Values that integers decide, as a run left them: against the target's slow arithmetic and against the reference.

    memory after a run --all prepared and concluded operators, whole, bit for bit--> sentences about what differs

Choices by computed numbers (`Graph.concluded`) are judged by what the reference makes of the numbers as the run left
them: of two logits that differ by less than rounding, either may be the greatest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.concluded_answers import answers_of_stored
from dsa_sched.verification.evidence import Dump, Feed
from isched.program.target import Prepares

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
    assert isinstance(target, Prepares)  # otherwise nothing is prepared

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

    for name, reference in answers_of_stored(compilation.model, dump, exact).items():
        yield from _different(f"output {name}, input {number}", read(name), reference, "in the reference")


def _different(who: str, stored: Array, expected: Array, where: str) -> Iterator[str]:
    same = stored.tobytes() == expected.tobytes() if stored.dtype == expected.dtype else False
    if same:
        return
    places = np.argwhere(stored != expected) if stored.ndim else np.argwhere((stored != expected).reshape(1))
    if len(places):
        at = tuple(int(i) for i in places[0])[: stored.ndim]
        first = f"first at {list(at)}: {stored[at]}, {expected[at]} {where}"
        yield f"{who}: {len(places)} of {stored.size} elements differ, {first}"
