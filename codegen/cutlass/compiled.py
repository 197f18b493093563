"""Sources of a network compiled, and the launches of CUTLASS's kernels printed by their programs of the host.

    sources --nvcc, some at a time--> PTX and machine code, by source      HostLaunch --program--> grid, parameters
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir

from codegen.cutlass.launches import HostLaunch, Source
from codegen.cutlass.nvcc import Compiler
from codegen.cutlass.ptx import Module, parse
from hw_models.errors import TargetError
from hw_models.scratch import scratch_folder

__all__ = ["Compiled", "Printed", "compile_sources", "file_stem", "printed_launches"]

WORKERS = min(4, os.cpu_count() or 1)
"""Compilers at a time: each takes up to half a gigabyte."""
LINE = re.compile(r"(\d{1,9}) (\d{1,10}) (\d{1,5}) (\d{1,5}) (\d{1,4}) ((?:[0-9a-f]{2}){1,4096})")
MOST_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Compiled:
    """One source as PTX and machine code; `module` is the PTX read."""

    source: Source
    ptx: str
    cubin: bytes
    module: Module


@dataclass(frozen=True, slots=True)
class Printed:
    """What a program of the host says of a launch."""

    shared_bytes: int
    grid: tuple[int, int, int]
    threads: int
    parameters: bytes


def file_stem(source: Source) -> str:
    """A file name for a source, the same for equal ones."""
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', source.name)[:80]}_{sha256(source.text.encode()).hexdigest()[:12]}"


def compile_sources(
    sources: Iterable[Source], architecture: str, compiler: Compiler, progress: Callable[[str], None]
) -> dict[Source, Compiled]:
    """Each source once. Raises NvccError for one that nvcc refuses."""
    distinct = list(dict.fromkeys(sources))

    def compiled(source: Source) -> Compiled:
        ptx = compiler.ptx(source.text, architecture, cutlass=source.cutlass, name=source.name)
        cubin = compiler.assembled(ptx, architecture, name=source.name)
        progress(f"compiled kernel {source.name}")
        return Compiled(source, ptx, cubin, parse(ptx))

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(distinct, pool.map(compiled, distinct), strict=True))


def printed_launches(launches: Sequence[HostLaunch], compiler: Compiler) -> list[Printed]:
    """What the programs of these launches print, each compiled once. Raises NvccError, or TargetError for a program
    that fails."""
    sources = list(dict.fromkeys(launch.source for launch in launches))

    def program(source: Source) -> bytes:
        return compiler.program(f"#define PARAMETERS\n{source.text}", cutlass=source.cutlass, name=source.name)

    with ThreadPoolExecutor(WORKERS) as pool:
        programs = dict(zip(sources, pool.map(program, sources), strict=True))
    with scratch_folder(Path(gettempdir())) as scratch:
        paths = {}
        for number, (source, data) in enumerate(programs.items()):
            paths[source] = scratch.path / f"parameters{number}"
            paths[source].write_bytes(data)
            paths[source].chmod(0o700)
        return [_printed(paths[launch.source], launch) for launch in launches]


def _printed(path: Path, launch: HostLaunch) -> Printed:
    words = [str(path), *map(str, launch.numbers)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    found = LINE.fullmatch(done.stdout.strip())
    if done.returncode or found is None:
        said = (done.stderr or done.stdout).strip()[:200]
        raise TargetError(f"kernel {launch.source.name}", needs="its parameters from a program of the host",
                          has=f"exit code {done.returncode}: {said}")  # fmt: skip
    shared, x, y, z, threads = (int(found[number]) for number in range(1, 6))
    return Printed(shared, (x, y, z), threads, bytes.fromhex(found[6]))
