"""Networks whose weights are drawn and not calibrated, and the extents that their publications give to open dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx

from dsa_sched.zoo.siamese import siamese_mini_topology, siamese_topology
from dsa_sched.zoo.vit import (
    vit_b16_384_mini_topology,
    vit_b16_384_topology,
    vit_b16_mini_topology,
    vit_b16_topology,
)

__all__ = ["DRAWN", "Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """`shapes` are extents of inputs that the model file leaves open, as the network was published."""

    topology: Callable[[], onnx.ModelProto]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


DRAWN: Mapping[str, Drawn] = MappingProxyType(
    {
        "siamese": Drawn(siamese_topology),
        "siamese-mini": Drawn(siamese_mini_topology),
        "vit_b16": Drawn(vit_b16_topology),
        "vit_b16-mini": Drawn(vit_b16_mini_topology),
        "vit_b16_384": Drawn(vit_b16_384_topology),
        "vit_b16_384-mini": Drawn(vit_b16_384_mini_topology),
    }
)
