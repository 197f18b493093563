"""The generator is complete: every operator that can be compiled, every attribute, every axis, every neighbourhood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

import onnx
import pytest

from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import load_model
from dsa_sched.frontend.network.network import OURS
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.frontend.rules.operators import SHAPE_ONLY, SIMPLIFIED_AWAY, operator_names
from hw_models.errors import ModelError
from partitioner.context.plan_context import PlanContext
from partitioner.planners.registry import make_plan
from tests.chip_runs import stcp920
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.fuzz.levels_agree import load
from tests.fuzz.random_models import MAKERS, NOT_DRAWN, OPSETS, available, featured_by, model_of

ORDINARY, SOME, MANY = 70, 340, 2_500
ELSEWHERE = {"If", "QuantizeLinear", "DequantizeLinear", "ScatterND", "TensorScatter"}
READ = {*operator_names(), *SIMPLIFIED_AWAY, *SHAPE_ONLY, "Constant", "ConstantOfShape"} - {*OURS, *ELSEWHERE}
"""What the frontend reads. Branches are drawn by `tests/dsa_sched/frontend/test_branches.py`, quantised networks by
`tests/int8`, writes into caches by `tests/llm`."""

UNDRAWN: Mapping[tuple[str, str], str] = {
    **{("Constant", name): "no value of numbers" for name in ("sparse_value", "value_string", "value_strings")},
    **{("Constant", name): "integers are no operands of what is computed" for name in ("value_int", "value_ints")},
    ("Cast", "saturate"): "of types of eight bits",
    ("CastLike", "saturate"): "of types of eight bits",
    ("Cast", "round_mode"): "of types of eight bits",
    ("CastLike", "round_mode"): "of types of eight bits",
    ("BatchNormalization", "spatial"): "only until version 8 of the operator set",
    **{(op_type, "layout"): "onnxruntime has the first one alone" for op_type in ("LSTM", "GRU", "RNN")},
    ("Resize", "antialias"): "refused",
    **{
        ("Resize", name): "tests/dsa_sched/test_needed_operators.py has it"
        for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value")
    },
}
"""Attributes that no maker writes, and why."""


@cache
def drawn() -> tuple[onnx.ModelProto, ...]:
    return tuple(map(model_of, range(MANY)))


def nodes() -> Iterator[onnx.NodeProto]:
    return (node for model in drawn() for node in model.graph.node)


def test_every_operator_that_can_be_compiled_has_a_maker() -> None:
    assert set(MAKERS) == READ - set(NOT_DRAWN)
    assert set(NOT_DRAWN) <= READ


@pytest.mark.parametrize("op_type", NOT_DRAWN)
def test_operators_without_a_maker_are_refused(op_type: str) -> None:
    builder = ModelBuilder()
    loaded = load_model(builder.model(builder.node(op_type, builder.input(2, 8))), judge=Judge(TARGET.wants))
    with pytest.raises(ModelError, match="cannot"):
        make_plan(PlanContext(loaded.graph, loaded.constants, stcp920(), TARGET))


@pytest.mark.commit
def test_the_ordinary_models_have_every_operator() -> None:
    found = {node.op_type for model in drawn()[:ORDINARY] for node in model.graph.node}
    assert found == set(MAKERS)


def test_a_model_has_the_operators_that_it_features() -> None:
    for seed, model in enumerate(drawn()[:200]):
        first, second = featured_by(seed)
        assert {node.op_type for node in model.graph.node} & {first, second}
        if any(available(first, opset) and available(second, opset) for opset in OPSETS):
            assert {first, second} <= {node.op_type for node in model.graph.node}, seed


@pytest.mark.nightly
def test_models_have_every_kind_that_the_target_computes() -> None:
    kinds = {op.kind for model in drawn()[:SOME] for op in load(model).graph.ops}
    of_integers = {"widen", "narrow", "add_scaled"}  # of quantised networks: tests/int8
    assert kinds == ({kind for kind, _ in TARGET.operators()} | {"view"}) - of_integers


def test_every_attribute_is_written() -> None:
    written = {(node.op_type, attribute.name) for node in nodes() for attribute in node.attribute}
    known = {
        (op_type, name)
        for op_type in MAKERS
        for opset in OPSETS
        if available(op_type, opset)
        for name in onnx.defs.get_schema(op_type, opset, "").attributes
    }
    assert known - written == set(UNDRAWN)
    assert written <= known


def test_every_attribute_is_left_to_its_default_too() -> None:
    left = {
        (node.op_type, name)
        for model in drawn()
        for node in model.graph.node
        for name, form in onnx.defs.get_schema(node.op_type, model.opset_import[0].version, "").attributes.items()
        if not form.required and name not in {attribute.name for attribute in node.attribute}
    }
    optional = {
        (node.op_type, attribute.name)
        for model in drawn()
        for node in model.graph.node
        for attribute in node.attribute
        if not onnx.defs.get_schema(node.op_type, model.opset_import[0].version, "").attributes[attribute.name].required
    }
    written_always = {("Gelu", "approximate"), ("Constant", "value"), ("MaxPool", "kernel_shape")}
    written_always |= {(op_type, "hidden_size") for op_type in ("LSTM", "GRU", "RNN")}  # shapes follow from it
    assert optional - left <= written_always


@cache
def axes_drawn() -> Counter[tuple[str, int, int]]:
    """Operator, rank of what it reads, an axis of it as the file writes it."""
    found = Counter[tuple[str, int, int]]()
    for model in drawn():
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        ranks = {
            i.name: len(i.type.tensor_type.shape.dim) for i in (*inferred.input, *inferred.value_info, *inferred.output)
        }
        known = {t.name: onnx.numpy_helper.to_array(t).reshape(-1).tolist() for t in model.graph.initializer}
        ranks |= {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.input and node.input[0] not in ranks:  # behind a node whose shapes onnx does not infer
                continue
            for attribute in node.attribute:
                if attribute.name in ("axis", "axes"):
                    for axis in [attribute.i] if attribute.name == "axis" else attribute.ints:
                        found[node.op_type, ranks[node.input[0]], axis] += 1
            if node.op_type.startswith("Reduce") and len(node.input) > 1:
                found.update((node.op_type, ranks[node.input[0]], axis) for axis in known[node.input[1]])
    return found


@pytest.mark.parametrize("op_type", ["Softmax", "Concat", "Split", "Gather", "ReduceMean", "ReduceMax", "ReduceSum"])
def test_every_axis_of_images_and_matrices_is_drawn(op_type: str) -> None:
    found = {(rank, axis % rank) for name, rank, axis in axes_drawn() if name == op_type and rank}
    assert found >= {(rank, axis) for rank in (2, 4) for axis in range(rank)}
    assert any(axis < 0 for name, _, axis in axes_drawn() if name == op_type)


def readers(model: onnx.ModelProto) -> Counter[str]:
    """How many nodes read a value."""
    return Counter(name for node in model.graph.node for name in set(node.input))


def rejoins(model: onnx.ModelProto) -> bool:
    """Does a node read two values that depend on one that two nodes read?"""
    shared = {name for name, count in readers(model).items() if count > 1}
    behind: dict[str, set[str]] = {}
    for node in model.graph.node:
        each = [behind.get(name, set()) | ({name} & shared) for name in set(node.input)]
        if any(a & b for i, a in enumerate(each) for b in each[:i]):
            return True
        for output in node.output:
            behind[output] = set().union(*each)
    return False


def follows(model: onnx.ModelProto) -> bool:
    """Does a window read, directly or through a view, what is computed along whole axes?"""
    made = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.op_type in ("Conv", "MaxPool", "AveragePool"):
            before = made.get(node.input[0])
            while before is not None and before.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"):
                before = made.get(before.input[0])
            if before is not None and before.op_type in (
                "Softmax",
                "LRN",
                "LayerNormalization",
                "InstanceNormalization",
            ):
                return True
    return False


def test_models_have_neighbourhoods_of_every_sort() -> None:
    sorts = Counter[str]()
    for model in drawn():
        sorts["several outputs"] += len(model.graph.output) > 1
        sorts["several inputs"] += len(model.graph.input) > 1
        sorts["a value read twice"] += max(readers(model).values()) > 1
        sorts["a node that reads a value twice"] += any(len(n.input) > len(set(n.input)) for n in model.graph.node)
        sorts["branches that meet"] += rejoins(model)
        sorts["a window behind whole axes"] += follows(model)
        made = {name for node in model.graph.node for name in node.input}
        sorts["an output that is read"] += any(item.name in made for item in model.graph.output)
    assert all(count >= MANY // 100 for count in sorts.values()), sorts
    assert sorts["branches that meet"] >= MANY // 5
    assert sorts["several outputs"] >= MANY // 2


def test_equal_seeds_give_equal_models() -> None:
    assert model_of(7).SerializeToString() == drawn()[7].SerializeToString()
