"""nvcc is found, its results are kept and equal, and what goes wrong is said in a sentence."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from codegen.cutlass.emission import nvcc
from codegen.cutlass.emission.nvcc import Compiler, NvccError, cutlass_include, find_nvcc

SOURCE = """
namespace { __device__ int hidden[4]; }
extern "C" __global__ void add(int* x) { x[threadIdx.x] += hidden[threadIdx.x % 4]++; }
"""


def nowhere(name: str) -> None:
    """No module is found."""
    del name


@pytest.mark.commit
def test_equal_input_gives_equal_bytes_kept_or_not(compiler: Compiler, tmp_path: Path) -> None:
    alone = replace(compiler, cache=None)
    first, second = alone.ptx(SOURCE, "80"), alone.ptx(SOURCE, "80")
    assert first == second
    assert ".visible .entry add(" in first
    assert ".target sm_80" in first
    kept = replace(compiler, cache=tmp_path / "kept")
    assert kept.ptx(SOURCE, "80") == first
    (file,) = (tmp_path / "kept").iterdir()
    text = b"from the cache"
    file.write_bytes(sha256(text).hexdigest().encode() + b"\n" + text)
    assert kept.ptx(SOURCE, "80") == "from the cache"
    assert kept.ptx(SOURCE, "90a") != "from the cache"
    assert kept.ptx(SOURCE + "// changed", "80") == first.replace(*_seeds(first, kept.ptx(SOURCE + "// changed", "80")))


@pytest.mark.parametrize("damage", [b"", b"garbage", b"0" * 64 + b"\n.version 9.9"])
def test_a_damaged_cache_is_made_again(compiler: Compiler, tmp_path: Path, damage: bytes) -> None:
    kept = replace(compiler, cache=tmp_path / "kept")
    first = kept.ptx(SOURCE, "80")
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(damage)
    assert kept.ptx(SOURCE, "80") == first
    assert kept.ptx(SOURCE, "80") == first
    assert file.read_bytes().endswith(first.encode())


def test_a_cache_that_cannot_be_used_is_no_error(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = replace(compiler, cache=tmp_path / "file" / "nvcc")
    assert kept.ptx(SOURCE, "80") == replace(compiler, cache=None).ptx(SOURCE, "80")


def _seeds(first: str, second: str) -> tuple[str, str]:
    """The number in names of internal things, which depends on the source."""
    found = [re.search(r"_(?:GLOBAL__N__|INTERNAL_)([0-9a-f]{8})_", text) for text in (first, second)]
    assert all(found)
    a, b = (match.group(1) for match in found if match)
    assert a != b
    return a, b


def test_machine_code_is_an_elf_file(compiler: Compiler) -> None:
    assert compiler.cubin(SOURCE, "90a")[:4] == b"\x7fELF"


def test_errors_in_the_source_are_shown(compiler: Compiler) -> None:
    with pytest.raises(
        NvccError, match=r'mine: nvcc refuses the source:\n.*kernel.cu\(2\): error: identifier "y" is undefined'
    ):
        compiler.ptx("// one\n__global__ void f() { int x = y; }", "80", name="mine")
    many = "\n".join(f"__global__ void f{k}() {{ int x = y; }}" for k in range(40))
    with pytest.raises(NvccError, match="more lines") as caught:
        compiler.ptx(many, "80")
    assert len(str(caught.value).splitlines()) < 20


def test_what_cannot_be_asked_for(compiler: Compiler) -> None:
    with pytest.raises(NvccError, match="architecture 20 is not known; known are 80, 86"):
        compiler.ptx(SOURCE, "20")
    with pytest.raises(NvccError, match=r"the source has .* characters, at most"):
        compiler.ptx(" " * (nvcc.MAX_SOURCE_BYTES + 1), "80")
    with pytest.raises(NvccError, match=r"slow: nvcc did not finish within 0.001 s"):
        replace(compiler, cache=None, timeout_s=0.001).ptx(SOURCE, "80", name="slow")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    monkeypatch.setenv("PATH", "/nowhere")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(NvccError, match=r"nvcc was not found: install the wheels of the extra `gpu`"):
        find_nvcc()
    with pytest.raises(NvccError, match=r"pip install --no-deps nvidia-cutlass=="):
        cutlass_include()
    with pytest.raises(NvccError, match=r"nvcc needs g\+\+"):
        replace(compiler, cache=None).ptx(SOURCE, "80")


def test_a_toolkit_of_the_environment_is_found(monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    monkeypatch.setenv("CUDA_HOME", str(compiler.path.parents[1]))
    assert find_nvcc().path == compiler.path
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", str(compiler.path.parent))
    assert find_nvcc().version == compiler.version


def test_an_nvcc_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("#!/bin/sh\necho broken\n")
    (tmp_path / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(NvccError, match="--version does not name a version"):
        find_nvcc()
