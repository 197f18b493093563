"""Integers on the device, exact: drawn graphs before and after the layers, numbers at the ends of 32 bits, refusals."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto

from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

AT_O0 = CompileOptions(O0())
INT64 = TensorProto.INT64
LEAST, MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max


def drawn_step(draw: Random, b: ModelBuilder, x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """One more operator on integers, and the shape of its result."""
    last = draw.randrange(len(shape))
    match draw.choice(("binary", "where", "move", "sum", "reduce", "join", "take", "mod")):
        case "binary":
            kind = draw.choice(("Add", "Sub", "Mul", "Max", "Min", "Div"))
            other = b.constant(draw.choice((3, b.random.integers(1, 9, shape[-1:]))), dtype=np.int64)
            return b.node(kind, x, other), shape
        case "where":
            compared = b.node(draw.choice(("Less", "Equal", "GreaterOrEqual")), x, b.constant(2, dtype=np.int64))
            return b.node("Where", b.node("Not", compared), x, b.node("Neg", b.node("Abs", x))), shape
        case "move":
            perm = draw.sample(range(len(shape)), len(shape))
            return b.node("Transpose", x, perm=perm), tuple(shape[axis] for axis in perm)
        case "sum":
            flags = {"exclusive": draw.randint(0, 1), "reverse": draw.randint(0, 1)}
            return b.node("CumSum", x, b.constant(last, dtype=np.int64), attributes=flags), shape
        case "reduce":
            kind = draw.choice(("ReduceSum", "ReduceMax", "ReduceMin"))
            return b.node(kind, x, b.integers(last)), (*shape[:last], 1, *shape[last + 1 :])
        case "join":
            return b.node("Concat", x, b.node("Neg", x), axis=last), tuple(
                2 * extent if axis == last else extent for axis, extent in enumerate(shape)
            )
        case "take":
            index = b.node("Mod", x, b.constant(5, dtype=np.int64))
            return b.node("Gather", b.constant(b.random.integers(-9, 9, 5), dtype=np.int64), index), shape
    return b.node("Mod", x, b.constant(draw.choice((-4, 7)), dtype=np.int64)), shape


def check_drawn(seed: int, folder: Path) -> None:
    """Integers that leave, indices of lookups, numbers and truth values that layers read, and choices by numbers."""
    draw, b = Random(f"words {seed}"), ModelBuilder(seed)
    shape: tuple[int, ...] = tuple(draw.randint(2, 7) for _ in range(draw.randint(1, 3)))
    x = b.input(*shape, name="ids", dtype=INT64)
    for _ in range(draw.randint(2, 5)):
        x, shape = drawn_step(draw, b, x, shape)
    rows = b.node("Gather", b.weights(6, 8), b.node("Mod", x, b.constant(6, dtype=np.int64)))
    kept = b.node("Cast", b.node("Greater", x, b.constant(1, dtype=np.int64)), to=TensorProto.FLOAT)
    y = b.node("Mul", rows, b.node("Unsqueeze", kept, b.integers(-1)))
    chosen = b.node("ArgMax", y, attributes={"axis": -1, "keepdims": 0, "select_last_index": draw.randint(0, 1)})
    path = folder / "small.onnx"
    model = b.model(y)
    for name in (x, chosen):
        model.graph.output.add(name=name).type.tensor_type.elem_type = INT64
    path.write_bytes(model.SerializeToString())
    assert verify_model(path, ("a100", "h100")[seed % 2], AT_O0, VerifyOptions(samples=128)).failures == ()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_graphs(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_graphs(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


def test_integers_wrap_around_as_in_the_file(tmp_path: Path) -> None:
    ends = np.array([LEAST, LEAST + 1, -7, -1, 0, 1, 6, MOST - 1, MOST], np.int32)
    one, other = (each.reshape(-1) for each in np.meshgrid(ends, ends[ends != 0]))
    some = (one != LEAST) | (other != -1)  # the quotient of these is a fault of onnxruntime
    one, other = one[some], other[some]
    b = ModelBuilder()
    a, c = (b.input(one.size, name=name, dtype=TensorProto.INT32) for name in "ac")
    outputs = [b.node(kind, a, c) for kind in ("Add", "Sub", "Mul", "Max", "Min", "Div", "Mod")]
    outputs += [b.node("Neg", a), b.node("Abs", a), b.node("Mod", a, c, fmod=1)]
    path = tmp_path / "small.onnx"
    path.write_bytes(b.model(*outputs, dtype=TensorProto.INT32).SerializeToString())
    np.savez(tmp_path / "ends.npz", a=one, c=other)
    report = verify_model(path, "a100", AT_O0, VerifyOptions(feeds=(tmp_path / "ends.npz",)))
    assert report.failures == ()


def test_a_division_by_zero_is_minus_one(tmp_path: Path) -> None:
    """As on a machine of RISC-V, and never a fault."""
    b = ModelBuilder()
    a, c = (b.input(1, 4, name=name, dtype=TensorProto.INT32) for name in "ac")
    path = tmp_path / "small.onnx"
    path.write_bytes(b.model(b.node("Div", a, c), dtype=TensorProto.INT32).SerializeToString())
    artifact = compile_model(path, "a100", AT_O0).artifact
    given = {"a": np.array([[7, LEAST, -7, LEAST]], np.int32), "c": np.array([[0, -1, 2, 0]], np.int32)}
    (found,) = artifact.run(given).values()
    assert found.tolist() == [[-1, LEAST, -3, -1]]


def test_numbers_become_integers_and_back(tmp_path: Path) -> None:
    """Cut off, in the range of fp16; integers beyond it become its largest number."""
    b = ModelBuilder()
    x, ids = b.input(2, 4, name="x"), b.input(2, 4, name="ids", dtype=TensorProto.INT32)
    path = tmp_path / "small.onnx"
    back, whole = b.node("Cast", ids, to=TensorProto.FLOAT), b.node("Cast", x, to=INT64)
    model = b.model(back)
    model.graph.output.add(name=whole).type.tensor_type.elem_type = INT64
    path.write_bytes(model.SerializeToString())
    artifact = compile_model(path, "a100", AT_O0).artifact
    numbers: npt.NDArray[np.float32] = np.array([[1.75, -1.75, 0.25, 60000], [-0.5, 3, 2.5, -1e-3]], np.float32)
    integers = np.array([[1, -2, 70000, LEAST], [2049, 2051, 0, MOST]], np.int32)
    found = artifact.run({"x": numbers, "ids": integers})
    np.testing.assert_array_equal(found[whole], np.trunc(numbers.astype(np.float16).astype(np.float64)))
    np.testing.assert_array_equal(found[back], np.clip(integers, -65504, 65504).astype(np.float16))
