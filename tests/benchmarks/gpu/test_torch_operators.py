"""PyTorch's side knows what the target computes. It runs where PyTorch is, which no test requires."""

from __future__ import annotations

from benchmarks.gpu.torch_operators import KINDS
from codegen.cutlass.reference import KINDS as JUDGED


def test_every_operator_that_is_judged_is_known() -> None:
    assert set(KINDS) == JUDGED
