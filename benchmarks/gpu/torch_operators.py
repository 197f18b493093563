"""The graph's operators in PyTorch, each from its attributes: `KINDS` by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partitioner.ir.formula import steps_of
from partitioner.ir.graph import Graph, Op

__all__ = ["KINDS", "Asked", "Tensor", "Unknown"]

Tensor = Any
"""PyTorch's, which is not required."""


class Unknown(Exception):
    """An operator that is not known here."""


@dataclass(frozen=True)
class Asked:
    """An operator, and values by name."""

    torch: Any
    graph: Graph
    op: Op
    values: Mapping[str, Tensor]

    @property
    def inputs(self) -> Sequence[Tensor]:
        return [self.values[name] for name in self.op.inputs]

    @property
    def x(self) -> Tensor:
        return self.values[self.op.inputs[0]]

    @property
    def functional(self) -> Any:
        return self.torch.nn.functional

    @property
    def shape(self) -> tuple[int, ...]:
        return self.graph.by_name[self.op.outputs[0]].shape

    def windows(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))


def _first(x: Tensor) -> Tensor:
    return x.movedim(-1, 1)


def _last(x: Tensor) -> Tensor:
    return x.movedim(1, -1)


def _padded(asked: Asked, x: Tensor, pads: tuple[int, ...], value: float) -> tuple[Tensor, tuple[int, ...]]:
    """Equal pads are the operator's own; others are laid around the map before."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, pads[:half]
    around = [size for axis in reversed(range(half)) for size in (pads[axis], pads[half + axis])]
    return asked.functional.pad(x, around, value=value), (0,) * half


def _conv(asked: Asked) -> Tensor:
    _, strides, dilations, pads = asked.windows()
    x, padding = _padded(asked, _first(asked.x), pads, 0.0)
    run = {1: asked.functional.conv1d, 2: asked.functional.conv2d, 3: asked.functional.conv3d}[len(strides)]
    bias = asked.inputs[2] if len(asked.inputs) > 2 else None
    groups = int(asked.op.number("groups"))
    return _last(run(x, asked.inputs[1], bias, strides, padding, dilations, groups))


def _matmul(asked: Asked) -> Tensor:
    found = asked.torch.matmul(asked.inputs[0], asked.inputs[1])
    return found + asked.inputs[2] if len(asked.inputs) > 2 else found


def _max_pool(asked: Asked) -> Tensor:
    kernel, strides, dilations, pads = asked.windows()
    x, padding = _padded(asked, _first(asked.x), _reaching(asked, pads), float("-inf"))
    if any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        raise Unknown(f"operator {asked.op.name}: PyTorch pools with pads of half the window at most")
    run = {1: asked.functional.max_pool1d, 2: asked.functional.max_pool2d, 3: asked.functional.max_pool3d}[len(kernel)]
    return _last(_cut(run(x, kernel, strides, padding, dilations), asked.shape))


def _reaching(asked: Asked, pads: tuple[int, ...]) -> tuple[int, ...]:
    """Pads behind that reach every window of the result, which may go beyond them."""
    kernel, strides, dilations, _ = asked.windows()
    half, source = len(kernel), asked.graph.by_name[asked.op.inputs[0]].shape[1:-1]
    ends = []
    for axis in range(half):
        reach = (asked.shape[1 + axis] - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1
        ends.append(max(pads[half + axis], reach - source[axis] - pads[axis]))
    return (*pads[:half], *ends)


def _cut(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    for axis, extent in enumerate(shape[1:-1]):
        x = x.narrow(2 + axis, 0, extent)
    return x


def _average_pool(asked: Asked) -> Tensor:
    """By sums over ones, which counts as the operator does. A window that is the whole map is a mean."""
    kernel, strides, dilations, pads = asked.windows()
    source = asked.graph.by_name[asked.op.inputs[0]].shape
    if kernel == source[1:-1] and not any(pads):
        return asked.x.mean(dim=tuple(range(1, len(source) - 1)), keepdim=True)
    if len(kernel) != 2 or any(step != 1 for step in dilations):
        raise Unknown(f"operator {asked.op.name}: PyTorch's side averages plain windows in two dimensions")
    half, functional = 2, asked.functional
    if pads[:half] == pads[half:] and _reaching(asked, pads) == pads:
        counts = bool(asked.op.number("count_include_pad"))
        return _last(functional.avg_pool2d(_first(asked.x), kernel, strides, pads[:half], False, counts))
    reaching = _reaching(asked, pads)
    around = [size for axis in reversed(range(half)) for size in (reaching[axis], reaching[half + axis])]
    beyond = [size for axis in reversed(range(half)) for size in (0, reaching[half + axis] - pads[half + axis])]
    within = [size for axis in reversed(range(half)) for size in (pads[axis], pads[half + axis])]
    ones = asked.torch.ones((1, 1, *source[1:-1]), dtype=asked.x.dtype, device=asked.x.device)
    ones = functional.pad(ones, within, value=float(asked.op.number("count_include_pad")))
    counted = functional.avg_pool2d(functional.pad(ones, beyond), kernel, strides, divisor_override=1)
    summed = functional.avg_pool2d(functional.pad(_first(asked.x), around), kernel, strides, divisor_override=1)
    return _last(_cut(summed / counted.clamp(min=1), asked.shape))


def _scale_shift(asked: Asked) -> Tensor:
    return asked.x * asked.inputs[1] + asked.inputs[2]


def _lrn(asked: Asked) -> Tensor:
    op = asked.op
    numbers = (int(op.number("size")), op.number("alpha"), op.number("beta"), op.number("bias"))
    return _last(asked.functional.local_response_norm(_first(asked.x), *numbers))


def _layer_norm(asked: Asked) -> Tensor:
    """By PyTorch's own over the last axes, with factors of their extents; else by elementary operators."""
    rank, axes = asked.x.dim(), asked.op.ints("axes")
    extents = tuple(asked.x.shape[rank - len(axes) :])
    last = sorted(axis % rank for axis in axes) == list(range(rank - len(axes), rank))
    if last and all(operand.numel() == math.prod(extents) for operand in asked.inputs[1:]):
        factors = [operand.reshape(extents) for operand in asked.inputs[1:]]
        return asked.functional.layer_norm(asked.x, extents, *factors, eps=asked.op.number("epsilon"))
    return _affine(asked, asked.x - asked.x.mean(dim=axes, keepdim=True))


