"""Operators that a file spells out: which are found again, that they are what a node of the file is, near misses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsa_sched.frontend import load_model
from dsa_sched.frontend.network.constant_folding import fold_constants
from dsa_sched.frontend.network.network import Network, name_nodes
from dsa_sched.frontend.network.shapes import fix_shapes
from dsa_sched.frontend.patterns.found import counts
from dsa_sched.frontend.patterns.patterns import SEARCHES
from dsa_sched.frontend.rewrites.simplify import drop_no_ops
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0, planner_or_auto
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.spelled_out import (
    attention,
    erf_gelu,
    layer_norm,
    rms_norm,
    rotary,
    rotary_tables,
    softmax,
    tanh_gelu,
)

Build = Callable[[ModelBuilder], str]
LARGEST_ERROR = 1e-3
ROWS, SIZE = 6, 8
CAUSAL = np.triu(np.full((ROWS, ROWS), -np.inf, np.float32), 1)


def norm(**how: object) -> Build:
    def build(b: ModelBuilder) -> str:
        scale, bias = b.weights(16), b.weights(16)
        return layer_norm(b, b.input(2, 5, 16), scale, bias, **how)  # type: ignore[arg-type]

    return build


def native_norm(b: ModelBuilder) -> str:
    return b.node("LayerNormalization", b.input(2, 5, 16), b.weights(16), b.weights(16), axis=-1, epsilon=1e-5)


def root_mean(inverse: str = "") -> Build:
    def build(b: ModelBuilder) -> str:
        scale = b.weights(16)
        return rms_norm(b, b.input(2, 5, 16), scale, inverse=inverse)

    return build


def native_root_mean(b: ModelBuilder) -> str:
    return b.node("RMSNormalization", b.input(2, 5, 16), b.weights(16), axis=-1, epsilon=1e-6)


def sigmoid_of(factor: float) -> Build:
    def build(b: ModelBuilder) -> str:
        x = b.input(3, 16)
        return b.node("Mul", x, b.node("Sigmoid", b.node("Mul", x, b.constant(factor)) if factor != 1.0 else x))

    return build


def gelu_by_sigmoid(b: ModelBuilder) -> str:
    x = b.input(3, 16)
    cube = b.node("Mul", b.node("Mul", b.node("Mul", x, x), x), b.constant(2 * 0.044715 * 0.7978845608))
    inner = b.node("Add", b.node("Mul", x, b.constant(2 * 0.7978845608)), cube)
    return b.node("Mul", b.node("Sigmoid", inner), x)


def behind_a_bias(curve: Callable[[ModelBuilder, str], str]) -> Build:
    def build(b: ModelBuilder) -> str:
        return curve(b, b.node("Add", b.node("MatMul", b.input(3, 16), b.weights(16, 8)), b.weights(8)))

    return build


def operands(b: ModelBuilder, count: int = 2, shared: int = 2) -> tuple[str, str, str]:
    return b.input(1, count, ROWS, SIZE), b.input(1, shared, ROWS, SIZE), b.input(1, shared, ROWS, SIZE)


def attends(place: str = "behind", mask: np.ndarray | None = None, *, flat: bool = False) -> Build:
    def build(b: ModelBuilder) -> str:
        names = operands(b)
        added = b.constant(mask) if mask is not None else ""
        return attention(b, *names, SIZE, place=place, mask=added, flat=flat)

    return build


def attends_natively(mask: np.ndarray | None = None, **settings: float) -> Build:
    def build(b: ModelBuilder) -> str:
        names = operands(b)
        return b.node("Attention", *names, *((b.constant(mask),) if mask is not None else ()), attributes=settings)

    return build


def chosen(b: ModelBuilder) -> str:
    """Minus infinity where a constant condition says so."""
    q, k, v = operands(b)
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(SIZE**-0.5))
    hidden = b.constant(CAUSAL < 0, dtype=np.bool_)
    masked = b.node("Where", hidden, b.constant(-np.inf), scores)
    return b.node("MatMul", b.node("Softmax", masked, axis=-1), v)


def guarded(b: ModelBuilder) -> str:
    """What a computed mask may leave without a number becomes zero."""
    (q, k, v), mask = operands(b), b.input(1, 1, ROWS, ROWS)
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(SIZE**-0.5))
    weights = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
    return b.node("MatMul", b.node("Where", b.node("IsNaN", weights), b.constant(0.0), weights), v)


def natively_guarded(b: ModelBuilder) -> str:
    return b.node("Attention", *operands(b), b.input(1, 1, ROWS, ROWS))


def grouped(b: ModelBuilder) -> str:
    """Four heads of q for two of k and v, which are repeated."""
    q, k, v = operands(b, 4)

    def repeated(x: str) -> str:
        wide = b.node("Expand", b.node("Unsqueeze", x, b.integers(2)), b.integers(1, 2, 2, ROWS, SIZE))
        return b.node("Reshape", wide, b.integers(1, 4, ROWS, SIZE))

    turned = b.node("Transpose", repeated(k), perm=[0, 1, 3, 2])
    scores = b.node("Mul", b.node("MatMul", q, turned), b.constant(SIZE**-0.5))
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), repeated(v))


def natively_grouped(b: ModelBuilder) -> str:
    return b.node("Attention", *operands(b, 4))


def capped(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(SIZE**-0.5))
    scores = b.node("Mul", b.node("Tanh", b.node("Div", scores, b.constant(4.0))), b.constant(4.0))
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), v)


def of_windows(b: ModelBuilder) -> str:
    """Swin's: a bias for each head, then a mask for each of two windows, by other axes."""
    q, k, v = (b.input(4, 2, ROWS, SIZE) for _ in range(3))
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(SIZE**-0.5))
    biased = b.node("Add", scores, b.weights(1, 2, ROWS, ROWS))
    split = b.node("Reshape", biased, b.integers(2, 2, 2, ROWS, ROWS))
    window = np.where(b.random.random((1, 2, 1, ROWS, ROWS)) < 0.5, -100.0, 0.0)
    masked = b.node("Reshape", b.node("Add", split, b.constant(window)), b.integers(4, 2, ROWS, ROWS))
    return b.node("MatMul", b.node("Softmax", masked, axis=-1), v)


