"""Models as task graphs, and tasks as models: what is computed part by part is what the whole computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dsa_sched.frontend.load import load_source
from dsa_sched.placement.model.from_onnx import TaskModel, task_graph_of, task_model_of
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, grouped
from hw_models.errors import ModelError
from tests.placement_models import draw, model_of

Array = npt.NDArray[Any]


def fork() -> onnx.ModelProto:
    """A convolution, two branches (one with a leading and two trailing light nodes), a sum, a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "stem.relu"),
        helper.make_node("Sigmoid", ["b"], ["c"], "left.gate"),
        helper.make_node("Conv", ["c", "w1"], ["d"], "left", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["d", "two"], ["e"], "left.scale"),
        helper.make_node("MaxPool", ["b"], ["f"], "right", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Add", ["e", "f"], ["g"], "sum"),
        helper.make_node("Shape", ["g"], ["s"], "shape", end=1),
        helper.make_node("Concat", ["s", "rest"], ["t"], "target", axis=0),
        helper.make_node("Reshape", ["g", "t"], ["h"], "flat"),
        helper.make_node("MatMul", ["h", "w2"], ["y"], "head"),
    ]
    constants: dict[str, npt.ArrayLike] = {"w0": draw(4, 3, 3, 3), "w1": draw(4, 4, 3, 3), "w2": draw(4 * 64, 5)}
    return model_of(nodes, {"x": (2, 3, 8, 8)}, ["y"], two=np.float32(2), rest=np.array([-1], np.int64), **constants)


def run(part: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session: Any = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in part.graph.output]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def run_by_parts(tasks: TaskModel, feeds: Mapping[str, Array]) -> dict[str, Array]:
    values = dict(feeds)
    for task in tasks.graph.tasks:
        if not task.is_end:
            part = tasks.part(task)
            onnx.checker.check_model(part.model, full_check=True)
            values |= run(part.model, {name: values[name] for name in part.inputs})
    return {name: values[name] for name in tasks.network.outputs}


def assert_parts_are_the_whole(model: onnx.ModelProto, tasks: TaskModel) -> None:
    feeds = {item.name: draw(*(d.dim_value for d in item.type.tensor_type.shape.dim)) for item in model.graph.input}
    for name, array in run(model, feeds).items():
        np.testing.assert_allclose(run_by_parts(tasks, feeds)[name], array, rtol=1e-4, atol=1e-4)


def test_tasks_are_layers() -> None:
    graph = task_graph_of(fork())
    assert {task.name: task.nodes for task in graph.tasks} == {
        INPUTS: (),
        "stem": ("stem", "stem.relu"),
        "left": ("left.gate", "left", "left.scale"),
        "right": ("right", "sum", "flat"),
        "head": ("head",),
        OUTPUTS: (),
    }
    sizes = {value.name: (value.producer, value.consumers, value.size_bytes) for value in graph.values}
    assert sizes == {
        "x": (INPUTS, ("stem",), 4 * 2 * 3 * 64),
        "b": ("stem", ("left", "right"), 4 * 2 * 4 * 64),
        "e": ("left", ("right",), 4 * 2 * 4 * 64),
        "h": ("right", ("head",), 4 * 2 * 4 * 64),
        "y": ("head", (OUTPUTS,), 4 * 2 * 5),
    }


def test_work_is_counted_from_shapes() -> None:
    work = {task.name: (task.macs, task.constant_bytes) for task in task_graph_of(fork()).tasks}
    plane = 2 * 4 * 64
    assert work["stem"] == (plane * 27 + plane, 4 * 4 * 27)
    assert work["left"] == (plane + plane * 36 + plane, 4 * 4 * 36 + 4)
    assert work["right"][0] == plane * 9 + plane
    assert work["head"] == (2 * 5 * 256, 4 * 256 * 5)


def test_parts_compute_what_the_whole_does() -> None:
    model = fork()
    tasks = task_model_of(model)
    assert_parts_are_the_whole(model, tasks)
    assert tasks.whole.inputs == ("x",)
    assert tasks.whole.outputs == ("y",)


