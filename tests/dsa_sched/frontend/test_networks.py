"""Whole networks: every comparable tensor of our graph against onnxruntime on the original file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsa_sched.frontend import load_model
from dsa_sched.zoo import seeded_inputs
from partitioner.ir.graph_text import parse_graph
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

slow = pytest.mark.nightly


CLASSIFIER = "view matmul softmax"


@pytest.mark.parametrize(
    ("name", "batch", "kinds"),
    [
        ("squeezenet", 1, "conv relu concat max_pool average_pool softmax"),
        ("mobilenet_v2-mini", 2, "conv clip add average_pool view matmul"),
        ("resnet18_tailor-mini", 1, "conv relu"),
        pytest.param(
            "shufflenet",
            2,
            f"conv relu transpose add concat max_pool average_pool {CLASSIFIER}",
            marks=pytest.mark.nightly,
        ),
        pytest.param("densenet121", 1, "conv relu max add scale_shift concat max_pool average_pool", marks=slow),
        pytest.param("resnet50", 2, f"conv relu add max_pool average_pool {CLASSIFIER}", marks=slow),
        pytest.param("bvlc_alexnet", 2, f"conv relu lrn max_pool {CLASSIFIER}", marks=slow),
        pytest.param("inception_v1", 1, f"conv relu lrn max_pool concat average_pool {CLASSIFIER}", marks=slow),
        pytest.param("inception_v2", 1, f"conv relu max_pool concat average_pool {CLASSIFIER}", marks=slow),
    ],
)
def test_every_layer_of_a_network(name: str, batch: int, kinds: str) -> None:
    model = load_model(name, batch=batch)
    (inputs,) = seeded_inputs(model.source, 1, seed=0)
    errors = layer_errors(model.graph, model.constants, model.source, inputs, model.origins)
    assert {op.kind for op in model.graph.ops} == set(kinds.split())
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < 2e-3  # weights rounded to fp16, where sums cancel
    skipped = [op for op in model.graph.ops if op.outputs[0] not in errors]
    assert all(op.is_view for op in skipped)
    assert all(line.startswith("elements that become zero in fp16 next to larger ones") for line in model.warnings)


@pytest.mark.commit
def test_resnet50_is_what_the_literature_says() -> None:
    model = load_model("resnet50")
    graph = model.graph
    kinds = [op.kind for op in graph.ops]
    assert {kind: kinds.count(kind) for kind in ("conv", "relu", "add", "max_pool", "matmul")} == {
        "conv": 53,
        "relu": 49,
        "add": 16,
        "max_pool": 1,
        "matmul": 1,
    }
    assert sum(op.macs for op in graph.ops) == 4_089_184_256
    assert parse_graph(str(graph)) == graph
    assert {node.name for node in model.source.graph.node} >= {op.name for op in graph.ops}


@pytest.mark.nightly
def test_equal_bytes_under_other_hash_seeds(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 4, 6, 6), builder.weights(4, 2, 3, 3), group=2)
    shape = builder.node("Concat", builder.node("Shape", y, end=2), builder.integers(16), axis=0)
    y = builder.node("Softmax", builder.node("Add", builder.node("Reshape", y, shape), builder.weights(16)))
    path = builder.save(tmp_path, y)
    script = (
        "import sys; from dsa_sched.frontend import load_model; m = load_model(sys.argv[1]); "
        "sys.stdout.write(str(m.graph) + ''.join(m.constants) + m.sha256)"
    )
    found = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, env=environment, check=True
        )
        found.add(hashlib.sha256(run.stdout).hexdigest())
    model = load_model(path)
    text = str(model.graph) + "".join(model.constants) + model.sha256
    assert found == {hashlib.sha256(text.encode()).hexdigest()}
