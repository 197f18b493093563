"""What transformers add to a quantised network: products of two computed values, norms, functions, lookups by integers;
each bit for bit as emulated, and as the file has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from codegen.gemmini.kernels import float_products, functions, lines, products
from codegen.gemmini.streams.streams import Item, looped
from dsa_sched.artifact.runner import execute
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0, Auto
from tests.codegen.gemmini.quantised_networks import STEP, WEIGHT_STEP, ZERO, QuantisedNetwork
from tests.integer_models import Array, compiled, model_of, node, reference, run_whole, table
from tests.small_models import save

FLOAT, INT64 = (int(getattr(onnx.TensorProto, name)) for name in ("FLOAT", "INT64"))


def failures(model: onnx.ModelProto, folder: Path, chip: str = "gemmini") -> tuple[str, ...]:
    path = save(model, folder / "net.onnx")
    report = verify_model(path, chip, CompileOptions(Auto()), VerifyOptions(samples=256))
    assert all(layer.samples > 0 for layer in report.layers)
    return report.failures


def self_product(*shape: int) -> onnx.ModelProto:
    """x times itself, turned: many matrices times as many others."""
    net = QuantisedNetwork(shape)
    x = net.rounded("x", STEP)
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = net.node("Transpose", x, perm=axes)
    return net.model(net.rounded(net.node("MatMul", x, turned), 0.05))


def square() -> onnx.ModelProto:
    """x times itself."""
    net = QuantisedNetwork((2, 18, 18))
    x = net.rounded("x", STEP)
    return net.model(net.rounded(net.node("MatMul", x, x), 0.05))


def repeated_factor(matrices: int, each: int, extents: tuple[int, int, int]) -> onnx.ModelProto:
    """[matrices, each, m, k] times [1, each, k, n]: the second factor is the same for all of the first axis."""
    rows, depth, columns = extents
    net = QuantisedNetwork((matrices, each, rows, depth))
    x = net.rounded("x", STEP)
    first = net.node("Slice", x, *(net.constant(np.array(part)) for part in ([0, 0], [1, 1], [0, 2])))
    second = net.node("Transpose", net.rounded(net.node("MatMul", first, net.weights((depth, columns), WEIGHT_STEP,
                      False, 1)), 0.05), perm=[0, 1, 3, 2])  # fmt: skip
    wide = net.node("MatMul", second, net.weights((1, depth), WEIGHT_STEP, False, 1))
    second = net.rounded(net.node("Transpose", wide, perm=[0, 1, 3, 2]), 0.02)
    return net.model(net.rounded(net.node("MatMul", x, second), 0.05))


def attention(zero: np.int8 | np.uint8 = ZERO) -> onnx.ModelProto:
    """Two heads of six elements for seven rows. With a zero point that is not in the middle, products of two values
    are left in floating point."""
    net = QuantisedNetwork((2, 7, 12))
    x = net.rounded("x", STEP, zero)
    shape = net.constant(np.array([2, 7, 2, 6]))

    def head(perm: list[int], step: float) -> str:
        made = net.node("Reshape", net.node("MatMul", x, net.weights((12, 12), WEIGHT_STEP, False, 1)), shape)
        return net.rounded(net.node("Transpose", made, perm=perm), step, zero)

    q, k, v = (head([0, 2, 1, 3], 0.05), head([0, 2, 3, 1], 0.05), head([0, 2, 1, 3], 0.05))
    scores = net.node("Mul", net.node("MatMul", q, k), net.constant(np.float32(6**-0.5)))
    weights = net.rounded(net.node("Softmax", scores, axis=-1), 1 / 127, zero)
    joined = net.node("Transpose", net.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    return net.model(net.rounded(net.node("Reshape", joined, net.constant(np.array([2, 7, 12]))), 0.05))


def float_product(bias: bool) -> onnx.ModelProto:
    """A product by constants in floating point."""
    net = QuantisedNetwork((5, 9))
    weights = net.constant(net.random.normal(size=(9, 7)).astype(np.float32))
    operands = [net.rounded("x", STEP), weights]
    if bias:
        operands.append(net.constant(net.random.normal(size=7).astype(np.float32)))
    return net.model(net.node("Gemm" if bias else "MatMul", *operands))


def hidden_scores() -> onnx.ModelProto:
    """A choice by a constant, as masks of attention are."""
    net = QuantisedNetwork((3, 6, 6))
    before = net.constant(np.tril(np.ones((6, 6), np.bool_)))
    scores = net.node("Where", before, net.rounded("x", STEP), net.constant(np.float32(-3.4e38)))
    return net.model(net.rounded(net.node("Softmax", scores, axis=-1), 1 / 127))


def rows_again() -> onnx.ModelProto:
    """Rows at constant places, spread over a further axis."""
    net = QuantisedNetwork((7, 1, 9))
    rows = net.node("Gather", net.rounded("x", STEP), net.constant(np.array([3, 3, 5, 0, 2, 4, 6, 1])), axis=0)
    return net.model(net.node("Relu", net.node("Expand", rows, net.constant(np.array([8, 5, 9])))))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "matrices": lambda: self_product(2, 3, 5, 20),
    "one row each": lambda: self_product(3, 4, 1, 17),
    "wide matrices": lambda: self_product(2, 33, 40),
    "itself": square,
    "a matrix": lambda: self_product(18, 7),
    "a factor for all": lambda: repeated_factor(3, 2, (5, 18, 18)),
    "attention": attention,
    "attention in numbers": lambda: attention(np.uint8(100)),
    "numbers by constants": lambda: float_product(False),
    "numbers and a bias": lambda: float_product(True),
    "rows again": rows_again,
    "hidden scores": hidden_scores,
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.commit
def test_products_of_two_values(name: str, tmp_path: Path) -> None:
    assert failures(NETWORKS[name](), tmp_path) == ()


def test_an_array_of_another_width(tmp_path: Path) -> None:
    assert failures(self_product(2, 3, 35, 40), tmp_path, "gemmini_32") == ()


def instructions(model: onnx.ModelProto, folder: Path) -> list[str]:
    (part,) = compile_clusters(save(model, folder / "net.onnx"), "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    return [instr.opcode for instr in part.made.program.streams[0].instrs]


def test_where_products_are_computed(tmp_path: Path) -> None:
    """All five products of an attention on the array; three where two are left in floating point."""
    assert instructions(attention(), tmp_path).count("compute") == 5
    assert instructions(attention(np.uint8(100)), tmp_path).count("compute") == 3


def test_matrices_that_do_not_fit_are_cut(tmp_path: Path) -> None:
    model = self_product(2, 3, 72, 64)
    assert instructions(model, tmp_path).count("compute") > 1
    assert failures(model, tmp_path) == ()


def another_matrix(mnemonic: str, steps: Any, **fields: Any) -> Item:
    """Weights of the matrix before."""
    moved = {"b_row": fields["b_row"] + 7} if mnemonic == "preload" else {}
    return looped(mnemonic, steps, **{**fields, **moved})


def test_weights_of_another_matrix_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(products, "looped", another_matrix)
    path = save(self_product(2, 3, 5, 20), tmp_path / "net.onnx")
    done = CliRunner().invoke(cli, ["verify", str(path), "--chip", "gemmini"])
    assert done.exit_code in (1, 3)
    assert "FAILED" in done.stdout or "were not written" in done.stderr


ONE_NUMBER: dict[str, tuple[float, dict[str, Any]]] = {
    "Erf": (2.0, {}),
    "Tanh": (5.0, {}),
    "Exp": (30.0, {}),
    "Sigmoid": (40.0, {}),
    "Gelu": (3.0, {}),
    "HardSwish": (3.0, {}),
    "HardSigmoid": (3.0, {"alpha": 0.3, "beta": 0.4}),
    "LeakyRelu": (1.0, {"alpha": 0.07}),
    "Elu": (2.0, {"alpha": 1.5}),
    "Neg": (1.0, {}),
    "Abs": (1.0, {}),
}


def of_numbers(kind: str, factor: float, **attributes: Any) -> onnx.ModelProto:
    """A function of numbers that are `factor` times as large as the network's input."""
    net = QuantisedNetwork((3, 40))
    x = net.node("Mul", net.rounded("x", STEP), net.constant(np.float32(factor)))
    model = net.model(net.node(kind, x, **attributes))
    model.opset_import[0].version = 20
    return model


