"""PyTorch's side of the comparison on a GPU knows what the GPU's graphs have, and computes attention as they do."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.torch_operators import KINDS, Asked
from codegen.cutlass.reference import KINDS as JUDGED
from tests.codegen.cutlass.reference.fed_layers import by_hand, evaluated


def test_every_kind_that_is_judged_can_be_compared() -> None:
    assert set(KINDS) == JUDGED


@pytest.mark.parametrize(
    ("sees", "mask", "apart"), [(0, (), False), (1, (), False), (3, (), True), (0, (2, 1, 5, 7), False)]
)
def test_attention_is_that_of_the_reference(sees: int, mask: tuple[int, ...], apart: bool) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    of_keys = ((2, 2, 7, 6), (2, 2, 7, 3)) if apart else ((2, 7, 12), (2, 7, 6))
    shapes = ((2, 5, 24), *of_keys, *((mask,) if mask else ()))
    operands = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    attributes = {"heads": 4, "groups": 2, "parts": 1, "scale": 0.4, **({"first_sees": sees} if sees else {})}
    found = by_hand("attend", operands, (2, 5, 12), **attributes)
    values = {name: torch.tensor(value.astype(np.float64)) for name, value in found.values.items()}
    ours = KINDS["attend"](Asked(torch, found.graph, found.graph.ops[0], values))
    np.testing.assert_allclose(ours.numpy(), evaluated(found, found.layers[0]).numbers, rtol=1e-9, atol=1e-12)