def _affine(asked: Asked, centred: Tensor) -> Tensor:
    axes, wide = asked.op.ints("axes"), centred.float()
    power = (wide * wide).mean(dim=axes, keepdim=True) + asked.op.number("epsilon")
    found = (wide * asked.torch.rsqrt(power)).to(asked.x.dtype)
    for position, operand in enumerate(asked.inputs[1:]):
        found = found * operand if position == 0 else found + operand
    return found


def _slice(asked: Asked) -> Tensor:
    """Backward steps by indices, others by a view."""
    found = asked.x
    starts, steps = asked.op.ints("starts"), asked.op.ints("steps")
    for axis, (start, step, extent) in enumerate(zip(starts, steps, asked.shape, strict=True)):
        if step > 0:
            found = found[(slice(None),) * axis + (slice(start, start + step * (extent - 1) + 1, step),)]
        else:
            places = asked.torch.arange(extent, device=found.device) * step + start
            found = found.index_select(axis, places)
    return found


def _take(asked: Asked) -> Tensor:
    places = asked.torch.tensor(asked.op.ints("indices"), device=asked.x.device)
    return asked.x.index_select(int(asked.op.number("axis")), places)


def _gather(asked: Asked) -> Tensor:
    axis, indices = int(asked.op.number("axis")), asked.inputs[1].long()
    found = asked.x.index_select(axis, indices.reshape(-1) % asked.x.shape[axis])
    return found.reshape(asked.shape)


def _pad(asked: Asked) -> Tensor:
    begins, source = asked.op.ints("begins"), asked.x.shape
    ends = [extent - begin - had for extent, begin, had in zip(asked.shape, begins, source, strict=True)]
    around = [size for axis in reversed(range(len(begins))) for size in (begins[axis], ends[axis])]
    return asked.functional.pad(asked.x, around, value=asked.op.number("value"))


def _resize(asked: Asked) -> Tensor:
    """Whole factors of the nearest element; all else is not compared."""
    found, shape = asked.x, asked.shape
    if asked.op.attribute("mode") != "nearest" or any(b % a for a, b in zip(found.shape, shape, strict=True)):
        raise Unknown(f"operator {asked.op.name}: PyTorch's side resizes to the nearest by whole factors")
    for axis, (had, wanted) in enumerate(zip(found.shape, shape, strict=True)):
        if had != wanted:
            found = found.repeat_interleave(wanted // had, dim=axis)
    return found


def _gelu(asked: Asked) -> Tensor:
    return asked.functional.gelu(asked.x, approximate=str(asked.op.attribute("approximate")))


def _swish(asked: Asked) -> Tensor:
    return asked.x * asked.torch.sigmoid(asked.op.number("alpha") * asked.x)


def _elu(asked: Asked) -> Tensor:
    torch, op = asked.torch, asked.op
    alpha, x = op.number("alpha"), asked.x
    below = torch.clamp(x, max=0.0)
    found = torch.clamp(x, min=0.0) + alpha * torch.expm1(below / alpha if op.kind == "celu" else below)
    return op.number("gamma") * found if op.kind == "selu" else found


def _shrink(asked: Asked) -> Tensor:
    torch, x = asked.torch, asked.x
    lambd, bias = asked.op.number("lambd"), asked.op.number("bias")
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, zero) + torch.where(x > lambd, x - bias, zero)


def _plain(name: str) -> Callable[[Asked], Tensor]:
    """A function of PyTorch's on all inputs."""
    return lambda asked: getattr(asked.torch, name)(*asked.inputs)


