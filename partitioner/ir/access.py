"""Access maps: the element of a tensor that an iteration point touches, as one index expression per tensor axis.

    iteration point (n, y, x, f, ry, rx, rc)  -->  data[n, 2*y + ry - 3, 2*x + rx - 3, rc]

Expressions are linear in the iteration axes wherever those of TensorIR are. For the rest there is one small kind for
each reason: `Grouped` (channels of a grouped convolution, by floor division), `Scaled` (resize: scaled and clamped) and
`Full` (the whole axis: gather, a softmax seen from outside). A `View` keeps the linear order of elements and changes
only the shape. Boxes go backward through all of them in `partitioner/ir/regions.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from partitioner.ir.text import Json, TextError


@dataclass(frozen=True, slots=True)
class Linear:
    """Sum of coefficient * axis, plus a constant."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def __str__(self) -> str:
        parts = [name if c == 1 else f"{c}*{name}" for name, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class Grouped:
    """size * (axis // per_group) + offset axis: the input channel of group `axis // per_group`.

    Without an offset axis (an empty name) it is the group itself, the leading axis of grouped weights.
    """

    axis: str
    per_group: int
    size: int
    offset: str = ""

    def __str__(self) -> str:
        group = f"{self.size}*({self.axis}//{self.per_group})"
        return f"{group} + {self.offset}" if self.offset else group


@dataclass(frozen=True, slots=True)
class Scaled:
    """clamp(axis * numerator / denominator + [low, high]): a resize reads this window around the scaled coordinate."""

    axis: str
    numerator: int
    denominator: int
    low: int
    high: int

    def __str__(self) -> str:
        return f"scaled({self.axis}*{self.numerator}/{self.denominator}, {self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Full:
    """The whole axis, whatever the iteration point."""

    def __str__(self) -> str:
        return ":"


Index = Linear | Grouped | Scaled | Full


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor read or written: an index expression for each of its axes."""

    tensor: str
    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The tensor read in its linear (row-major) order under another shape: element i is element i."""

    tensor: str


def index_axes(index: Index) -> tuple[str, ...]:
    """The iteration axes that an index expression names."""
    match index:
        case Linear():
            return tuple(name for name, _ in index.terms)
        case Grouped():
            return (index.axis, index.offset) if index.offset else (index.axis,)
        case Scaled():
            return (index.axis,)
    return ()


def access_to_json(access: Access | View) -> Json:
    """`["data", "n", "2*y + 1"]`, or `{"view": "data"}`."""
    if isinstance(access, View):
        return {"view": access.tensor}
    return [access.tensor, *(str(index) for index in access.indices)]


def access_from_json(value: Json) -> Access | View:
    """The converse of `access_to_json`. Raises TextError."""
    if isinstance(value, dict) and set(value) == {"view"}:
        return View(str(value["view"]))
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise TextError(who="access", needs="a list of a tensor name and index expressions", has=str(value)[:80])
    return Access(str(value[0]), tuple(_parse_index(str(text)) for text in value[1:]))


_AXIS = r"[A-Za-z_]\w*"
_GROUPED = re.compile(rf"(\d+)\*\(({_AXIS})//(\d+)\)(?: \+ ({_AXIS}))?")
_SCALED = re.compile(rf"scaled\(({_AXIS})\*(\d+)/(\d+), (-?\d+), (-?\d+)\)")
_TERM = re.compile(rf"(?:(-?\d+)\*)?({_AXIS})")


def _parse_index(text: str) -> Index:
    if text == ":":
        return Full()
    if match := _GROUPED.fullmatch(text):
        return Grouped(match[2], int(match[3]), int(match[1]), match[4] or "")
    if match := _SCALED.fullmatch(text):
        return Scaled(match[1], int(match[2]), int(match[3]), int(match[4]), int(match[5]))
    terms: list[tuple[str, int]] = []
    constant = 0
    for part in text.split(" + "):
        if match := _TERM.fullmatch(part):
            terms.append((match[2], int(match[1] or 1)))
        elif re.fullmatch(r"-?\d+", part):
            constant += int(part)
        else:
            raise TextError(who="index expression", needs="terms like 2*y, joined by ' + '", has=text[:80])
    return Linear(tuple(terms), constant)