def without_heads(b: ModelBuilder) -> str:
    q, k, v = (b.input(3, ROWS, SIZE) for _ in range(3))
    return attention(b, q, k, v, SIZE, mask=b.constant(CAUSAL))


def turns(b: ModelBuilder) -> str:
    return rotary(b, b.input(1, 2, ROWS, SIZE), ROWS, SIZE // 2)


def turns_natively(b: ModelBuilder) -> str:
    tables = (b.constant(table[None]) for table in rotary_tables(ROWS, SIZE // 2))
    return b.node("RotaryEmbedding", b.input(1, 2, ROWS, SIZE), *tables)


def activation(op_type: str, **settings: float | str) -> Build:
    return lambda b: b.node(op_type, b.input(3, 16), attributes=settings)


SAME: dict[str, tuple[Build, Build]] = {
    "layer norm": (norm(), native_norm),
    "layer norm by a reciprocal": (norm(inverse="Reciprocal"), native_norm),
    "layer norm by a power": (norm(inverse="Pow"), native_norm),
    "layer norm by a quotient of one": (norm(inverse="Div"), native_norm),
    "layer norm with its difference twice": (norm(twice=True), native_norm),
    "root mean square": (root_mean(), native_root_mean),
    "root mean square by a reciprocal": (root_mean("Reciprocal"), native_root_mean),
    "root mean square by a power": (root_mean("Pow"), native_root_mean),
    "GELU": (lambda b: erf_gelu(b, b.input(3, 16)), activation("Gelu")),
    "GELU by tanh": (lambda b: tanh_gelu(b, b.input(3, 16)), activation("Gelu", approximate="tanh")),
    "GELU by a sigmoid": (gelu_by_sigmoid, activation("Gelu", approximate="tanh")),
    "softmax": (lambda b: softmax(b, b.input(2, 5, 16), 1), lambda b: b.node("Softmax", b.input(2, 5, 16), axis=1)),
    "softmax without a maximum": (
        lambda b: softmax(b, b.input(2, 5, 16), 2, maximum=False),
        lambda b: b.node("Softmax", b.input(2, 5, 16), axis=2),
    ),
    "attention": (attends(), attends_natively()),
    "attention scaled before": (attends("before"), attends_natively()),
    "attention scaled on both sides": (attends("both"), attends_natively()),
    "attention divided": (attends("division"), attends_natively()),
    "attention with joined heads": (attends(flat=True), attends_natively()),
    "attention not scaled": (attends("nowhere"), attends_natively(scale=1.0)),
    "attention masked": (attends(mask=CAUSAL[::-1].copy()), attends_natively(CAUSAL[::-1].copy())),
    "attention masked by nothing": (attends(mask=np.zeros((1, 1, ROWS, ROWS))), attends_natively()),
    "attention, causal": (attends(mask=CAUSAL), attends_natively(is_causal=1)),
    "attention, causal by a choice": (chosen, attends_natively(is_causal=1)),
    "attention, guarded": (guarded, natively_guarded),
    "attention, grouped": (grouped, natively_grouped),
    "attention, capped": (capped, attends_natively(softcap=4.0)),
    "rotary embedding": (turns, turns_natively),
}
"""What a file spells out, and the node that it is."""

FOUND: dict[str, tuple[Build, dict[str, int]]] = {
    "norm without a scale": (lambda b: layer_norm(b, b.input(2, 5, 16), "", ""), {"LayerNorm": 1}),
    "norm of two axes": (
        lambda b: layer_norm(b, b.input(2, 5, 16), b.weights(5, 16), "", axes=(-2, -1)),
        {"LayerNorm": 1},
    ),
    "SiLU": (sigmoid_of(1.0), {"SiLU": 1}),
    "quick GELU": (sigmoid_of(1.702), {"quick GELU": 1}),
    "GELU behind a bias": (behind_a_bias(erf_gelu), {"GELU": 1}),
    "GELU by tanh behind a bias": (behind_a_bias(tanh_gelu), {"GELU": 1}),
    "attention of windows": (of_windows, {"attention": 1}),
    "attention without heads": (without_heads, {"attention": 1}),
    "norm, attention, GELU": (
        lambda b: erf_gelu(b, layer_norm(b, attends()(b), b.weights(SIZE), b.weights(SIZE))),
        {"LayerNorm": 1, "GELU": 1, "attention": 1},
    ),
}


def saved(build: Build, folder: Path, opset: int = 17) -> tuple[Path, ModelBuilder]:
    """The model with its last node and its output under names of their own."""
    builder = ModelBuilder(opset=opset)
    build(builder)
    last = builder.nodes[-1]
    last.name, last.output[0] = "the_end", "y"
    return builder.save(folder, "y"), builder


def drawn(b: ModelBuilder) -> dict[str, np.ndarray]:
    """A value of each input."""
    shapes = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in b.inputs}
    return {name: b.random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.spread(9)
@pytest.mark.parametrize("name", SAME)
def test_what_is_spelled_out_compiles_to_the_bytes_of_the_node(name: str, tmp_path: Path) -> None:
    spelled, native = (
        compile_model(saved(build, tmp_path, opset)[0], "stcp920", CompileOptions(O0()))
        for build, opset in zip(SAME[name], (17, 24), strict=True)
    )
    assert spelled.files.files[spelled.files.executable] == native.files.files[native.files.executable]


@pytest.mark.parametrize("name", [*SAME, *FOUND])
def test_what_is_found_is_as_right_as_the_file(name: str, tmp_path: Path) -> None:
    build = SAME[name][0] if name in SAME else FOUND[name][0]
    path, builder = saved(build, tmp_path)
    model = load_model(path)
    inputs = drawn(builder)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert errors["y"] < LARGEST_ERROR


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_is_counted(name: str, tmp_path: Path) -> None:
    build, expected = FOUND[name]
    path, _ = saved(build, tmp_path)
    model = load_model(path)
    assert counts(model.found) == expected
    assert all(each.spelled for each in model.found)
    first, *others = model.decisions
    assert first.verdict == "found: " + ", ".join(f"{count} {label}" for label, count in expected.items())
    assert len(others) == len(model.found)


def test_nodes_of_the_file_count_too(tmp_path: Path) -> None:
    model = load_model(saved(lambda b: erf_gelu(b, native_norm(b)), tmp_path)[0])
    assert counts(model.found) == {"LayerNorm": 1, "GELU": 1}
    (line, gelu) = model.decisions
    assert str(line) == "operators: found: 1 LayerNorm, 1 GELU: spelled out in the file: 1 GELU"
    assert gelu.subject == "the_end"
    assert load_model(saved(lambda b: b.node("Relu", b.input(2, 3)), tmp_path)[0]).decisions == ()


def test_another_epsilon_is_another_program(tmp_path: Path) -> None:
    """So that equal bytes say something."""

    def build(epsilon: float) -> Build:
        return lambda b: b.node(
            "LayerNormalization", b.input(2, 5, 16), b.weights(16), b.weights(16), axis=-1, epsilon=epsilon
        )

    first, second = (
        compile_model(saved(build(epsilon), tmp_path)[0], "stcp920", CompileOptions(O0())).files
        for epsilon in (1e-5, 1e-3)
    )
    assert first.files[first.executable] != second.files[second.executable]


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_rows_that_see_nothing_are_zeros(level: str, tmp_path: Path) -> None:
    """By a computed mask of minus infinities, whatever the scores."""
    path, builder = saved(guarded, tmp_path)
    feeds = []
    for number, scale in enumerate((1.0, 20.0)):
        mask = np.where(builder.random.random((1, 1, ROWS, ROWS)) < 0.3, -np.inf, builder.random.standard_normal(ROWS))
        mask[..., 2, :] = -np.inf
        given = builder.random.standard_normal((3, 1, 2, ROWS, SIZE)) * scale
        feeds.append(tmp_path / f"{number}.npz")
        q, k, v, added = (value.astype(np.float32) for value in (*given, mask))
        np.savez(feeds[-1], x0=q, x1=k, x2=v, x3=added)
    report = verify_model(
        path, "stcp920", CompileOptions(planner_or_auto(level)), VerifyOptions(samples=256, feeds=tuple(feeds))
    )
    assert report.failures == ()


def test_searching_takes_time_in_proportion_to_the_nodes() -> None:
    """Counted in steps from node to node, not by a clock."""

    def steps(layers: int) -> int:
        b = ModelBuilder(opset=17)
        x = b.input(2, 5, 16)
        for _ in range(layers):
            x = tanh_gelu(b, erf_gelu(b, layer_norm(b, x, b.weights(16), b.weights(16))))
            x = b.node("Softmax", b.node("Add", x, x), axis=-1)
        model = b.model(x)
        name_nodes(model)
        network = Counting(fold_constants(model, fix_shapes(model, {}, None)))
        return network.counted()

    few, many = steps(10), steps(40)
    assert many <= 4.2 * few


class Counted(dict[str, object]):
    """How often it was asked."""

    asked = 0

    def get(self, key: str, default: object = None) -> object:
        self.asked += 1
        return super().get(key, default)


class Counting:
    """A network that is searched, and what searches ask of it."""

    def __init__(self, network: Network) -> None:
        self.network = drop_no_ops(network)

    def counted(self) -> int:
        maps = [Counted(self.network.producer), Counted(self.network.readers)]
        self.network.__dict__.update(producer=maps[0], readers=maps[1])
        for search in SEARCHES:
            list(search(self.network))
        return sum(each.asked for each in maps)


# Near misses ---------------------------------------------------------------------------------------------------------


def wide_epsilon(b: ModelBuilder) -> str:
    """One for each row."""
    x = b.input(2, 5, 16)
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[-1]))
    variance = b.node("ReduceMean", b.node("Mul", d, d), axes=[-1])
    return b.node("Div", d, b.node("Sqrt", b.node("Add", variance, b.constant(np.full((1, 5, 1), 1e-5)))))


def other_axis(b: ModelBuilder) -> str:
    """The mean of channels, the squares of rows: no norm of x, but one of the difference."""
    x = b.input(2, 5, 16)
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[1]))
    variance = b.node("ReduceMean", b.node("Mul", d, d), axes=[-1])
    return b.node("Div", d, b.node("Sqrt", b.node("Add", variance, b.constant(1e-5))))


