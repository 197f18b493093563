"""What operators belong to: stages by pixels, groups by the plan, from a graph or from an artifact's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dsa_sched
from dsa_sched.analysis.artifact_timing import time_path
from dsa_sched.analysis.network_stages import artifact_parts, pixel_stages, plan_groups
from dsa_sched.artifact.format import GRAPH_FILE, Artifact
from dsa_sched.frontend.load import load_model
from hw_models.errors import TargetError
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import parse_plan
from tests.small_models import classifier, save


def test_stages_of_a_residual_network_end_where_it_down_samples() -> None:
    stages = pixel_stages(load_model("resnet50", {}, 1).graph)
    assert list(dict.fromkeys(stages.values())) == ["112x112", "56x56", "28x28", "14x14", "7x7", "1x1"]
    assert stages["n0"] == "112x112"
    assert stages["n174"] == "1x1", "the classifier's vector counts as one pixel"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = classifier()
    for node in model.graph.node:
        node.name = f"/{node.name or node.output[0]}/it"
    path = save(model, tmp_path_factory.mktemp("model") / "m.onnx")
    return dsa_sched.compile(path, chip="stcp920", level="O3")


def test_an_artifact_knows_the_parts_of_all_its_work(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "out")
    sources = {span.source for span in time_path(tmp_path / "out", "stcp920").programs[0].timeline.spans if span.unit}
    assert all(source.startswith("_") for source in sources), "symbols have no slashes"
    groups = plan_groups(parse_plan(artifact.texts["plan.txt"].decode()))
    for by, parts in (("stage", pixel_stages(parse_graph(artifact.texts[GRAPH_FILE].decode()))), ("group", groups)):
        known = artifact_parts(artifact, by, "m")
        assert set(sources) <= set(known)
        assert all(known[name] == part for name, part in parts.items())
        assert set(known.values()) == set(parts.values())


def test_an_artifact_without_its_graph_is_refused(artifact: Artifact) -> None:
    old = replace(artifact, texts={name: text for name, text in artifact.texts.items() if name != GRAPH_FILE})
    with pytest.raises(TargetError, match=r"out: needs graph\.txt, which says the stage of an operator; has none"):
        artifact_parts(old, "stage", "out")
