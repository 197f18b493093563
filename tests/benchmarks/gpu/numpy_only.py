"""Runs a script of a checkout where nothing but the standard library and NumPy can be imported beside it.

python numpy_only.py CHECKOUT SCRIPT ARGUMENT...
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy

KNOWN = {*sys.stdlib_module_names, numpy.__name__}


class NumPyOnly:
    """A finder before all others that refuses everything else."""

    def __init__(self, checkout: Path) -> None:
        self.own = {path.name for path in checkout.iterdir()}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name.partition(".")[0] not in KNOWN | self.own:
            raise ModuleNotFoundError(f"No module named {name!r}: there is only NumPy here", name=name)
        return None


if __name__ == "__main__":
    checkout, script, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, NumPyOnly(Path(checkout)))
    sys.path[:] = [checkout, *(entry for entry in sys.path if entry.startswith(sys.base_prefix))]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