def middle_axis(b: ModelBuilder) -> str:
    return layer_norm(b, b.input(2, 5, 16), "", "", axes=(1,))


def reader_of_a_root(b: ModelBuilder) -> str:
    x = b.input(2, 5, 16)
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[-1]))
    root = b.node("Sqrt", b.node("Add", b.node("ReduceMean", b.node("Mul", d, d), axes=[-1]), b.constant(1e-5)))
    return b.node("Mul", b.node("Div", d, root), root)


def of_other_differences(b: ModelBuilder) -> str:
    """Squares of one value, a quotient of another."""
    x, z = b.input(2, 5, 16), b.input(2, 5, 16)
    mean = b.node("ReduceMean", b.node("Mul", x, x), axes=[-1])
    return b.node("Div", z, b.node("Sqrt", b.node("Add", mean, b.constant(1e-5))))


def sigmoid_of_another(b: ModelBuilder) -> str:
    x, z = b.input(3, 16), b.input(3, 16)
    return b.node("Mul", z, b.node("Sigmoid", x))


def twice_a_gelu(b: ModelBuilder) -> str:
    x = b.input(3, 16)
    return b.node("Mul", x, b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0)))


def another_cube(b: ModelBuilder) -> str:
    return tanh_gelu(b, b.input(3, 16), cube=0.05)


