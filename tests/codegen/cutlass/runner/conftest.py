"""The small network in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.cutlass.nvcc import Compiler
from tests.codegen.cutlass.runner.small_network import Kernels, compiled, write_network


@pytest.fixture(scope="session")
def kernels(compiler: Compiler) -> Kernels:
    return compiled(compiler)


@pytest.fixture
def folder(kernels: Kernels, tmp_path: Path) -> Path:
    """A folder that a test may damage."""
    return write_network(tmp_path / "network", kernels)
