"""Random valid ONNX models of every operator that the frontend reads and the target computes.

    Choices, featured operators  --walk-->  Draft  -->  ModelProto

A walk adds one operator after the other: behind the last value mostly (chains), behind an older one (branches, values
read twice, several outputs), as two branches that meet again (diamonds), or behind a view. An operator that can read no
value as it is gets one through a view, or an input of its own. What nothing reads is an output, and at times so is a
value that is read. `MAKERS` has one maker for each operator type; `NOT_DRAWN` says why the others have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto

from tests.fuzz.draft import Draft, Maker, Shape
from tests.fuzz.draw_attention import ATTENTION
from tests.fuzz.draw_axes import AXES
from tests.fuzz.draw_elementwise import ELEMENTWISE, add_binary
from tests.fuzz.draw_masks import MASKS
from tests.fuzz.draw_movement import MOVEMENT, add_view
from tests.fuzz.draw_recurrent import RECURRENT
from tests.fuzz.draw_windows import WINDOWS
from tests.fuzz.draw_words import WORDS
from tests.partition_graphs import Choices, Drawn, Seeded

__all__ = ["MAKERS", "NOT_DRAWN", "OPSETS", "featured_by", "model_of", "models", "random_model"]

OPSETS = (24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8)
"""Versions of the operator set that models are written in. Before 8 operands were not broadcast."""

MAKERS: Mapping[str, Maker] = {**WINDOWS, **AXES, **ELEMENTWISE, **MOVEMENT, **MASKS, **WORDS, **RECURRENT, **ATTENTION}

NOT_DRAWN: Mapping[str, str] = {}

FAMILIES = (*[WINDOWS] * 3, *[AXES] * 2, *[ELEMENTWISE] * 2, *[MOVEMENT] * 2, MASKS, WORDS)
"""Windows more often: they make the halos that cutting is about."""
OFTEN = (*["Conv"] * 3, "MaxPool", "AveragePool", *["LRN"] * 2, *["Softmax"] * 6, *["LayerNormalization"] * 2)
"""Drawn more often than others of their family: what reads around an element, and what reads whole axes."""
LARGEST_ELEMENTS = 3_000
TRIES = 6


def model_of(seed: int) -> onnx.ModelProto:
    """The model of a seed. Any run of seeds as long as half the table has every operator type."""
    return random_model(Seeded(seed), featured_by(seed))


def featured_by(seed: int) -> tuple[str, ...]:
    names = sorted(MAKERS)
    return names[2 * seed % len(names)], names[(2 * seed + 1) % len(names)]


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """By hypothesis, which makes a failing model smaller."""
    return random_model(Drawn(draw), (draw(st.sampled_from(sorted(MAKERS))),))


def random_model(choose: Choices, featured: Sequence[str] = ()) -> onnx.ModelProto:
    """A model of two to some fifteen nodes, the featured operators among them where one version has them all."""
    fitting = [opset for opset in OPSETS if all(available(name, opset) for name in featured)]
    opset = choose.one_of(fitting or OPSETS)
    draft = Draft(choose, opset, np.random.default_rng(choose.number(0, 1 << 16)))
    draft.input(_first_shape(draft))
    steps = draft.number(2, 6)
    due = {draft.number(0, steps - 1): name for name in featured if available(name, opset)}
    late = [name for name in featured if available(name, opset) and name not in due.values()]
    for step in range(steps):
        draft.keep = draft.number(0, 2) > 0
        _walk(draft, due.get(step, ""))
    for name in late:
        _extend(draft, name, _near(draft))
    return draft.model(_outputs(draft))


def _first_shape(draft: Draft) -> Shape:
    rank = draft.one_of(4, 4, 4, 4, 3, 2, 5)
    if rank == 4:
        rows, columns = (draft.one_of(8, draft.number(1, 16)) for _ in range(2))
        shape = draft.one_of(1, 1, 2, 3), draft.one_of(4, 8, draft.number(1, 12)), rows, columns
        return shape if prod(shape) <= LARGEST_ELEMENTS else (1, 4, *shape[2:])
    return tuple(draft.number(1, 4 if rank == 5 else 12) for _ in range(rank))


def _walk(draft: Draft, op_type: str) -> None:
    """One step: a node behind the last value or an older one, a diamond, or a view and then a node."""
    match draft.one_of("chain", "chain", "chain", "branch", "diamond", "view"):
        case "chain":
            _extend(draft, op_type or _drawn(draft), _near(draft))
        case "branch":
            usable = _usable(draft)
            _extend(draft, op_type or _drawn(draft), [draft.one_of(*usable), *usable[::-1]])
        case "view":
            views = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape")
            _extend(draft, draft.one_of(*views), _near(draft))
            _extend(draft, op_type or _drawn(draft), _near(draft))
        case _:
            _diamond(draft, op_type)


def _diamond(draft: Draft, op_type: str) -> None:
    """Two branches of up to two nodes, and the value itself as a branch; joined where the shapes allow it."""
    draft.keep = True
    start = _near(draft)[0]
    ends = []
    for length, first in ((draft.number(1, 2), op_type), (draft.number(0, 2), "")):
        x = start
        for position in range(length):
            x = _extend(draft, first if first and position == 0 else _drawn(draft), [x])
        ends.append(x)
    left, right = ends
    a, b = (draft.shapes[name] for name in ends)
    differing = [axis for axis, (ours, theirs) in enumerate(zip(a, b, strict=False)) if ours != theirs]
    if a == b:
        if draft.number(0, 3):
            add_binary(draft, draft.one_of("Add", "Add", "Mul", "Sub", "Max", "Min", "Div"), left, right)
        else:
            axis = draft.axis(a)
            draft.add("Concat", ends, (*a[:axis], 2 * a[axis], *a[axis + 1 :]), axis=axis)
    elif len(a) == len(b) and len(differing) == 1:
        (axis,) = differing
        draft.add("Concat", ends, (*a[:axis], a[axis] + b[axis], *a[axis + 1 :]), axis=axis)


def _drawn(draft: Draft) -> str:
    """Any operator that this version has."""
    family = draft.one_of(*FAMILIES)
    names = [*sorted(family), *(name for name in OFTEN if name in family)]
    return draft.one_of(*(name for name in names if available(name, draft.opset)))


def _usable(draft: Draft) -> list[str]:
    return [name for name, shape in draft.shapes.items() if prod(shape) <= LARGEST_ELEMENTS]


def _near(draft: Draft) -> list[str]:
    """The latest values first; the very latest mostly."""
    usable = _usable(draft)[::-1]
    start = draft.one_of(0, 0, 0, draft.number(0, min(2, len(usable) - 1)))
    return [usable[start], *usable[:start], *usable[start + 1 :]]


def _extend(draft: Draft, op_type: str, candidates: Sequence[str]) -> str:
    """A node of the type behind the first value that it can read; the name of the last value that was made.

    Where it can read none of them as it is, behind a view as an image or a matrix, or behind an input of its own.
    """
    maker = MAKERS[op_type]

    def made(x: str) -> bool:
        return any(maker(draft, op_type, x) for _ in range(TRIES))

    if not any(made(x) for x in candidates):
        shape = draft.shapes[candidates[0]]
        views = [(shape[0], prod(shape[1:])), (*(1,) * (4 - len(shape)), *shape)[-4:]]
        views = [view for view in views if prod(view) == prod(shape)]
        if not any(made(add_view(draft, candidates[0], view)) for view in views):
            fresh = draft.input((1, draft.one_of(4, 8, 9), 4, 4))
            while not made(fresh):
                image = 1, draft.one_of(1, 4, 8, 9), draft.number(1, 9), draft.number(1, 9)
                fresh = draft.input(image if draft.flip() else image[1:])
    return next(reversed(draft.shapes))


def _outputs(draft: Draft) -> list[str]:
    """What nothing reads, and at times one value that is read."""
    read = {name for node in draft.nodes for name in node.input}
    made = [name for node in draft.nodes for name in node.output]
    kept = [name for name in made if name in draft.shapes or draft.others.get(name, ((), 0))[1] in COMPUTED]
    outputs = [name for name in kept if name not in read]
    if draft.number(0, 2) == 0:
        outputs.append(draft.one_of(*kept))
    return list(dict.fromkeys(outputs))


COMPUTED = (TensorProto.FLOAT16, TensorProto.DOUBLE)


@cache
def available(op_type: str, opset: int) -> bool:
    """Does this version of the operator set have the operator?"""
    try:
        return not onnx.defs.get_schema(op_type, opset, "").deprecated
    except onnx.defs.SchemaError:
        return False
