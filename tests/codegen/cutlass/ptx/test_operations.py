"""Each operation of single threads by itself, against Python's own integers and numpy's floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.cutlass.ptx.instructions.table import OPCODES
from tests.codegen.cutlass.ptx_text import run_text

Array: TypeAlias = NDArray[Any]

NUMPY = {
    "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
    "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
PREFIX = {2: "h", 4: "r", 8: "d"}
EDGES = (0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 1000, 0x7FFF, 0x8000, 0xFFFF, 0x1234_5678, 0x7FFF_FFFF, 
         0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF, 0x1_0000_0001, 0x7FFF_FFFF_FFFF_FFFF, 0x8000_0000_0000_0000,
         0xFFFF_FFFF_FFFF_FFFF)  # fmt: skip


def samples(kind: str, seed: int, count: int = 160) -> Array:
    """Edges and random numbers of a type."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY[kind])
    if dtype.kind == "f":
        plain = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        plain[:6] = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0)
        return plain.astype(dtype)
    bits = rng.integers(0, 1 << 63, count, np.uint64) >> rng.integers(0, 63, count).astype(np.uint64)
    bits[: len(EDGES)] = rng.permutation(np.array(EDGES, np.uint64))
    return bits.astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)


def execute(operation: str, result: str, kinds: tuple[str, ...], values: tuple[Array, ...]) -> Array:
    """`operation` with $0 for the result and $1, $2, ... for the operands, on each element."""
    count = values[0].size
    lines = ["setp.ge.u32 %p15, %r0, " + str(count) + ";", "@%p15 ret;"]
    for k, kind in enumerate(kinds, 1):
        size = np.dtype(NUMPY[kind]).itemsize
        register = f"%{PREFIX[size]}{20 + k}"
        lines += [f"mul.wide.u32 %d40, %r0, {size};", f"add.s64 %d40, %d40, %d{k - 1};"]
        lines += [f"ld.global.b{8 * size} {register}, [%d40];"]
        operation = operation.replace(f"${k}", register)
    size = np.dtype(NUMPY[result]).itemsize
    target = f"%{PREFIX[size]}20"
    lines += [operation.replace("$0", target), f"mul.wide.u32 %d40, %r0, {size};"]
    lines += [f"add.s64 %d40, %d40, %d{len(kinds)};", f"st.global.b{8 * size} [%d40], {target};"]
    done, _ = run_text(
        "\n".join(lines), values, (np.dtype(NUMPY[result]).str, (count,)), threads=96, blocks=-(-count // 96)
    )
    return done


def wrapped(value: int, kind: str) -> Any:
    """The low bits of a Python integer, as a number of `kind`."""
    dtype = np.dtype(NUMPY[kind])
    return np.array([value & (1 << 8 * dtype.itemsize) - 1], f"u{dtype.itemsize}").view(dtype)[0]


def bits_of(value: int, kind: str) -> int:
    return value & (1 << 8 * np.dtype(NUMPY[kind]).itemsize) - 1


def truncated(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


def field(a: int, start: int, length: int, kind: str) -> int:
    """bfe in words of the manual."""
    width = 8 * np.dtype(NUMPY[kind]).itemsize
    start, length = start & 255, length & 255
    signed = kind[0] == "s"
    raw = bits_of(a, kind)
    sign = 0 if not signed or length == 0 else raw >> min(start + length - 1, width - 1) & 1
    found = 0
    for k in range(width):
        bit = raw >> start + k & 1 if k < length and start + k < width else sign
        found |= bit << k
    return found


def inserted(a: int, b: int, start: int, length: int, width: int) -> int:
    start, length = start & 255, length & 255
    for k in range(length):
        if start + k < width:
            b = b & ~(1 << start + k) | (a >> k & 1) << start + k
    return b


def extended(bits: int, width: int, kind: str) -> int:
    """The low `width` bits as a number of that sign."""
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind[0] == "s" and bits >> width - 1 else bits


def dot(a: int, b: int, width: int, first: int, kind_a: str, kind_b: str) -> int:
    """The numbers of `width` bits in `a` by as many neighbouring bytes of `b`, from bit `first` on, added."""
    numbers = range(32 // width)
    return sum(extended(a >> width * k, width, kind_a) * extended(b >> first + 8 * k, 8, kind_b) for k in numbers)


def permuted(a: int, b: int, selector: int) -> int:
    both = (a | b << 32).to_bytes(8, "little")
    found = 0
    for k in range(4):
        chosen = selector >> 4 * k & 15
        byte = both[chosen & 7]
        found |= ((255 if byte & 128 else 0) if chosen & 8 else byte) << 8 * k
    return found


def shifted(a: int, count: int, kind: str) -> int:
    width = 8 * np.dtype(NUMPY[kind]).itemsize
    return a >> min(count, width)


Rule = Callable[..., int]

WHOLE: list[tuple[str, str, str, Rule]] = []
for _kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
    _size = 8 * np.dtype(NUMPY[_kind]).itemsize
    WHOLE += [
        (f"add.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a + b),
        (f"sub.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a - b),
        (f"mul.lo.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a * b),
        (f"mul.hi.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b, w=_size: a * b >> w),
        (f"mad.lo.{_kind} $0, $1, $2, $3;", _kind, f"{_kind} {_kind} {_kind}", lambda a, b, c: a * b + c),
        (f"div.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", truncated),
        (f"rem.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a - b * truncated(a, b) if b else 0),
        (f"min.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", min),
        (f"max.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", max),
        (f"shr.{_kind} $0, $1, $2;", _kind, f"{_kind} u32", lambda a, b, k=_kind: shifted(a, b, k)),
        (f"setp.lt.{_kind} %p1, $1, $2; selp.{_kind} $0, $1, $2, %p1;", _kind, f"{_kind} {_kind}", min),
        (f"setp.ge.{_kind} %p1|%p2, $1, $2; selp.{_kind} $0, $1, $2, %p2;", _kind, f"{_kind} {_kind}", min),
    ]  # fmt: skip
for _kind in ("u32", "s32", "u64", "s64"):
    _width = 8 * np.dtype(NUMPY[_kind]).itemsize
    WHOLE += [
        (
            f"mad.hi.{_kind} $0, $1, $2, $3;",
            _kind,
            f"{_kind} {_kind} {_kind}",
            lambda a, b, c, w=_width: (a * b >> w) + c,
        ),
        (f"bfe.{_kind} $0, $1, $2, $3;", _kind, f"{_kind} u32 u32", lambda a, b, c, k=_kind: field(a, b, c, k)),
        (
            f"bfind.shiftamt.{_kind} $0, $1;",
            "u32",
            _kind,
            lambda a, w=_width: w - (a if a >= 0 else ~a).bit_length() if a not in (0, -1) else -1,
        ),
        (f"sad.{_kind} $0, $1, $2, $3;", _kind, f"{_kind} {_kind} {_kind}", lambda a, b, c: abs(a - b) + c),
        (f"bfind.{_kind} $0, $1;", "u32", _kind, lambda a: (a if a >= 0 else ~a).bit_length() - 1),
    ]
for _kind in ("s16", "s32", "s64"):
    WHOLE += [
        (f"neg.{_kind} $0, $1;", _kind, _kind, lambda a: -a),
        (f"abs.{_kind} $0, $1;", _kind, _kind, abs),
    ]
for _kind in ("b16", "b32", "b64"):
    _width = 8 * np.dtype(NUMPY[_kind]).itemsize
    WHOLE += [
        (f"and.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a & b),
        (f"or.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a | b),
        (f"xor.{_kind} $0, $1, $2;", _kind, f"{_kind} {_kind}", lambda a, b: a ^ b),
        (f"not.{_kind} $0, $1;", _kind, _kind, lambda a: ~a),
        (f"cnot.{_kind} $0, $1;", _kind, _kind, lambda a: int(a == 0)),
        (f"shl.{_kind} $0, $1, $2;", _kind, f"{_kind} u32", lambda a, b, w=_width: a << min(b, w)),
        (f"shl.{_kind} $0, $1, 5;", _kind, _kind, lambda a: a << 5),
        (f"shl.{_kind} $0, $1, 70;", _kind, _kind, lambda a: 0 * a),
        (f"mov.{_kind} $0, $1;", _kind, _kind, lambda a: a),
    ]
for _kind in ("b32", "b64"):
    _width = 8 * np.dtype(NUMPY[_kind]).itemsize
    WHOLE += [
        (
            f"bfi.{_kind} $0, $1, $2, $3, $4;",
            _kind,
            f"{_kind} {_kind} u32 u32",
            lambda a, b, c, d, w=_width: inserted(a, b, c, d, w),
        ),
        (f"popc.{_kind} $0, $1;", "u32", _kind, lambda a: a.bit_count()),
        (f"clz.{_kind} $0, $1;", "u32", _kind, lambda a, w=_width: w - a.bit_length()),
        (f"brev.{_kind} $0, $1;", _kind, _kind, lambda a, w=_width: int(f"{a:0{w}b}"[::-1], 2)),
    ]
WHOLE += [
    ("add.sat.s32 $0, $1, $2;", "s32", "s32 s32", lambda a, b: max(-(1 << 31), min(a + b, (1 << 31) - 1))),
    ("mul.wide.u16 $0, $1, $2;", "u32", "u16 u16", lambda a, b: a * b),
    ("mul.wide.s16 $0, $1, $2;", "s32", "s16 s16", lambda a, b: a * b),
    ("mul.wide.u32 $0, $1, $2;", "u64", "u32 u32", lambda a, b: a * b),
    ("mul.wide.s32 $0, $1, $2;", "s64", "s32 s32", lambda a, b: a * b),
    ("mad.wide.s32 $0, $1, $2, $3;", "s64", "s32 s32 s64", lambda a, b, c: a * b + c),
    ("mad.wide.u32 $0, $1, $2, $3;", "u64", "u32 u32 u64", lambda a, b, c: a * b + c),
    ("shf.l.wrap.b32 $0, $1, $2, $3;", "u32", "u32 u32 u32", lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32),
    ("shf.r.wrap.b32 $0, $1, $2, $3;", "u32", "u32 u32 u32", lambda a, b, c: (b << 32 | a) >> (c & 31)),
    ("shf.l.clamp.b32 $0, $1, $2, $3;", "u32", "u32 u32 u32", lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32),
    ("shf.r.clamp.b32 $0, $1, $2, $3;", "u32", "u32 u32 u32", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("prmt.b32 $0, $1, $2, $3;", "u32", "u32 u32 u32", permuted),
    ("prmt.b32 $0, $1, $2, 0x7531;", "u32", "u32 u32", lambda a, b: permuted(a, b, 0x7531)),
    *((f"{opcode}.{a}.{b} $0, $1, $2, $3;", "u32", f"{a} {b} {'s32' if 's' in a + b else 'u32'}",
       lambda x, y, c, parts=parts, signs=(a, b): c + dot(x, y, *parts, *signs))
      for opcode, parts in (("dp2a.lo", (16, 0)), ("dp2a.hi", (16, 16)), ("dp4a", (8, 0)))
      for a in ("u32", "s32") for b in ("u32", "s32")),
    ("lop3.b32 $0, $1, $2, $3, 0xCA;", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | (~a & c)),
    ("lop3.b32 $0, $1, $2, $3, 0x96;", "u32", "u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    ("setp.eq.and.s32 %p3, $1, 1, !%p15; selp.b32 $0, 5, 9, %p3;", "s32", "s32", lambda a: 5 if a == 1 else 9),
    (("setp.hi.u32 %p3, $1, $2; setp.ls.or.u32 %p3, $1, 7, %p3; selp.u32 $0, 1, 0, %p3;"), "u32", "u32 u32",
     lambda a, b: int(a > b or a <= 7)),
    ("setp.ne.xor.s32 %p3|%p4, $1, $2, %p15; selp.u32 $0, 1, 0, %p4;", "u32", "s32 s32", lambda a, b: int(a == b)),
    ("mov.b32 {%h1, %h2}, $1; mov.b32 $0, {%h2, %h1};", "u32", "u32", lambda a: a >> 16 | a << 16),
    ("mov.b64 {%r30, %r31}, $1; mov.b64 $0, {%r31, %r30};", "u64", "u64", lambda a: a >> 32 | a << 32),
    ("mov.b64 {%h1, %h2, %h3, %h4}, $1; mov.b64 $0, {%h4, %h2, %h3, %h1};", "u64", "u64",
     lambda a: (a & 0xFFFF) << 48 | (a >> 32 & 0xFFFF) << 32 | (a >> 16 & 0xFFFF) << 16 | a >> 48),
    ("cvt.u32.u16 $0, $1;", "u32", "u16", lambda a: a),
    ("cvt.s32.s16 $0, $1;", "s32", "s16", lambda a: a),
    ("cvt.s64.s32 $0, $1;", "s64", "s32", lambda a: a),
    ("cvt.u64.u32 $0, $1;", "u64", "u32", lambda a: a),
    ("cvt.u32.u64 $0, $1;", "u32", "u64", lambda a: a),
    ("cvt.u16.u32 $0, $1;", "u16", "u32", lambda a: a),
    ("cvt.s16.s8 $0, $1;", "s16", "s16", lambda a: (a & 255) - (256 if a & 128 else 0)),
    ("cvt.u32.u8 $0, $1;", "u32", "u32", lambda a: a & 255),
    ("cvt.sat.s16.s32 $0, $1;", "s16", "s32", lambda a: max(-(1 << 15), min(a, (1 << 15) - 1))),
    ("cvt.sat.u32.s32 $0, $1;", "u32", "s32", lambda a: max(0, a)),
    ("add.s32 $0, $1, %tid.x; sub.s32 $0, $0, %tid.x;", "s32", "s32", lambda a: a),
    ("@%p15 add.s32 $1, $1, 1; @!%p15 add.s32 $1, $1, 2; mov.u32 $0, $1;", "s32", "s32", lambda a: a + 2),
    (("not.pred %p1, %p15; and.pred %p2, %p1, %p15; or.pred %p3, %p1, %p2; xor.pred %p3, %p3, "
"%p2; selp.s32 $0, $1, 0, %p3;"), "s32", "s32", lambda a: a),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "result", "kinds", "rule"), WHOLE, ids=[row[0] for row in WHOLE])
def test_integers(operation: str, result: str, kinds: str, rule: Rule) -> None:
    names = tuple(kinds.split())
    values = tuple(samples(kind, k) for k, kind in enumerate(names))
    if operation.startswith(("div", "rem")):
        values = (values[0], np.where(values[1] == 0, 3, values[1]).astype(values[1].dtype))
    found = execute(operation, result, names, values)
    expected = np.array([wrapped(rule(*map(int, row)), result) for row in zip(*values, strict=True)])
    np.testing.assert_array_equal(found, expected)


def _nearest(value: Array) -> Array:
    return value


FLOATS: list[tuple[str, str, str, Callable[..., Any], float]] = [
    ("add.f32 $0, $1, $2;", "f32", "f32 f32", np.add, 0),
    ("sub.rn.ftz.f32 $0, $1, $2;", "f32", "f32 f32", np.subtract, 0),
    ("mul.f32 $0, $1, $2;", "f32", "f32 f32", np.multiply, 0),
    ("fma.rn.f32 $0, $1, $2, $3;", "f32", "f32 f32 f32", lambda a, b, c: a * b + c, 2**-24),
    ("fma.rn.f64 $0, $1, $2, $3;", "f64", "f64 f64 f64", lambda a, b, c: a * b + c, 2**-50),
    ("fma.rn.f16 $0, $1, $2, $3;", "f16", "f16 f16 f16", lambda a, b, c: a * b + c, 2**-11),
    ("div.rn.f32 $0, $1, $2;", "f32", "f32 f32", lambda a, b: np.divide(a, b), 2**-24),
    ("div.approx.f32 $0, $1, $2;", "f32", "f32 f32", lambda a, b: np.divide(a, b), 2**-23),
    ("neg.f32 $0, $1;", "f32", "f32", np.negative, 0),
    ("abs.f32 $0, $1;", "f32", "f32", np.abs, 0),
    ("min.f32 $0, $1, $2;", "f32", "f32 f32", np.fmin, 0),
    ("max.f32 $0, $1, $2;", "f32", "f32 f32", np.fmax, 0),
    ("max.NaN.f32 $0, $1, 0f00000000;", "f32", "f32", lambda a: np.maximum(a, 0), 0),
    ("add.sat.f32 $0, $1, $2;", "f32", "f32 f32", lambda a, b: np.clip(a + b, 0, 1), 2**-24),
    ("rcp.rn.f32 $0, $1;", "f32", "f32", lambda a: 1 / a, 2**-23),
    ("sqrt.rn.f32 $0, $1;", "f32", "f32", np.sqrt, 2**-24),
    ("rsqrt.approx.ftz.f32 $0, $1;", "f32", "f32", lambda a: 1 / np.sqrt(a), 2**-22),
    ("ex2.approx.f32 $0, $1;", "f32", "f32", np.exp2, 2**-22),
    ("lg2.approx.f32 $0, $1;", "f32", "f32", np.log2, 2**-21),
    ("sin.approx.f32 $0, $1;", "f32", "f32", np.sin, 2**-20),
    ("cos.approx.f32 $0, $1;", "f32", "f32", np.cos, 2**-20),
    ("tanh.approx.f32 $0, $1;", "f32", "f32", np.tanh, 2**-20),
    ("copysign.f32 $0, $1, $2;", "f32", "f32 f32", lambda a, b: np.copysign(b, a), 0),
    ("add.f16 $0, $1, $2;", "f16", "f16 f16", np.add, 2**-11),
    ("mul.f16 $0, $1, $2;", "f16", "f16 f16", np.multiply, 2**-11),
    ("cvt.f32.f16 $0, $1;", "f32", "f16", _nearest, 0),
    ("cvt.rn.f16.f32 $0, $1;", "f16", "f32", _nearest, 2**-11),
    ("cvt.rn.f32.f64 $0, $1;", "f32", "f64", _nearest, 2**-24),
    ("cvt.f64.f32 $0, $1;", "f64", "f32", _nearest, 0),
    ("cvt.rn.f32.s32 $0, $1;", "f32", "s32", _nearest, 2**-24),
    ("cvt.rn.f32.u64 $0, $1;", "f32", "u64", _nearest, 2**-24),
    ("cvt.rzi.s32.f32 $0, $1;", "s32", "f32", np.trunc, 0),
    ("cvt.rni.s32.f32 $0, $1;", "s32", "f32", np.rint, 0),
    ("cvt.rmi.f32.f32 $0, $1;", "f32", "f32", np.floor, 0),
    ("cvt.rpi.s64.f64 $0, $1;", "s64", "f64", np.ceil, 0),
    ("cvt.rzi.u32.f32 $0, $1;", "u32", "f32", lambda a: np.maximum(np.trunc(a), 0), 0),
    ("cvt.sat.f32.f32 $0, $1;", "f32", "f32", lambda a: np.clip(a, 0, 1), 0),
    ("setp.gtu.f32 %p1, $1, $2; selp.f32 $0, $1, $2, %p1;", "f32", "f32 f32", np.maximum, 0),
    ("setp.num.f32 %p1, $1, $2; selp.f32 $0, $1, $2, %p1;", "f32", "f32 f32", lambda a, b: a + 0 * b, 0),
]


@pytest.mark.parametrize(("operation", "result", "kinds", "rule", "relative"), FLOATS, ids=[row[0] for row in FLOATS])
def test_floats(operation: str, result: str, kinds: str, rule: Callable[..., Any], relative: float) -> None:
    names = tuple(kinds.split())
    values = tuple(samples(kind, 10 + k) for k, kind in enumerate(names))
    found = execute(operation, result, names, values).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.asarray(rule(*(value.astype(np.float64) for value in values)))
        if relative == 0:
            exact = exact.astype(NUMPY[result]).astype(np.float64)
    same = (found == exact) | (np.isnan(found) & np.isnan(exact))
    finite = np.isfinite(exact) & np.isfinite(found)
    distance = np.abs(np.where(finite, found, np.inf) - np.where(finite, exact, 0))
    tiny = 2.0**-25 if result == "f16" else 2.0**-140
    near = distance <= relative * np.abs(np.where(finite, exact, 0)) + (tiny if relative else 0)
    too_large = np.isinf(found) & (np.abs(exact) >= (65520 if result == "f16" else 2.0**128))
    assert (same | near | too_large).all()


def test_pairs_of_halves() -> None:
    a, b, c = (samples("f16", k, 128) for k in range(3))
    packed = [value.view(np.uint32) for value in (a, b, c)]
    found = execute("fma.rn.f16x2 $0, $1, $2, $3;", "u32", ("u32",) * 3, tuple(packed)).view(np.float16)
    with np.errstate(all="ignore"):
        exact = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(found, exact)
    found = execute("max.NaN.f16x2 $0, $1, $2;", "u32", ("u32",) * 2, (packed[0], packed[1])).view(np.float16)
    np.testing.assert_array_equal(found, np.maximum(a, b))


def test_two_floats_become_a_pair_the_first_one_above() -> None:
    a, b = samples("f32", 1), samples("f32", 2)
    found = execute("cvt.rn.f16x2.f32 $0, $1, $2;", "u32", ("f32", "f32"), (a, b)).view(np.float16).reshape(-1, 2)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.stack([b, a], axis=1).astype(np.float16))
    found = execute("cvt.rn.relu.f16x2.f32 $0, $1, $2;", "u32", ("f32", "f32"), (a, b)).view(np.float16).reshape(-1, 2)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.maximum(np.stack([b, a], axis=1).astype(np.float16), 0))


def test_infinities_and_nan_become_integers_as_on_the_hardware() -> None:
    values = np.array([math.inf, -math.inf, math.nan, 3e9, -3e9, 1.5, -1.5, 2.5], np.float32)
    found = execute("cvt.rni.s32.f32 $0, $1;", "s32", ("f32",), (values,))
    np.testing.assert_array_equal(found, [2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 2, -2, 2])


def test_comparisons_with_nan() -> None:
    values = np.array([1.0, math.nan, 2.0, math.nan], np.float32)
    other = np.array([1.0, 1.0, 1.0, math.nan], np.float32)
    for word, expected in {
        "eq": "1000",
        "ne": "0010",
        "neu": "0111",
        "lt": "0000",
        "ltu": "0101",
        "nan": "0101",
        "geu": "1111",
    }.items():
        text = f"setp.{word}.f32 %p1, $1, $2; selp.u32 $0, 1, 0, %p1;"
        found = execute(text, "u32", ("f32", "f32"), (values, other))
        assert "".join(map(str, found)) == expected, word


SETS = {
    "set.gt.u32.f32 $0, $1, $2;": (0, 0xFFFF_FFFF, 0, 0),
    "set.gt.f32.f32 $0, $1, $2;": (0, 0x3F80_0000, 0, 0),
    "set.neu.s32.s32 $0, $1, $2;": (0, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF),
    "testp.finite.f32 %p1, $1; selp.u32 $0, 1, 0, %p1;": (1, 1, 0, 0),
    "testp.notanumber.f32 %p1, $1; selp.u32 $0, 1, 0, %p1;": (0, 0, 1, 0),
    "testp.number.f32 %p1, $1; selp.u32 $0, 1, 0, %p1;": (1, 1, 0, 1),
    "testp.infinite.f32 %p1, $1; selp.u32 $0, 1, 0, %p1;": (0, 0, 0, 1),
    "testp.normal.f32 %p1, $1; selp.u32 $0, 1, 0, %p1;": (1, 1, 0, 0),
    "testp.subnormal.f32 %p1, $2; selp.u32 $0, 1, 0, %p1;": (0, 1, 0, 0),
}


@pytest.mark.parametrize("text", SETS)
def test_answers_as_numbers(text: str) -> None:
    values = np.array([1.0, 2.0, math.nan, -math.inf], np.float32)
    other = np.array([1.0, 1e-40, 1.0, 0.0], np.float32)
    np.testing.assert_array_equal(execute(text, "u32", ("f32", "f32"), (values, other)), SETS[text])


def test_answers_of_pairs() -> None:
    a = np.array([1.0, 2.0, math.nan, 5.0], np.float16)
    b = np.array([1.0, 1.0, 1.0, 7.0], np.float16)
    packed = (a.view(np.uint32), b.view(np.uint32))
    found = execute("set.gt.f16x2.f16x2 $0, $1, $2;", "u32", ("u32", "u32"), packed)
    np.testing.assert_array_equal(found.view(np.float16), [0, 1, 0, 0])
    found = execute("set.ltu.u32.f16x2 $0, $1, $2;", "u32", ("u32", "u32"), packed)
    np.testing.assert_array_equal(found, [0, 0xFFFF_FFFF])


def directed(exact: Fraction, way: str, dtype: type[np.floating[Any]]) -> float:
    """The number next to `exact` on the side that `way` says."""
    near = dtype(float(exact))
    while Fraction(float(near)) > exact:
        near = np.nextafter(near, dtype(-math.inf))
    while Fraction(float(np.nextafter(near, dtype(math.inf)))) <= exact:
        near = np.nextafter(near, dtype(math.inf))
    upwards = way == "rp" or (way == "rz" and exact < 0)
    return float(np.nextafter(near, dtype(math.inf)) if upwards and Fraction(float(near)) != exact else near)


@pytest.mark.parametrize("way", ["rz", "rm", "rp"])
@pytest.mark.parametrize("head", ["add", "sub", "mul", "fma"])
def test_directed_rounding(head: str, way: str) -> None:
    """Also where float64 does not hold the sum: numbers of very different size, and just beside a middle."""
    a, b, c = (samples("f32", 20 + k) for k in range(3))
    a[6:12] = (1.0, 1.0, -1.0, 1e30, -1e30, 3.0)
    b[6:12] = (2.0**-60, -(2.0**-60), 2.0**-60, 1e-30, 1e-30, 2.0**-24)
    c[6:12] = (2.0**-24, -(2.0**-24), 1e-38, 1.0, 2.0**24, -1e-20)
    rules: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
        "add": lambda x, y, _: x + y,
        "sub": lambda x, y, _: x - y,
        "mul": lambda x, y, _: x * y,
        "fma": lambda x, y, z: x * y + z,
    }
    kinds = ("f32",) * (3 if head == "fma" else 2)
    operands = ", ".join(f"${k}" for k in range(1, 1 + len(kinds)))
    found = execute(f"{head}.{way}.f32 $0, {operands};", "f32", kinds, (a, b, c)[: len(kinds)])
    for x, y, z, value in zip(a, b, c, found, strict=True):
        assert value == directed(
            rules[head](Fraction(float(x)), Fraction(float(y)), Fraction(float(z))), way, np.float32
        )


@pytest.mark.parametrize("way", ["rz", "rm", "rp"])
def test_directed_conversion(way: str) -> None:
    values = np.clip(samples("f32", 30), -60000, 60000).astype(np.float32)
    found = execute(f"cvt.{way}.f16.f32 $0, $1;", "f16", ("f32",), (values,))
    assert [float(v) for v in found] == [directed(Fraction(float(v)), way, np.float16) for v in values]
    whole = samples("s32", 31)
    found = execute(f"cvt.{way}.f32.s32 $0, $1;", "f32", ("s32",), (whole,))
    assert [float(v) for v in found] == [directed(Fraction(int(v)), way, np.float32) for v in whole]


def test_every_opcode_of_single_threads_is_tested_here() -> None:
    written = " ".join([*(row[0] for row in WHOLE), *(row[0] for row in FLOATS), *SETS])
    single = {"add", "sub", "mul", "mad", "fma", "div", "rem", "neg", "abs", "min", "max", "and", "or", "xor", "not",
              "cnot", "shl", "shr", "shf", "bfe", "bfi", "bfind", "sad", "brev", "popc", "clz", "prmt", "lop3",
              "dp2a", "dp4a", "rcp", "sqrt", "rsqrt",
              "sin", "cos", "lg2", "ex2", "tanh", "copysign", "setp", "set", "testp", "selp", "mov", "cvt"}  # fmt: skip
    assert {head for head in single if f"{head}." in written} == single
    others = {"cvta", "ld", "ldu", "st", "cp", "prefetch", "prefetchu", "shfl", "vote", "redux", "activemask", "elect",
              "ldmatrix", "stmatrix", "mma", "wgmma", "fence", "membar", "bar", "barrier", "trap", "brkpt", "nanosleep",
              "griddepcontrol", "setmaxnreg", "createpolicy", "mbarrier", "mapa"}  # fmt: skip
    assert single | others == set(OPCODES)