@pytest.mark.parametrize("kind", ONE_NUMBER)
def test_functions_of_numbers(kind: str, tmp_path: Path) -> None:
    factor, attributes = ONE_NUMBER[kind]
    assert failures(of_numbers(kind, factor, **attributes), tmp_path) == ()


def test_another_function_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The emulation has coefficients of its own."""
    end, above, below = functions.ERF
    monkeypatch.setattr(functions, "ERF", (end, (*above[:-1], above[-1] + 1e-6), below))
    assert any(failure.startswith("layer") for failure in failures(of_numbers("Erf", 2.0), tmp_path))


@pytest.mark.parametrize("kind", ["Sqrt", "Reciprocal"])
def test_functions_of_positive_numbers(kind: str, tmp_path: Path) -> None:
    net = QuantisedNetwork((3, 40))
    x = net.node("Abs", net.rounded("x", STEP))
    made = net.node(kind, net.node("Add", x, net.constant(np.float32(0.01))))
    assert failures(net.model(made), tmp_path) == ()


def line(
    kind: str, shape: tuple[int, ...], *vectors: int, axes: tuple[int, ...] = (), **attributes: Any
) -> onnx.ModelProto:
    """A norm with scale and bias, or a reduction along constant axes, of quantised values."""
    net = QuantisedNetwork(shape)
    operands = (
        [net.constant(net.random.normal(1, 0.1, vectors).astype(np.float32)) for _ in range(2)] if vectors else []
    )
    if axes and kind == "ReduceSum":
        operands = [net.constant(np.array(axes))]
    elif axes:
        attributes["axes"] = list(axes)
    return net.model(net.rounded(net.node(kind, net.rounded("x", STEP), *operands, **attributes), 0.05))


LINES: dict[str, Callable[[], onnx.ModelProto]] = {
    "rows": lambda: line("LayerNormalization", (3, 5, 24), 24),
    "last two axes": lambda: line("LayerNormalization", (3, 5, 7), 5, 7, axis=1, epsilon=1e-3),
    "channels": lambda: line("InstanceNormalization", (2, 6, 5, 4), 6),
    "means": lambda: line("ReduceMean", (3, 5, 7), axes=(1,)),
    "sums": lambda: line("ReduceSum", (3, 5, 7), axes=(0, 2)),
    "maxima": lambda: line("ReduceMax", (3, 5, 7), axes=(2,)),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(name: str, tmp_path: Path) -> None:
    assert failures(LINES[name](), tmp_path) == ()


MORE_THAN_FIND_ROOM: dict[str, Callable[[], onnx.ModelProto]] = {
    "norms": lambda: line("LayerNormalization", (2, 3, 5, 12), 12),
    "norms across": lambda: line("InstanceNormalization", (2, 6, 3, 4), 6),
    "sums": lambda: line("ReduceSum", (3, 5, 2, 9), axes=(2,)),
    "products": lambda: float_product(True),
    "products of two values": lambda: attention(np.uint8(100)),
}


@pytest.mark.parametrize("name", MORE_THAN_FIND_ROOM)
def test_more_elements_than_find_room_at_once(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (lines, float_products):
        monkeypatch.setattr(module, "ROOM", 30)
    assert failures(MORE_THAN_FIND_ROOM[name](), tmp_path) == ()


def test_norms_without_a_mean(tmp_path: Path) -> None:
    net = QuantisedNetwork((4, 24))
    x = net.rounded("x", STEP)
    power = net.node("ReduceMean", net.node("Mul", x, x), axes=[-1])
    root = net.node("Sqrt", net.node("Add", power, net.constant(np.float32(1e-5))))
    model = net.model(net.rounded(net.node("Div", x, root), 0.05))
    assert failures(model, tmp_path) == ()


WIDE = np.array([[5, -7, 2**31 - 1, -(2**31), 0], [1, -1, 40, 3, 3]], np.int32)
NARROW = np.array([[-5, 7, -1, 2, 0], [2**30, -1, 40, -3, 4]], np.int32)
INTEGERS = {
    **{kind: (kind, ("a", "b")) for kind in ("Add", "Sub", "Min", "Max", "Equal", "Less", "Greater")},
    **{kind: (kind, ("a", "b")) for kind in ("LessOrEqual", "GreaterOrEqual")},
    "Mul": ("Mul", ("few", "k")),
    **{kind: (kind[:3], ("few", "divisors")) for kind in ("Div", "Mod", "Mod toward zero")},
    "Neg": ("Neg", ("b",)),
    "Abs": ("Abs", ("b",)),
    "CumSum": ("CumSum", ("few", "one")),
    "ReduceSum": ("ReduceSum", ("few", "ones")),
    "ReduceMax": ("ReduceMax", ("a",)),
    "Concat": ("Concat", ("a", "b")),
    "GatherElements": ("GatherElements", ("k", "few")),
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_before_the_layers(kind: str, tmp_path: Path) -> None:
    """Functions of integers, and what they are as numbers."""
    operator, operands = INTEGERS[kind]
    attributes: dict[str, Any] = {"axis": 1} if operator in ("Concat", "GatherElements") else {}
    if kind == "CumSum":
        attributes = {"exclusive": 1, "reverse": 1}
    if kind == "Mod toward zero":
        attributes = {"fmod": 1}
    nodes = [node(operator, operands, "found", **attributes), node("Cast", ["found"], to=FLOAT)]
    arrays = {"a": WIDE, "b": NARROW, "few": np.array([[0, -2, 4, 1, 3], [-5, 2, 2, 0, 1]], np.int32)}
    divisors = np.array([[3, 3, -3, -3, 1], [-3, 3, -2, 5, -1]], np.int32)
    constants = {
        "divisors": divisors,
        "k": np.arange(10, dtype=np.int32).reshape(2, 5),
        "one": np.array(1),
        "ones": np.array([1]),
    }
    used = {name: array for name, array in arrays.items() if name in operands}
    model = model_of(nodes, used, {name: array for name, array in constants.items() if name in operands})
    found = run_whole(compiled(model, tmp_path, chip="gemmini"), used)
    np.testing.assert_array_equal(found["y"], reference(model, used)[0])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_places_of_the_best_integer(kind: str, last: int, axis: int, tmp_path: Path) -> None:
    nodes = [node(kind, ["a"], "c", axis=axis, select_last_index=last), node("Cast", ["c"], to=FLOAT)]
    used = {"a": np.array([[3, -(2**31), 3, 2**31 - 1, 0], [1, 3, 3, 2**31 - 1, 3]], np.int32)}
    model = model_of(nodes, used, {})
    found = run_whole(compiled(model, tmp_path, chip="gemmini"), used)
    np.testing.assert_array_equal(found["y"], reference(model, used)[0])


NUMBERS = np.array([[0.0, -0.0, 1e-40, -3.5, 2.5], [-np.inf, 7.99, 1e30, -1e-40, 2.5]], np.float32)


def integers_of(numbers: Array, folder: Path, *nodes: onnx.NodeProto) -> tuple[Array, Array]:
    """What a run and the reference make of numbers, as the only result."""
    given = {"x": numbers}
    model = model_of(nodes, given, {"half": np.array(2.5, np.float32)})
    model.graph.output[0].type.tensor_type.elem_type = (
        nodes[-1].attribute[0].i if nodes[-1].op_type == "Cast" else INT64
    )
    artifact = compiled(model, folder, chip="gemmini").artifact
    places = tuple((entry.address, entry.bytes) for entry in artifact.manifest.tensors if entry.kind != "probe")
    done = execute(artifact, artifact.encode(given), places, None, 1)
    return artifact.decode(done.memory)["y"], reference(model, given)[0]


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_places_of_the_best_number(kind: str, tmp_path: Path) -> None:
    found, expected = integers_of(NUMBERS, tmp_path, node(kind, ["x"], axis=1))
    np.testing.assert_array_equal(found, expected)


def test_truths_of_numbers_leave_the_network(tmp_path: Path) -> None:
    """A comparison with a constant is one of integers in the order of numbers."""
    greater = node("Greater", ["x", "half"], "more")
    found, expected = integers_of(NUMBERS, tmp_path, greater, node("Cast", ["more"], to=INT64))
    np.testing.assert_array_equal(found, expected)


def test_numbers_without_their_fractions(tmp_path: Path) -> None:
    numbers = np.array([[0.0, -0.9, 7.99, -8.5, 1e9]], np.float32)
    found, expected = integers_of(numbers, tmp_path, node("Cast", ["x"], to=INT64))
    np.testing.assert_array_equal(found, expected)


def test_choices_of_integers(tmp_path: Path) -> None:
    nodes = [node("Greater", ["a", "b"], "more"), node("Not", ["more"], "less"), node("Where", ["less", "a", "b"], "c"),
             node("Cast", ["c"], to=FLOAT)]  # fmt: skip
    used = {"a": WIDE, "b": NARROW}
    model = model_of(nodes, used, {})
    found = run_whole(compiled(model, tmp_path, chip="gemmini"), used)
    np.testing.assert_array_equal(found["y"], reference(model, used)[0])


def rows_of_a_table() -> onnx.ModelProto:
    return model_of([node("Gather", ["table", "rows"])], {"rows": np.zeros(6, np.int64)}, {"table": table(9, 4)})


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Numbers from the end too; those outside of the table are its ends, so that only the table is read."""
    artifact = compiled(rows_of_a_table(), tmp_path, chip="gemmini").artifact
    places = tuple((entry.address, entry.bytes) for entry in artifact.manifest.tensors if entry.kind != "probe")
    rows = np.array([3, -1, 8, -9, 9, -(2**31)])
    given = {address: rows.astype(np.int32).tobytes() for address in artifact.encode({"rows": np.zeros(6, np.int64)})}
    done = execute(artifact, given, places, None, 1)
    np.testing.assert_array_equal(artifact.decode(done.memory)["y"], table(9, 4)[[3, 8, 8, 0, 8, 0]])


