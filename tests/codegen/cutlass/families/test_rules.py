"""What a GPU refuses, in the words that a user reads; what is let through has a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codegen.cutlass.rules import accepts
from codegen.target_registry import find_target
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from partitioner.ir.graph import Graph, Op, Tensor
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.branches import Branches, saved

A100 = load_chip("a100")


def refused(b: Branches, folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        plan_model(saved(b, folder), "a100", CompileOptions(O0()))
    return str(error.value)


def test_integers_that_layers_go_on_from_are_refused(tmp_path: Path) -> None:
    """They are computed before all layers, or after them."""
    b = Branches()
    indices = b.node("Cast", b.input(3), to=7, out=False)
    b.node("Gather", b.input(5, 8), indices, axis=0)
    assert "Cast node_cast0 (3" in (said := refused(b, tmp_path))
    assert "only floating-point values are computed" in said


def test_more_than_six_axes_are_refused(tmp_path: Path) -> None:
    b = Branches()
    b.node("Transpose", b.input(2, 1, 3, 2, 1, 2, 8), perm=[6, 0, 1, 2, 3, 4, 5])
    assert "has 7 axes, at most 6 are indexed" in refused(b, tmp_path)


@pytest.mark.parametrize("attribute", ["strides", "dilations"])
def test_windows_beyond_32_bits_are_refused(attribute: str, tmp_path: Path) -> None:
    b = Branches()
    wide: dict[str, Any] = {attribute: [1, 3 << 29]}
    b.node("MaxPool", b.input(1, 8, 4, 4), kernel_shape=[1, 1], **wide)
    said = refused(b, tmp_path)
    assert f"{attribute} of 1610612736 along an axis, windows of at most 1073741824 positions are counted" in said


def graph_of(kind: str, given: tuple[int, ...], made: tuple[int, ...], **attributes: object) -> Graph:
    """One operator that no file leads to."""
    tensors = tuple(Tensor(name, shape, "float16", (), "float32") for name, shape in (("x", given), ("y", made)))
    op = Op("it", kind, ("x",), ("y",), tuple(attributes.items()))  # type: ignore[arg-type]
    return Graph("one", ("x",), ("y",), (op,), tensors)


def test_images_beyond_32_bits_are_refused() -> None:
    wide = {"kernel": (2,), "strides": (1 << 29,), "dilations": (1,), "pads": (0, 1 << 30)}
    graph = graph_of("max_pool", (1, 1 << 29, 1), (1, 3, 1), **wide)
    said = accepts(graph, graph.ops[0], {}, A100)
    assert said is not None
    assert said.startswith("padded extent of 1610612736 along an axis")


def test_tensors_beyond_32_bits_are_refused() -> None:
    graph = graph_of("relu", (1 << 16, 1 << 15), (1 << 16, 1 << 15))
    assert accepts(graph, graph.ops[0], {}, A100) == "x has 2147483648 elements, at most 1073741824 are indexed"


def test_linear_resizing_of_channels_is_refused() -> None:
    graph = graph_of("resize", (1, 4, 4), (1, 8, 8), mode="linear", coordinates="asymmetric", rounding="floor")
    said = accepts(graph, graph.ops[0], {}, A100)
    assert said == "linear resizing of the axis that runs fastest, which holds channels"


def test_kinds_without_a_kernel_are_refused() -> None:
    graph = graph_of("rotary_embedding", (4, 4), (4, 4))
    assert accepts(graph, graph.ops[0], {}, A100) == "no kernel computes this rotary_embedding"


def test_attention_to_keys_in_several_parts_is_refused() -> None:
    graph = graph_of("attend", (1, 4, 8), (1, 4, 8), heads=1, groups=1, parts=2, scale=1.0)
    assert accepts(graph, graph.ops[0], {}, A100) == "no kernel computes this attend"


def test_each_kind_says_its_rules() -> None:
    target = find_target("sm_80")
    assert target is not None
    said = dict(target.operators())
    kinds = ("conv", "max_pool", "concat", "transpose", "resize", "relu", "add", "softplus")
    assert [kind for kind in kinds if not said[kind].endswith(".")] == []
