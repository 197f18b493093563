"""Networks by name: the topologies that the onnx wheel ships, with seeded and calibrated weights."""

from __future__ import annotations

import numpy as np
import onnx

__all__ = ["seeded_inputs", "zoo_model", "zoo_names"]

# in work, see dsa_sched/zoo


def zoo_names() -> tuple[str, ...]:
    """The networks of the zoo, sorted."""
    raise NotImplementedError


def zoo_model(name: str) -> onnx.ModelProto:
    """The network `name` with real initialisers; `ModelError` for an unknown name."""
    raise NotImplementedError


def seeded_inputs(model: onnx.ModelProto, count: int, seed: int) -> tuple[dict[str, np.ndarray], ...]:
    """`count` sets of inputs for a model with static shapes, a function of (seed, index, input name) only."""
    raise NotImplementedError