def test_what_is_not_computed_is_said(tmp_path: Path) -> None:
    def refused(model: onnx.ModelProto) -> str:
        path = save(model, tmp_path / "net.onnx")
        done = CliRunner().invoke(cli, ["compile", str(path), "--chip", "gemmini", "-o", str(tmp_path / "out")])
        assert done.exit_code == 1
        return done.stderr

    net = QuantisedNetwork((3, 8))
    assert "sin is not computed by gemmini-v3" in refused(net.model(net.node("Sin", net.rounded("x", STEP))))
    net = QuantisedNetwork((1, 2, 1 << 18))
    long = net.model(net.node("LayerNormalization", net.rounded("x", STEP), net.constant(np.ones(1 << 18, np.float32))))
    assert "its lines have 262,144 elements; 262,143 find room" in refused(long)


ENCODERS = ("bert_base-mini", "vit_b16-mini", "gpt2-mini", "swin_t-mini", "whisper_encoder-mini", "conformer_m-mini")


@pytest.mark.nightly
@pytest.mark.parametrize("network", [*ENCODERS, "qwen3-mini", "gemma3-mini"])
def test_transformers_of_the_zoo(network: str, tmp_path: Path) -> None:
    path = str(tmp_path / "net.onnx")
    words = ["quantize", network, "--calibrate", "seeded", "--inputs", "1", "--per-layer", "-o", path]
    words += [] if network in ENCODERS else ["--shape", "ids=1,1"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    for command in (["verify", path], ["explain", path]):
        done = CliRunner().invoke(cli, [*command, "--chip", "gemmini"])
        assert done.exit_code == 0, done.output