def _reduced(name: str) -> Callable[[Asked], Tensor]:
    return lambda asked: getattr(asked.torch, name)(asked.x, dim=asked.op.ints("axes"), keepdim=True)


def _nearest(asked: Asked) -> Tensor:
    """Of the span of a line the number nearest to zero."""
    low, high = (_reduced(name)(asked) for name in ("amin", "amax"))
    return asked.torch.clamp(low, min=0.0) + asked.torch.clamp(high, max=0.0)


def _power(asked: Asked) -> Tensor:
    """64 over the power of two at or above the largest magnitude of a line, held between 2^-9 and 65504."""
    x = asked.x - _nearest(asked) if asked.op.number("centred") else asked.x
    size = asked.torch.amax(asked.torch.abs(x), dim=asked.op.ints("axes"), keepdim=True).float()
    exponent = asked.torch.ceil(asked.torch.log2(asked.torch.clamp(size, 2.0**-9, 65504.0)))
    return asked.torch.exp2(6.0 - exponent).to(asked.x.dtype)


def _formula(asked: Asked) -> Tensor:
    """In fp32, as the target does."""
    x = asked.x.float()
    for name, number in steps_of(str(asked.op.attribute("steps"))):
        match name:
            case "add" | "mul":
                x = getattr(asked.torch, name)(x, number)
            case "max" | "min":
                x = asked.torch.clamp(x, **{name: number})
            case "power":
                x = asked.torch.pow(x, number)
            case _:
                x = getattr(asked.torch, name)(x)
    return x.to(asked.x.dtype)


def _attend(asked: Asked) -> Tensor:
    """Of heads side by side or apart, by PyTorch's fused attention."""
    op, torch = asked.op, asked.torch
    heads, groups = int(op.number("heads")), int(op.number("groups"))
    operands = asked.inputs[:3]
    if "columns" in dict(op.attributes):
        size, width = int(op.number("size")), asked.shape[-1] // heads
        widths = (heads * size, groups * size, groups * width)
        ranges = zip(operands, op.ints("columns"), widths, strict=True)
        operands = [x[..., begin : begin + columns] if x.dim() == 3 else x for x, begin, columns in ranges]
    each = zip(operands, (heads, groups, groups), strict=True)
    q, k, v = (x if x.dim() == 4 else x.unflatten(2, (count, -1)).transpose(1, 2) for x, count in each)
    mask = asked.inputs[3] if len(asked.inputs) > 3 else None
    sees = int(op.number("first_sees")) if "first_sees" in dict(op.attributes) else 0
    if sees > 1:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(sees - 1)
    found = asked.functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=sees == 1, scale=op.number("scale"), enable_gqa=heads != groups
    )
    return found.transpose(1, 2).flatten(2)


KINDS: Mapping[str, Callable[[Asked], Tensor]] = {
    "conv": _conv,
    "matmul": _matmul,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "scale_shift": _scale_shift,
    "lrn": _lrn,
    "layer_norm": _layer_norm,
    "rms_norm": lambda asked: _affine(asked, asked.x),
    "attend": _attend,
    "softmax": lambda asked: asked.torch.softmax(asked.x, dim=int(asked.op.number("axis"))),
    "reduce_sum": _reduced("sum"),
    "reduce_mean": _reduced("mean"),
    "reduce_max": _reduced("amax"),
    "reduce_nearest": _nearest,
    "reduce_power": _power,
    "formula": _formula,
    "transpose": lambda asked: asked.x.permute(asked.op.ints("perm")),
    "slice": _slice,
    "take": _take,
    "gather": _gather,
    "pad": _pad,
    "resize": _resize,
    "view": lambda asked: asked.x.reshape(asked.shape),
    "concat": lambda asked: asked.torch.cat(asked.inputs, dim=int(asked.op.number("axis"))),
    **{kind: _plain(kind) for kind in ("relu", "sigmoid", "tanh", "exp", "log", "erf", "sqrt", "reciprocal", "neg",
                                       "abs", "add", "sub", "mul", "div")},
    "max": _plain("maximum"),
    "min": _plain("minimum"),
    "leaky_relu": lambda asked: asked.functional.leaky_relu(asked.x, asked.op.number("alpha")),
    "clip": lambda asked: asked.torch.clamp(asked.x, asked.op.number("min"), asked.op.number("max")),
    "hard_sigmoid": lambda asked: asked.torch.clamp(
        asked.op.number("alpha") * asked.x + asked.op.number("beta"), 0.0, 1.0
    ),
    "hard_swish": lambda asked: asked.functional.hardswish(asked.x),
    "softplus": lambda asked: asked.functional.softplus(asked.x),
    "mish": lambda asked: asked.functional.mish(asked.x),
    "softsign": lambda asked: asked.functional.softsign(asked.x),
    "gelu": _gelu,
    "swish": _swish,
    "elu": _elu,
    "shrink": _shrink,
    "selu": _elu,
    "celu": _elu,
}  # fmt: skip
"""By kind of operator of the graph."""
