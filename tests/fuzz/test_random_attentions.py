"""Random attentions as files spell them out: near float64, to the bit as emulated, and the same bits at every level.

    q, k, v [item, row, column] -> heads -> scores * scale + mask -> Softmax -> values -> heads joined

A mask constant beyond halves is -65504 there, as docs/fidelity.md says: what it hides from a row that sees something
is nothing in both; a row that it hides whole is even. Rows of minus infinity are NaN in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.chip_runs import compile_graph, stcp920
from tests.fuzz.levels_agree import Way, compiled, load, run
from tests.partition_graphs import Seeded

Values = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

ATTENTIONS, AT_A_TIME = 200, 10
WAYS = (
    Way("O1", schedule=False),
    Way("O2", schedule=True),
    Way("O3", schedule=False),
    Way("streamed", schedule=True),
    Way("auto", schedule=True),
)
LENGTHS = (1, 2, 5, 7, 11, 13, 16, 23, 31, 37)
LEAST, LARGEST = float(np.finfo(np.float32).min), 65504.0
MASKS = ("none", "causal", "by row", "by item", "least by item", "hidden rows", "rows of least", "by head")


@dataclass(frozen=True)
class _Drawn:
    """An attention: extents, the mask's numbers where it has one, and whether the mask is an input."""

    items: int
    rows: int
    keys: int
    heads: int
    groups: int
    size: int
    width: int
    scale: float
    mask: Singles | None
    fed: bool

    @property
    def shapes(self) -> dict[str, tuple[int, int, int]]:
        return {
            "q": (self.items, self.rows, self.heads * self.size),
            "k": (self.items, self.keys, self.groups * self.size),
            "v": (self.items, self.keys, self.groups * self.width),
        }


def drawn(seed: int) -> _Drawn:
    choose, random = Seeded(seed), np.random.default_rng(seed)
    groups = choose.one_of((1, 2, 3))
    items, rows, keys = choose.number(1, 3), choose.one_of(LENGTHS), choose.one_of(LENGTHS)
    size, width = choose.one_of((4, 8, 12)), choose.one_of((4, 8, 10))
    heads = groups * choose.number(1, 3)
    kind = MASKS[seed % len(MASKS)]
    keys = rows if kind == "causal" else keys
    mask = _mask(kind, (items, heads, rows, keys), random)
    scale = choose.one_of((size**-0.5, 0.2, 1.0))
    fed = mask is not None and kind in ("by item", "hidden rows", "by head")
    return _Drawn(items, rows, keys, heads, groups, size, width, scale, mask, fed)


def _mask(kind: str, scores: tuple[int, int, int, int], random: np.random.Generator) -> Singles | None:
    items, _, rows, keys = scores
    if kind == "none":
        return None
    if kind == "causal":
        return np.triu(np.full((1, 1, rows, keys), -np.inf, np.float32), 1)
    shapes = {"by row": (1, 1, rows, keys), "by head": scores, "hidden rows": (1, 1, rows, keys)}
    shape = shapes.get(kind, (1, 1, rows, keys) if kind == "rows of least" else (items, 1, 1, keys))
    hidden = random.random(shape) < 0.4
    if kind not in ("hidden rows", "rows of least"):
        hidden[..., random.integers(keys)] = False
    else:
        hidden[..., random.integers(rows), :] = True
    low = LEAST if "least" in kind else -np.inf
    seen = random.normal(0, 1, shape).astype(np.float16) if kind in ("by row", "by head") else np.zeros(shape)
    return np.where(hidden, np.float32(low), seen.astype(np.float32)).astype(np.float32)


