"""The small network in a folder of its own, and what of C the tests need, built once a session."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.runner import runner_files
from tests.codegen.cutlass.runner.small_network import Kernels, compiled, write_network

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1")


def build(*arguments: str | Path) -> None:
    """Runs gcc, which the tests need as they need g++. Raises AssertionError with its words."""
    done = subprocess.run(["gcc", *map(str, arguments), "-ldl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def kernels(compiler: Compiler) -> Kernels:
    return compiled(compiler)


@pytest.fixture
def folder(kernels: Kernels, tmp_path: Path) -> Path:
    """A folder that a test may damage."""
    return write_network(tmp_path / "network", kernels)


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH with a libcuda.so.1 that needs no GPU."""
    place = tmp_path_factory.mktemp("fake_cuda")
    source = Path(__file__).with_name("fake_cuda.c")
    named = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    build("-std=c11", "-Wall", "-Wextra", "-Werror", *named, source, "-o", place / "libcuda.so.1")
    return place


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner's files as an artifact has them."""
    place = tmp_path_factory.mktemp("sources")
    for name, data in runner_files().items():
        (place / name).write_bytes(data)
    return place


@pytest.fixture(scope="session")
def c_library(sources: Path) -> Path:
    """The runner in C as a shared library."""
    path = sources / "libdsa_runner.so"
    build(*STRICT, "-shared", "-fPIC", sources / "runner.c", sources / "launch_list.c", "-o", path)
    return path


@pytest.fixture(scope="session")
def c_program(sources: Path) -> Path:
    """The program around it, which ends where it touches memory that is not its own."""
    path = sources / "dsa_run"
    parts = (sources / name for name in ("runner.c", "launch_list.c", "program.c"))
    build(*STRICT, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *parts, "-o", path)
    return path
