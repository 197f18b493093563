"""Finished networks in the user's cache directory."""

from __future__ import annotations

import onnx

from dsa_sched.zoo.networks import built_model

__all__ = ["zoo_model"]


def zoo_model(name: str) -> onnx.ModelProto:
    """The network with its weights as initialisers. Raises ModelError for an unknown name."""
    return built_model(name)
