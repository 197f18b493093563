"""What `setup.py` asks for and what `requirements.lock` installs agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
GPU = (
    "cuda-bindings",
    "nvidia-cuda-cccl",
    "nvidia-cuda-crt",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-runtime",
    "nvidia-nvvm",
)
"""The extra `gpu`: parts of one CUDA release."""


def locked() -> dict[str, str]:
    """Canonical name -> version, as the lock file pins it."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): pinned for name, pinned in pins}


def asked() -> Iterator[Requirement]:
    """Every requirement of setup.py, those of extras too."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    settings = {node.arg: node.value for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    extras = settings["extras_require"]
    assert isinstance(extras, ast.Dict)
    for listed in (settings["install_requires"], *extras.values):
        assert isinstance(listed, ast.List)
        yield from (Requirement(str(ast.literal_eval(item))) for item in listed.elts)


@pytest.mark.parametrize("requirement", list(asked()), ids=str)
def test_the_lock_file_pins_what_setup_admits(requirement: Requirement) -> None:
    pinned = locked()[canonicalize_name(requirement.name)]
    assert pinned in requirement.specifier
    exact = requirement.name in ("apache-tvm", "apache-tvm-ffi", "ruff", "mypy") or requirement.name in GPU
    assert (str(requirement.specifier)[:2] == "==") == exact, "only TVM, nvcc and the tools of `make lint` are exact"


def test_the_tests_run_with_what_is_installed() -> None:
    """Not with what is pinned, necessarily: but within what setup.py admits."""
    for requirement in asked():
        assert version(requirement.name) in requirement.specifier, requirement


def test_the_tests_have_what_the_extra_gpu_has() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    keywords = (node for node in ast.walk(tree) if isinstance(node, ast.keyword))
    (lists,) = (ast.literal_eval(word.value) for word in keywords if word.arg == "extras_require")
    assert {Requirement(line).name for line in lists["gpu"]} == set(GPU)
    assert set(lists["gpu"]) <= set(lists["test"])


def test_cutlass_is_installed_without_what_it_asks_for() -> None:
    """The version is the lock's; what the sentence for users and setup.py name is the same."""
    pinned = f"nvidia-cutlass=={locked()['nvidia-cutlass']}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--no-deps --constraint requirements.lock nvidia-cutlass\n" in makefile
    for path in ("setup.py", "codegen/cutlass/emission/nvcc.py"):
        assert f"--no-deps {pinned}" in (ROOT / path).read_text(encoding="utf-8"), path
    assert version("nvidia-cutlass") == locked()["nvidia-cutlass"]