def sum_of_another_axis(b: ModelBuilder) -> str:
    e = b.node("Exp", b.input(2, 5, 16))
    return b.node("Div", e, b.node("ReduceSum", e, b.integers(1, 2)))


def constant_keys(b: ModelBuilder) -> str:
    """A layer, a softmax and a layer."""
    x = b.node("MatMul", b.input(1, ROWS, SIZE), b.weights(1, SIZE, ROWS))
    return b.node("MatMul", b.node("Softmax", x, axis=-1), b.weights(1, ROWS, SIZE))


def other_softmax(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    return b.node("MatMul", b.node("Softmax", scores, axis=-2), v)


def reader_of_weights(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    weights = b.node("Softmax", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    return b.node("Concat", b.node("MatMul", weights, v), weights, axis=3)


def reader_of_scores(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    return b.node("Concat", b.node("MatMul", b.node("Softmax", scores, axis=-1), v), scores, axis=3)


def scaled_by_a_vector(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    weights = b.node("Softmax", b.node("Mul", scores, b.weights(ROWS)), axis=-1)
    return b.node("MatMul", weights, v)


def weights_behind(b: ModelBuilder) -> str:
    """The values from the left."""
    q, k, v = operands(b)
    weights = b.node("Softmax", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    return b.node("MatMul", b.node("Transpose", v, perm=[0, 1, 3, 2]), weights)


def mask_before_its_scale(b: ModelBuilder) -> str:
    q, k, v = operands(b)
    masked = b.node("Add", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.weights(ROWS, ROWS))
    return b.node("MatMul", b.node("Softmax", b.node("Mul", masked, b.constant(0.5)), axis=-1), v)


def turned_the_other_way(b: ModelBuilder) -> str:
    return rotary(b, b.input(1, 2, ROWS, SIZE), ROWS, SIZE // 2, order=(0, 1))


def other_sines_below(b: ModelBuilder) -> str:
    return rotary(b, b.input(1, 2, ROWS, SIZE), ROWS, SIZE // 2, below=0.5)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (wide_epsilon, {}),
        (other_axis, {"RMSNorm": 1}),
        (middle_axis, {}),
        (reader_of_a_root, {}),
        (of_other_differences, {}),
        (sigmoid_of_another, {}),
        (twice_a_gelu, {}),
        (another_cube, {}),
        (sum_of_another_axis, {}),
        (constant_keys, {}),
        (other_softmax, {}),
        (reader_of_weights, {}),
        (reader_of_scores, {}),
        (scaled_by_a_vector, {}),
        (weights_behind, {}),
        (mask_before_its_scale, {}),
        (turned_the_other_way, {}),
        (other_sines_below, {}),
    ],
)
def test_what_is_another_operator_is_left(build: Build, expected: dict[str, int], tmp_path: Path) -> None:
    path, builder = saved(build, tmp_path)
    model = load_model(path)
    assert counts(model.found) == expected
    inputs = drawn(builder)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert max(errors.values()) < LARGEST_ERROR, errors
