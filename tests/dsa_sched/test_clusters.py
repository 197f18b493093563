"""Several clusters: the batch is divided among them, each runs a program of its own in its own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper, save

import dsa_sched
from dsa_sched.cli import cli
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conv -> relu -> mean, three images in the file."""
    weights = np.random.default_rng(0).normal(0, 0.2, (24, 8, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="pool"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 9, 11])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24, 1, 1])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path_factory.mktemp("clusters") / "small.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def images(rows: int) -> Array:
    return np.random.default_rng(1).normal(size=(rows, 8, 9, 11)).astype(np.float32)


def test_four_clusters_give_the_bits_of_one(model: Path, tmp_path: Path) -> None:
    """Five images over four clusters: two on the first, one on each other; all 32 cores run."""
    artifact = dsa_sched.compile(model, "stcp920", batch=5, clusters=4, level="O0")
    artifact.save(tmp_path / "out")
    loaded = dsa_sched.load(tmp_path / "out")
    assert [(p.cluster, p.cores, p.batch_start, p.batch) for p in loaded.manifest.programs] == [
        (0, 8, 0, 2),
        (1, 8, 2, 1),
        (2, 8, 3, 1),
        (3, 8, 4, 1),
    ]
    x = images(5)
    together = dsa_sched.compile(model, "stcp920", batch=5, level="O0").run({"x": x})["y"]
    assert np.array_equal(loaded.run({"x": x})["y"], together)


def test_clusters_differ_in_code_but_not_in_weights(model: Path) -> None:
    """Each has its own slice of the LLB and its own DMA engines."""
    artifact = dsa_sched.compile(model, "stcp920", batch=2, clusters=2, level="O0")
    first, second = (files.files["program.s"] for files in artifact.clusters)
    assert first != second
    assert len(first.splitlines()) == pytest.approx(len(second.splitlines()), abs=8)


def test_the_command_names_every_program(model: Path, tmp_path: Path) -> None:
    arguments = [
        "compile",
        str(model),
        "--chip",
        "stcp920",
        "--batch",
        "3",
        "--clusters",
        "2",
        "-o",
        str(tmp_path / "o"),
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "cluster0/program.elf" in done.output
    assert "cluster1/program.elf" in done.output


@pytest.mark.parametrize(
    ("clusters", "batch", "needs"), [(5, 8, "1 to 4"), (2, None, "batch of at least 2"), (3, 2, "3")]
)
def test_a_division_that_cannot_be_is_refused(model: Path, clusters: int, batch: int | None, needs: str) -> None:
    with pytest.raises(ModelError, match=needs):
        dsa_sched.compile(model, "stcp920", batch=batch, shape={"x": (1, 8, 9, 11)}, clusters=clusters, level="O0")


def test_a_wrong_number_of_rows_is_refused(model: Path) -> None:
    artifact = dsa_sched.compile(model, "stcp920", batch=4, clusters=2, level="O0")
    with pytest.raises(ModelError, match="4 rows"):
        artifact.run({"x": images(3)})
