"""What a model needs and the chip lacks is told in one round, by the names that nodes have in the user's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.generic import NEUTRAL
from dsa_sched.frontend import load_model
from dsa_sched.frontend.network.refusals import PLACE, Judge, Unsupported
from dsa_sched.pipeline.driver import compile_clusters, compile_model, plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError
from partitioner.ir.graph import Graph, Op
from partitioner.planners.levels import O0
from tests.chip_runs import small_chip
from tests.small_models import save

node = helper.make_node
CHIP = small_chip(weights_bytes=1 << 16)
NO_LOG = "log needs a table of 128 KiB, for which the weights part of L1 must have 256 KiB and has 64 KiB"
IMAGE = (2, 3, 8, 8)


def model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], folder: Path, shape: Sequence[int | str] = IMAGE
) -> Path:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    constants = [
        numpy_helper.from_array(np.array(1.5, np.float32), "exponent"),
        numpy_helper.from_array(np.ones(8, np.float32), "scale"),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "odd", inputs, results, constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return save(helper.make_model(graph, opset_imports=domains, ir_version=8), folder / "odd.onnx")


def told(path: Path, options: CompileOptions | None = None) -> list[str]:
    with pytest.raises(Unsupported) as error:
        compile_model(path, CHIP, options or CompileOptions(O0()))
    return str(error.value).splitlines()


MIXED = (
    node("Log", ["x"], ["e"], name="loss/log"),
    node("Hardmax", ["e"], ["a"], name="angle"),
    node("Relu", ["a"], ["r"], name="fine"),
    node("Pow", ["r", "r"], ["p"], name="border"),
    node("Log", ["p"], ["y"], name="entropy"),
)


def test_unknown_operators_rules_and_the_chip_speak_in_one_list(tmp_path: Path) -> None:
    path = model(MIXED, ["y"], tmp_path)
    assert told(path) == [
        f"{path}: 4 unsupported operators",
        f"  Log loss/log (2x3x8x8): {NO_LOG}",
        "  Hardmax angle (2x3x8x8): this operator is not supported",
        "  Pow border (2x3x8x8, 2x3x8x8): the exponent must be constant, one number for all elements",
        f"  Log entropy (2x3x8x8): {NO_LOG}",
        PLACE,
    ]


def test_what_clusters_and_plans_refuse_is_the_same_list(tmp_path: Path) -> None:
    path = model(MIXED, ["y"], tmp_path)
    options = CompileOptions(O0(), batch=4)
    for attempt in (
        lambda: compile_clusters(path, CHIP, replace(options, clusters=2)),
        lambda: compile_clusters(path, CHIP, replace(options, per_pass="auto")),
        lambda: plan_model(path, CHIP, replace(options, clusters=2)),
    ):
        with pytest.raises(Unsupported) as error:
            attempt()
        assert [refused.name for refused in error.value.refused] == ["loss/log", "angle", "border", "entropy"]


def test_shapes_that_the_user_gives_count_for_the_rest(tmp_path: Path) -> None:
    path = model(MIXED, ["y"], tmp_path, ("N", 3, "H", 8))
    said = told(path, CompileOptions(O0(), shapes=(("x", (1, 3, 6, 8)),)))
    assert f"  Log entropy (1x3x6x8): {NO_LOG}" in said


def test_what_lies_behind_unknown_shapes_is_left_out(tmp_path: Path) -> None:
    """Nobody knows what a stranger's operator gives; the branch beside it is judged."""
    nodes = (
        node("Magic", ["x"], ["m"], name="magic", domain="com.example"),
        node("Log", ["m"], ["l"], name="behind"),
        node("Log", ["x"], ["y"], name="beside"),
    )
    path = model(nodes, ["l", "y"], tmp_path)
    assert told(path) == [
        f"{path}: 2 unsupported operators",
        "  Magic magic (2x3x8x8): domain com.example is not standard ONNX",
        f"  Log beside (2x3x8x8): {NO_LOG}",
    ]


def test_what_has_no_shape_is_told_where_that_begins(tmp_path: Path) -> None:
    """The target of the Reshape is computed; what reads its result is not refused for itself."""
    nodes = (
        node("ReduceMax", ["x"], ["m"], name="largest", keepdims=0),
        node("Cast", ["m"], ["i"], name="whole", to=TensorProto.INT64),
        node("Unsqueeze", ["i", "zero"], ["s"], name="shape"),
        node("Reshape", ["x", "s"], ["r"], name="reshape"),
        node("Relu", ["r"], ["y"], name="behind"),
        node("Log", ["x"], ["z"], name="beside"),
    )
    path = model((node("Constant", [], ["zero"], name="axis", value_ints=[0]), *nodes), ["y", "z"], tmp_path)
    assert [line.split()[1] for line in told(path)[1:-1]] == ["reshape", "beside"]


def test_what_an_operator_is_taken_apart_into_is_told_by_its_own_name(tmp_path: Path) -> None:
    """A chip that cannot take square roots: the norm's parts are nobody's names."""

    def judge(graph: Graph, _: object) -> list[tuple[Op, str]]:
        return [(op, "no roots here") for op in graph.ops if op.kind in ("sqrt", "reciprocal")]

    path = model([node("LayerNormalization", ["x", "scale"], ["y"], name="norm")], ["y"], tmp_path)
    with pytest.raises(Unsupported) as error:
        load_model(path, judge=Judge(NEUTRAL, judge))
    assert [str(refused) for refused in error.value.refused] == ["LayerNormalization norm (2x3x8x8, 8): no roots here"]


def test_without_a_chip_nothing_points_to_other_devices(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as error:
        load_model(model(MIXED, ["y"], tmp_path))
    assert [refused.name for refused in error.value.refused] == ["angle", "border"]
    assert PLACE not in str(error.value)


def test_a_chip_without_a_code_generator_refuses_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as error:
        plan_model(model(MIXED, ["y"], tmp_path), CHIP.model_copy(update={"isa": "abacus-v2"}), CompileOptions(O0()))
    assert [refused.name for refused in error.value.refused] == ["angle", "border"]


def test_another_problem_of_the_rest_waits_for_its_turn(tmp_path: Path) -> None:
    """An open dimension hides the rest, not what is known already."""
    with pytest.raises(ModelError, match="1 unsupported operator\n  Hardmax angle"):
        load_model(model(MIXED, ["y"], tmp_path, ("N", 3, 8, 8)))
