"""Runners that start the launches of a compiled network: in Python and C on a GPU, in Python on the executor of PTX.

runner.py, runner.c    read `launches.json` and `launches.bin`, know nothing else of this project, and are copied into
                       each artifact
executor_driver.py     replaces the GPU under runner.py
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

__all__ = ["FILES", "runner_files"]

FILES: Final = (
    "CMakeLists.txt",
    "README.txt",
    "launch_list.c",
    "launch_list.h",
    "program.c",
    "runner.c",
    "runner.h",
    "runner.py",
)


def runner_files() -> Mapping[str, bytes]:
    """Bytes by file name of the files next to every `launches.json`; they are equal for every network."""
    folder = files(__name__)
    return MappingProxyType({name: (folder / name).read_bytes() for name in FILES})
