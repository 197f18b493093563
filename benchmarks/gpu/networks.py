"""Which networks are packed, predicted and measured, at which batches and levels."""

from __future__ import annotations

__all__ = ["BATCHES", "LEVELS", "NETWORKS", "SMALL_BATCHES", "SMALL_NETWORKS"]

NETWORKS = ("resnet50", "mobilenet_v2", "resnet18_tailor", "squeezenet", "inception_v1", "densenet121")
BATCHES = (1, 8, 32, 128)
SMALL_NETWORKS = ("mobilenet_v2-mini", "resnet18_tailor-mini")
SMALL_BATCHES = (1, 2)
LEVELS = ("O0", "O3")
"""One kernel a layer; groups of layers, where the target has a kernel for them."""
