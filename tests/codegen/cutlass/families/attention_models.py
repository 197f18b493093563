"""Small models of attention, drawn and by hand.

Heads(items=2, heads=4, groups=2, rows=19, keys=70, size=20, causal=True)  --attention_model-->  ONNX model
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import onnx

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

__all__ = ["Heads", "attention_model", "drawn_heads"]


@dataclass(frozen=True, slots=True)
class Heads:
    """`groups` heads of k and v; elements of a row of q and k (`size`) and of v (`width`, 0 for the same). `mask` is
    the shape of a constant one, () for none, of numbers or of truth values that leave each row something (`truth`).
    `after` follows, with another map that is added. q, k and v are inputs or, of heads side by side, made: "products"
    of an input, q of another one where it has other rows, or "pieces" of one value."""

    items: int
    heads: int
    groups: int
    rows: int
    keys: int
    size: int
    width: int = 0
    apart: bool = False
    causal: bool = False
    mask: tuple[int, ...] = ()
    truth: bool = False
    scale: float | None = None
    after: str = ""
    made: str = ""


def attention_model(case: Heads, seed: int = 0) -> onnx.ModelProto:
    b = ModelBuilder(seed, opset=23)
    width = case.width or case.size

    def given(heads: int, rows: int, elements: int) -> str:
        shape = (heads, rows, elements) if case.apart else (rows, heads * elements)
        return b.input(case.items, *shape)

    operands = _made(b, case, width) or [
        given(case.heads, case.rows, case.size),
        given(case.groups, case.keys, case.size),
        given(case.groups, case.keys, width),
    ]
    if case.mask and case.truth:
        kept = b.random.random(case.mask) < 0.6
        kept[..., 0] = True
        operands.append(b.constant(kept, dtype=np.bool_))
    elif case.mask:
        operands.append(b.weights(*case.mask, scale=2.0))
    settings: dict[str, int | float] = {"is_causal": int(case.causal)}
    if not case.apart:
        settings |= {"q_num_heads": case.heads, "kv_num_heads": case.groups}
    if case.scale is not None:
        settings["scale"] = case.scale
    y = b.node("Attention", *operands, attributes=settings)
    if case.after:
        joined = (case.heads, case.rows, width) if case.apart else (case.rows, case.heads * width)
        y = b.node(case.after, b.node("Add", y, b.input(case.items, *joined)))
    return b.model(y)


def _made(b: ModelBuilder, case: Heads, width: int) -> list[str]:
    """q, k and v as a network makes them; none where they are inputs."""
    widths = (case.heads * case.size, case.groups * case.size, case.groups * width)
    if case.made == "pieces":
        whole = b.node("Relu", b.input(case.items, case.keys, sum(widths)))
        pieces = ["q", "k", "v"]
        b.node("Split", whole, b.integers(*widths), outputs=pieces, axis=2)
        return pieces
    if not case.made:
        return []
    depth = 24
    x = b.input(case.items, case.keys, depth)
    of_q = x if case.rows == case.keys else b.input(case.items, case.rows, depth)
    made = [b.node("MatMul", of, b.weights(depth, columns)) for of, columns in zip((of_q, x, x), widths, strict=True)]
    return [made[0], *(b.node("Add", y, b.weights(columns)) for y, columns in zip(made[1:], widths[1:], strict=True))]


def drawn_heads(seed: int) -> Heads:
    """Any width of a head up to 128, one row or several blocks of them, several of q to one of k and v, masks."""
    draw = Random(f"attention {seed}")
    groups, shared = draw.randint(1, 2), draw.choice((1, 1, 2, 3))
    rows, keys = draw.choice((1, draw.randint(2, 20), draw.randint(21, 80))), draw.choice((1, draw.randint(2, 120)))
    size = draw.choice((32, 64, 96, 128, 8 * draw.randint(1, 16), draw.randint(1, 128)))
    width = draw.choice((0, 0, 8 * draw.randint(1, 16), draw.randint(1, 128)))
    items, causal = draw.randint(1, 2), draw.random() < 0.4
    ahead = draw.choice(((), (1, 1), (items, 1), (items, groups * shared)))
    mask = (*ahead, rows, keys) if draw.random() < (0.3 if causal else 0.6) else ()
    return Heads(
        items,
        groups * shared,
        groups,
        rows,
        keys,
        size,
        width,
        apart=draw.random() < 0.3,
        causal=causal,
        mask=mask,
        truth=draw.random() < 0.3,
        scale=draw.choice((None, None, 0.3)),
        after=draw.choice(("", "", "Relu")),
    )
