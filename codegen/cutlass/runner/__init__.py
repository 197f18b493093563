"""Who starts the launches of a compiled network: in Python and in C on a GPU, in Python on the executor of PTX.

runner.py, runner.c    read `launches.json`, know nothing else of this project, and are copied into each artifact
executor_driver.py     takes the place of the GPU under runner.py
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
    """Bytes by file name of what lies beside every `launches.json`: the same for every network."""
    folder = files(__name__)
    return MappingProxyType({name: (folder / name).read_bytes() for name in FILES})
