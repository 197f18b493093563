"""ONNX file -> checked, simplified -> Graph with access maps."""

from __future__ import annotations

from dsa_sched.frontend.load import Model, load_model, open_model

__all__ = ["Model", "load_model", "open_model"]