def model_of(case: _Drawn) -> onnx.ModelProto:
    """The nodes that exporters write."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, array: npt.NDArray[np.generic]) -> str:
        constants.append(numpy_helper.from_array(array, name))
        return name

    def node(op_type: str, inputs: list[str], output: str, **settings: int | list[int]) -> str:
        made = helper.make_node(op_type, inputs, [output], name=output)
        made.attribute.extend(helper.make_attribute(key, value) for key, value in settings.items())
        nodes.append(made)
        return output

    def split(name: str, heads: int, elements: int, *perm: int) -> str:
        items, rows, _ = case.shapes[name]
        shape = constant(f"{name}.shape", np.array([items, rows, heads, elements]))
        by_row = node("Reshape", [name, shape], f"{name}.split")
        if heads == case.heads:
            return node("Transpose", [by_row], f"{name}.heads", perm=list(perm))
        by_head = node("Transpose", [by_row], f"{name}.groups", perm=[0, 2, 1, 3])
        one = node("Unsqueeze", [by_head, constant(f"{name}.axis", np.array([2]))], f"{name}.one")
        shared = case.heads // heads
        spread = constant(f"{name}.spread", np.array([items, heads, shared, rows, elements]))
        wide = node("Expand", [one, spread], f"{name}.wide")
        shape = constant(f"{name}.all", np.array([items, case.heads, rows, elements]))
        repeated = node("Reshape", [wide, shape], f"{name}.repeated")
        last = [0, 1, perm.index(1) if perm[3] == 3 else 3, 3 if perm[3] == 3 else 2]
        return repeated if perm[3] == 3 else node("Transpose", [repeated], f"{name}.heads", perm=last)

    q = split("q", case.heads, case.size, 0, 2, 1, 3)
    k = split("k", case.groups, case.size, 0, 2, 3, 1)
    v = split("v", case.groups, case.width, 0, 2, 1, 3)
    scores = node("MatMul", [q, k], "scores")
    scores = node("Mul", [scores, constant("scale", np.array(case.scale, np.float32))], "scaled")
    if case.mask is not None:
        scores = node("Add", [scores, "m" if case.fed else constant("m", case.mask)], "masked")
    values = node("MatMul", [node("Softmax", [scores], "weights", axis=-1), v], "values")
    turned = node("Transpose", [values], "turned", perm=[0, 2, 1, 3])
    joined = constant("joined.shape", np.array([case.items, case.rows, case.heads * case.width]))
    node("Reshape", [turned, joined], "y")
    shapes = {**case.shapes, **({"m": case.mask.shape} if case.fed and case.mask is not None else {})}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (case.items, case.rows, case.heads * case.width))]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def meaning(case: _Drawn, feed: dict[str, Singles]) -> Values:
    """The file's arithmetic, in float64 but for mask constants."""
    q, k, v = (
        feed[name].astype(np.float64).reshape(case.items, feed[name].shape[1], heads, -1).transpose(0, 2, 1, 3)
        for name, heads in (("q", case.heads), ("k", case.groups), ("v", case.groups))
    )
    k, v = (np.repeat(x, case.heads // case.groups, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * case.scale
    if case.mask is not None:
        held = np.where(np.isfinite(case.mask), np.maximum(case.mask, -LARGEST), case.mask).astype(np.float64)
        scores = np.where(held == -LARGEST, -LARGEST, scores + held)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(3, keepdims=True))
        taken = powers / powers.sum(3, keepdims=True) @ v
    return np.asarray(taken.transpose(0, 2, 1, 3).reshape(case.items, case.rows, -1))


def check(seed: int, ways: tuple[Way, ...]) -> bool:
    """Whether the attention was found and is one operator; the bits of all ways are those of O0."""
    case, random = drawn(seed), np.random.default_rng(seed + 1_000_000)
    feed = {name: random.normal(0, 1, shape).astype(np.float16) for name, shape in case.shapes.items()}
    if case.fed and case.mask is not None:
        feed["m"] = case.mask.astype(np.float16)
    model = load(model_of(case))
    plain = compile_graph(model.graph, model.constants)
    stored = plain.run({name: array.view(np.uint16) for name, array in feed.items()}, seed)
    for name, (got, wanted) in plain.expected(stored).items():
        np.testing.assert_array_equal(got, wanted, err_msg=f"{seed}: {name}")
    singles = {name: array.astype(np.float32) for name, array in feed.items()}
    exact = meaning(case, singles)
    np.testing.assert_allclose(stored["y"].view(np.float16), exact, rtol=1.5e-2, atol=1.5e-2, err_msg=str(seed))
    for way in ways:
        bits = run(compiled(model, stcp920(), way), singles, seed)
        got = np.frombuffer(bits["y"], np.uint16)
        np.testing.assert_array_equal(got, stored["y"].reshape(-1), err_msg=f"{seed}: {way}")
    return "attend" in {op.kind for op in model.graph.ops}


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, ATTENTIONS, AT_A_TIME))
def test_random_attentions(first: int) -> None:
    found = [check(seed, WAYS) for seed in range(first, first + AT_A_TIME)]
    assert all(found)


@pytest.mark.parametrize("seed", range(len(MASKS)))
@pytest.mark.commit
def test_one_attention_of_each_mask(seed: int) -> None:
    assert check(seed, (WAYS[seed % len(WAYS)],))
