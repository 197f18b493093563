"""The sample that writes text: its tokens are onnxruntime's, with weights as drawn and with trained ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "samples" / "generate.py"
NEAR = 0.01
"""Of a perplexity, relative to that of fp32."""
MOST = 12.0
"""Perplexity of a network that has learned something; without training it is above 100."""


def said(*options: str) -> str:
    command = [sys.executable, str(SAMPLE), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.nightly
def test_drawn_weights_give_the_same_tokens() -> None:
    assert "tokens that are onnxruntime's: 6 of 6" in said("--tokens", "6")


@pytest.mark.nightly
def test_a_trained_network_gives_the_same_tokens() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[exports]'")
    told = said("--train", "400", "--tokens", "64", "--held", "1000")
    assert "tokens that are onnxruntime's: 64 of 64" in told
    found = re.search(r"perplexity of held text: (\S+), in fp32 (\S+)", told)
    assert found
    ours, exact = map(float, found.groups())
    assert exact < MOST
    assert abs(ours - exact) <= NEAR * exact
