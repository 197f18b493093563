"""Sources of a network compiled.

sources --nvcc, some at a time--> PTX and machine code, by source
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.kernel.launches import Source
from codegen.cutlass.ptx import Module, parse

WORKERS = min(4, os.cpu_count() or 1)
"""Compilers at a time: each takes up to half a gigabyte."""


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """One source as PTX and machine code; `module` is the PTX read."""

    source: Source
    ptx: str
    cubin: bytes
    module: Module


def file_stem(source: Source) -> str:
    """A file name for a source, the same for equal ones."""
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', source.name)[:80]}_{sha256(source.text.encode()).hexdigest()[:12]}"


def compile_sources(
    sources: Iterable[Source], architecture: str, compiler: Compiler, progress: Callable[[str], None]
) -> dict[Source, CompiledSource]:
    """Each source once. Raises NvccError for one that nvcc refuses."""
    distinct = list(dict.fromkeys(sources))

    def compiled(source: Source) -> CompiledSource:
        ptx = compiler.ptx(source.text, architecture, cutlass=source.cutlass, name=source.name)
        cubin = compiler.assembled(ptx, architecture, name=source.name)
        progress(f"compiled kernel {source.name}")
        return CompiledSource(source, ptx, cubin, parse(ptx))

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(distinct, pool.map(compiled, distinct), strict=True))