def test_an_input_that_is_an_output_is_part_of_the_whole() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"], "relu")], {"x": (2, 3), "z": (4,)}, ["y", "z"])
    whole = task_model_of(model).whole
    assert (whole.inputs, whole.outputs) == (("x", "z"), ("y", "z"))
    feeds = {"x": draw(2, 3), "z": draw(4)}
    assert np.array_equal(run(whole.model, feeds)["z"], feeds["z"])


@pytest.mark.parametrize("groups", [[(0,), (1, 2, 3, 4), (5,)], [(0,), (1,), (2, 3), (4,), (5,)]])
def test_coarser_tasks_are_cut_alike(groups: list[tuple[int, ...]]) -> None:
    model = fork()
    single = task_model_of(model)
    tasks = replace(single, graph=grouped(single.graph, groups))
    assert len(tasks.graph.tasks) == len(groups)
    assert_parts_are_the_whole(model, tasks)


def test_operators_that_the_compiler_does_not_know_are_tasks() -> None:
    """A recurrence, a node with two outputs, values and nodes that nobody reads."""
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], ["all", "last"], "gru", hidden_size=4),
        helper.make_node("Squeeze", ["last"], ["row"], "squeeze"),
        helper.make_node("TopK", ["row", "k"], ["best", "which"], "top"),
        helper.make_node("Cast", ["which"], ["index"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["best", "index"], ["y"], "add"),
        helper.make_node("Neg", ["k2"], ["constant"], "neg"),
    ]
    constants: dict[str, npt.ArrayLike] = {"k": np.array([2], np.int64), "k2": np.float32(3)}
    model = model_of(nodes, {"x": (5, 3, 6)}, ["y"], w=draw(1, 12, 6), r=draw(1, 12, 4), **constants)
    tasks = task_model_of(model)
    assert [task.name for task in tasks.graph.tasks] == [INPUTS, "gru", "top", "cast", OUTPUTS]
    assert tasks.graph.tasks[1].macs == 5 * 3 * (12 * 6 + 12 * 4)
    assert_parts_are_the_whole(model, tasks)


def test_nested_graphs_and_foreign_operators_are_refused(tmp_path: Any) -> None:
    model = model_of([helper.make_node("Magic", ["x"], ["y"], "m", domain="a.b")], {"x": (2, 3)}, ["y"])
    model.opset_import.append(helper.make_opsetid("a.b", 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"domain a\.b is not standard ONNX"):
        load_source(path)


def test_values_of_unknown_size_are_refused() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"], "where"), helper.make_node("Cast", ["i"], ["y"], "c", to=1)]
    with pytest.raises(ModelError, match=r"tensor i: needs .* static shape"):
        task_graph_of(model_of(nodes, {"x": (2, 3)}, ["y"]))


def test_a_model_without_inputs_has_no_tasks() -> None:
    with pytest.raises(ModelError, match="constants alone"):
        task_graph_of(model_of([helper.make_node("Neg", ["k"], ["y"], "n")], {"x": (2, 3)}, ["y"], k=draw(2)))


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_networks_of_the_zoo_part_by_part(name: str) -> None:
    model = load_source(name)
    tasks = task_model_of(model)
    assert len(tasks.graph.tasks) < len(tasks.network.nodes)
    assert_parts_are_the_whole(model, tasks)


@pytest.mark.parametrize("names", [("%inputs", "b"), ("a", "%outputs"), ("a", "%inputs")])
def test_nodes_named_as_the_ends_of_a_graph_are_named(names: tuple[str, str]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["h"], names[0]),
        helper.make_node("Conv", ["h", "w"], ["y"], names[1]),
    ]
    model = model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], v=draw(4, 3, 1, 1), w=draw(4, 4, 1, 1))
    with pytest.raises(ModelError, match=r"node %(in|out)puts: needs another name"):
        task_model_of(model)
