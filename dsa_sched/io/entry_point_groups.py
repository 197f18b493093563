"""Groups of entry points by which other packages take part in a compilation."""

from __future__ import annotations

from typing import Final

OPERATORS: Final = "dsa_sched.operators"
"""Functions that read one kind of ONNX operator each."""
