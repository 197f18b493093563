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
    exact = requirement.name in ("apache-tvm", "apache-tvm-ffi", "ruff", "mypy")
    assert (str(requirement.specifier)[:2] == "==") == exact, "only TVM and the tools of `make lint` are exact"


def test_the_tests_run_with_what_is_installed() -> None:
    """Not with what is pinned, necessarily: but within what setup.py admits."""
    for requirement in asked():
        assert version(requirement.name) in requirement.specifier, requirement
