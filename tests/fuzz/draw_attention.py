"""Makers of attention and rotary embeddings. Each adds a node that reads `x`, or says False."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fuzz.draft import FLOAT, Attribute, Draft, Maker, Shape

__all__ = ["ATTENTION"]


def _attention(draft: Draft, op_type: str, x: str) -> bool:
    """x attends to inputs of their own, by head or with heads side by side, under a constant mask or none."""
    shape = draft.shapes[x]
    if len(shape) not in (3, 4):
        return False
    batch, width, columns = shape[0], shape[-1], draft.number(1, 9)
    settings: dict[str, Attribute] = {}
    if len(shape) == 4:
        heads, rows = shape[1], shape[2]
        shared = draft.one_of(*(count for count in range(1, heads + 1) if heads % count == 0))
        element = draft.one_of(width, draft.number(1, 9))
        of_keys: Shape = (batch, shared, columns, width)
        of_values: Shape = (batch, shared, columns, element)
        result: Shape = (batch, heads, rows, element)
    else:
        heads = draft.one_of(*(count for count in range(1, width + 1) if width % count == 0))
        shared = draft.one_of(*(count for count in range(1, heads + 1) if heads % count == 0))
        rows, size = shape[1], width // heads
        of_keys = of_values = (batch, columns, shared * size)
        result = (batch, rows, width)
        settings |= {"q_num_heads": heads, "kv_num_heads": shared}
    if draft.flip():
        settings["scale"] = draft.one_of(1.0, 0.25, 0.7)
    if draft.number(0, 2) == 0:
        settings["softcap"] = draft.one_of(0.0, 2.0)
    if draft.flip():
        settings["is_causal"] = draft.number(0, 1)
    if draft.number(0, 3) == 0:
        settings |= {"qk_matmul_output_mode": 0, "softmax_precision": FLOAT}
    operands = [x, draft.input(of_keys), draft.input(of_values)]
    if draft.flip():
        ahead: Shape = draft.one_of((), (1, 1), (batch, heads))
        operands.append(_mask(draft, (*ahead, rows, columns)))
    draft.add(op_type, operands, result, **settings)
    return True


def _mask(draft: Draft, shape: Shape) -> str:
    """Numbers or truth values, of shapes that onnxruntime takes; at times a row sees nothing."""
    if draft.flip():
        return draft.weights(*shape)
    return draft.constant(draft.random.random(shape) < draft.one_of(0.4, 0.9))


def _rotary(draft: Draft, op_type: str, x: str) -> bool:
    """Tables of constants: for each row, or of more rows than there are, by places."""
    shape = draft.shapes[x]
    if len(shape) not in (3, 4):
        return False
    settings: dict[str, Attribute] = {}
    batch, rows, size = shape[0], shape[-2], shape[-1]
    if len(shape) == 3:
        counts = [count for count in range(1, size + 1) if size % count == 0 and size // count % 2 == 0]
        if not counts:
            return False
        settings["num_heads"] = heads = draft.one_of(*counts)
        size //= heads
    if size % 2:
        return False
    if draft.flip():
        size = settings["rotary_embedding_dim"] = 2 * draft.number(1, size // 2)
    if draft.flip():
        settings["interleaved"] = draft.number(0, 1)
    placed = draft.flip()
    tables = [draft.weights(*((rows + 2,) if placed else (batch, rows)), size // 2) for _ in range(2)]
    places = [draft.constant(draft.random.integers(0, rows + 2, (batch, rows)).astype(np.int64))] if placed else []
    draft.add(op_type, [x, *tables, *places], shape, **settings)
    return True


ATTENTION: Mapping[str, Maker] = {"Attention": _attention, "RotaryEmbedding": _rotary}
