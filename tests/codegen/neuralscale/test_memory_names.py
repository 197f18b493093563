"""Names of memories are free in a chip file: other names give the same machine code, and messages in these names."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsa_sched
from codegen.neuralscale.emit.memory_names import memories_by_role, renamed
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.loading import load_chip
from tests.small_models import classifier, save

PLAIN = {"DDR": "dram", "LLB": "shared", "L1": "scratchpad", "IM": "sums"}
MISLEADING = {"DDR": "L1", "LLB": "IM", "L1": "DDR", "IM": "LLB"}


def with_names(names: dict[str, str]) -> Chip:
    return renamed(load_chip("stcp920"), names)


def test_roles_follow_from_scopes_sizes_and_links() -> None:
    for names in (PLAIN, MISLEADING):
        found = {role: memory.name for role, memory in memories_by_role(with_names(names)).items()}
        assert found == names


def test_a_chip_with_the_names_of_the_instruction_set_has_the_target_itself() -> None:
    assert TARGET.named_for(load_chip("stcp920")) is TARGET


@pytest.mark.spread(5)
@pytest.mark.parametrize("level", ["O0", "O2", "auto"])
@pytest.mark.parametrize("names", [PLAIN, MISLEADING], ids=["plain", "misleading"])
@pytest.mark.commit
def test_other_names_take_the_same_cycles(names: dict[str, str], level: str, tmp_path: Path) -> None:
    _compare(save(classifier(), tmp_path / "m.onnx"), names, level)


def test_results_are_right_with_other_names(tmp_path: Path) -> None:
    model = save(classifier(), tmp_path / "m.onnx")
    assert dsa_sched.verify(model, with_names(MISLEADING), level="O1", cache=False).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["wide_deep-mini", "bert_base-mini", "efficientnet_b0-mini", "conformer_m-mini"])
def test_networks_take_the_same_cycles(network: str) -> None:
    _compare(network, MISLEADING, "auto")


def test_messages_have_the_names_of_the_file(tmp_path: Path) -> None:
    model = save(classifier(), tmp_path / "m.onnx")
    plan = str(dsa_sched.plan(model, with_names(PLAIN), level="O3"))
    assert "scratchpad" in str(dsa_sched.explain(model, with_names(PLAIN), level="O3", cache=False))
    assert not {"DDR", "LLB", "L1", "IM"} & set(plan.replace("@", " ").split())


def _compare(model: str | Path, names: dict[str, str], level: str) -> None:
    ours = dsa_sched.compile(model, "stcp920", level=level, cache=False).manifest.figures
    theirs = dsa_sched.compile(model, with_names(names), level=level, cache=False).manifest.figures
    assert ours is not None
    assert theirs is not None
    assert (theirs.cycles, theirs.instructions) == (ours.cycles, ours.instructions)
    assert theirs.main_read_bytes == ours.main_read_bytes
