"""Norms, GELUs and attentions that a file spells out are found again: as many as others find or the configuration says.

file --explain --json--> "found: 5 LayerNorm, 2 GELU, 2 attention"   ==   onnxruntime's optimizer, configuration
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from onnxruntime.transformers.optimizer import optimize_model

from dsa_sched.cli import cli
from tests.exports.table import EXPORTS, REFUSED, Which
from tests.exports.test_exports import CHIP, PLAIN, marked


def counted(model: Path, report: Path) -> Counter[str]:
    """What the decisions of `explain` count."""
    command = ["explain", str(model), "--chip", CHIP, "--level", PLAIN, "--json", str(report)]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    decisions = json.loads(report.read_text(encoding="utf-8"))["decisions"]
    said = [each["verdict"] for each in decisions if each["subject"] == "operators"]
    return Counter({label: int(count) for text in said for count, label in re.findall(r"(\d+) ([^,]+)", text)})


def others(model: Path) -> Counter[str]:
    """Norms and GELUs as onnxruntime's optimizer fuses them, whatever it adds to them."""
    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    fused = optimize_model(str(model), model_type="bert", num_heads=0, hidden_size=0, opt_level=0).model.graph
    kinds = [node.op_type for node in fused.node]
    norms = [kind for kind in kinds if kind.endswith("LayerNormalization") and "Simplified" not in kind]
    return Counter({"LayerNorm": len(norms), "GELU": sum(kind.endswith("Gelu") for kind in kinds)})


@pytest.mark.parametrize("which", marked(each for each in EXPORTS if each not in REFUSED))
def test_what_is_found_is_what_there_is(which: Which, tmp_path: Path) -> None:
    pytest.importorskip(
        "torch", reason="PyTorch, which writes these models, is not installed: pip install '.[exports]'"
    )
    from tests.exports.exporting import export

    written = export(*which, tmp_path)
    found = counted(written.model, tmp_path / "explain.json")
    assert {label: found[label] for label in ("LayerNorm", "GELU")} == dict(others(written.model))
    assert found["attention"] == written.attentions
