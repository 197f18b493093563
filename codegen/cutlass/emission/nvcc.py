"""Finds nvcc and CUTLASS's headers, and compiles CUDA source to PTX, to cubins and to small programs of the host.

nvcc comes as wheels (extra `gpu`); one on PATH or under CUDA_HOME works as well. Results are kept in a folder of the
caller, by a hash of source, options and nvcc's version. Equal input gives equal bytes: nvcc runs in a folder of its own
and sees only relative names, and the random numbers in its names of internal symbols are replaced.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from hw_models.cache import Cache

ARCHITECTURES: Final = ("80", "86", "89", "90", "90a")
MISSING: Final = (
    "nvcc was not found: install the wheels of the extra `gpu` (pip install '.[gpu]' in the checkout), or put a CUDA "
    "toolkit's bin folder on PATH or the toolkit's folder in CUDA_HOME"
)
NO_CUTLASS: Final = (
    "CUTLASS's headers were not found: pip install --no-deps nvidia-cutlass==4.2.0.0 "
    "(its own requirements are not needed)"
)
NO_HOST: Final = "nvcc needs g++ to read CUDA source: install it (Debian: apt-get install g++)"
PAIRS: Final = Path("examples") / "13_two_tensor_op_fusion"
"""Folder of the wheel with the headers of two products in one kernel, which CUTLASS ships as an example."""
DRAWN: Final = re.compile(rb"(_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}(?=_)")
"""Number that nvcc draws for names of each compilation; ours is computed from the input and has equal length."""
MAX_SOURCE_BYTES: Final = 8 << 20
SHOWN_LINES: Final = 12


class NvccError(Exception):
    """nvcc is missing, or refuses the source; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """An nvcc. `libraries` holds the runtime with which host programs are linked; `cache` is the folder of kept
    results."""

    path: Path
    version: str
    libraries: Path | None = None
    cache: Path | None = None
    timeout_s: float = 300.0

    def ptx(self, source: str, architecture: str, *, cutlass: bool = False, name: str = "kernel") -> str:
        """PTX of CUDA source for `compute_<architecture>`. Raises NvccError."""
        wanted = (f"-gencode=arch=compute_{_known(architecture)},code=compute_{architecture}", "-ptx")
        return self._compiled(source, wanted, "out.ptx", cutlass=cutlass, name=name).decode()

    def cubin(self, source: str, architecture: str, *, cutlass: bool = False, name: str = "kernel") -> bytes:
        """Machine code for `sm_<architecture>`. Raises NvccError."""
        wanted = (f"-gencode=arch=compute_{_known(architecture)},code=sm_{architecture}", "-cubin")
        return self._compiled(source, wanted, "out.cubin", cutlass=cutlass, name=name)

    def assembled(self, ptx: str, architecture: str, *, name: str = "kernel") -> bytes:
        """Machine code for `sm_<architecture>` from PTX text that this compiler has made. Raises NvccError."""
        wanted = (f"-gencode=arch=compute_{_known(architecture)},code=sm_{architecture}", "-cubin")
        return self._compiled(ptx, wanted, "out.cubin", cutlass=False, name=name, given="kernel.ptx")

    def assembly_report(self, ptx: str, architecture: str, *, name: str = "kernel") -> str:
        """Report of ptxas on registers, spills and shared memory when it makes `assembled`. Raises NvccError."""
        wanted = (f"-gencode=arch=compute_{_known(architecture)},code=sm_{architecture}", "-cubin", "-Xptxas", "-v")
        return self._compiled(ptx, wanted, "out.txt", cutlass=False, name=name, given="kernel.ptx", said=True).decode()

    def program(self, source: str, *, cutlass: bool = False, name: str = "program") -> bytes:
        """An executable for the host, such as one that prints the parameters of a CUTLASS kernel. Raises NvccError."""
        libraries = (f"-L{self.libraries}",) if self.libraries else ()
        wanted = ("-gencode=arch=compute_80,code=compute_80", "-cudart=static", *libraries)
        return self._compiled(source, wanted, "out", cutlass=cutlass, name=name)

    def _compiled(
        self,
        source: str,
        wanted: tuple[str, ...],
        result: str,
        *,
        cutlass: bool,
        name: str,
        given: str = "kernel.cu",
        said: bool = False,
    ) -> bytes:
        """The file that nvcc makes, or its output as text."""
        if len(source) > MAX_SOURCE_BYTES:
            raise NvccError(f"{name}: the source has {len(source)} characters, at most {MAX_SOURCE_BYTES} are compiled")
        options = ("-std=c++17", "-O3", "-DNDEBUG", "-w", "-frandom-seed=1", *wanted)
        folders = (cutlass_include(), cutlass_include().parent / PAIRS) if cutlass else ()
        identity = "\0".join(
            (
                self.version,
                *(o for o in options if not o.startswith("-L")),
                cutlass_version() if cutlass else "",
                source,
            )
        )
        cache, key = Cache(self.cache), f"{hashlib.sha256(identity.encode()).hexdigest()}.{result.removeprefix('out.')}"
        if (found := cache.find(key)) is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="nvcc-") as folder:
            (Path(folder) / given).write_text(source, encoding="utf-8")
            command = [str(self.path), *options, *(f"-I{include}" for include in folders), given, "-o", result]
            words = self._run(command, Path(folder), name)
            data = words.encode() if said else (Path(folder) / result).read_bytes()
        if result != "out":
            seed = hashlib.sha256(identity.encode()).hexdigest()[:8].encode()
            data = DRAWN.sub(lambda found: found.group(1) + seed, data)
        cache.keep(key, data)
        return data

    def _run(self, command: list[str], folder: Path, name: str) -> str:
        """Run a command and return its output."""
        if shutil.which("g++") is None:
            raise NvccError(NO_HOST)
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=self.timeout_s,
                env=os.environ | {"TMPDIR": str(folder)},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NvccError(f"{name}: nvcc did not finish within {self.timeout_s:g} s") from None
        if done.returncode:
            raise NvccError(f"{name}: nvcc refuses the source:\n{_readable(done.stderr + done.stdout)}")
        return done.stderr


def _known(architecture: str) -> str:
    if architecture not in ARCHITECTURES:
        raise NvccError(f"architecture {architecture} is not known; known are {', '.join(ARCHITECTURES)}")
    return architecture


def _readable(text: str) -> str:
    """The errors in nvcc's output, at most a dozen lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [k for k, line in enumerate(lines) if re.search(r"\berror\b|fatal", line)]
    first = errors[0] if errors else 0
    shown = lines[first : first + SHOWN_LINES]
    left = len(lines) - first - len(shown)
    return "\n".join((*shown, f"... {left} more lines") if left > 0 else shown)


def _roots() -> Iterator[Path]:
    """Folders that may hold a toolkit: that of the wheels, then those of the environment."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(place).glob("cu[0-9]*"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    found = shutil.which("nvcc")
    if found:
        yield Path(found).resolve().parents[1]


@cache
def _version(path: Path) -> str:
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    if done.returncode or found is None:
        raise NvccError(f"{path} --version does not name a version: {(done.stderr or done.stdout).strip()[:200]}")
    return found.group(1)


def find_nvcc(cache_folder: Path | None = None) -> Compiler:
    """The nvcc of the wheels, or that of CUDA_HOME or PATH. Raises NvccError, which says what to install."""
    for root in _roots():
        path = root / "bin" / "nvcc"
        if path.is_file() and os.access(path, os.X_OK):
            libraries = next((root / name for name in ("lib64", "lib") if (root / name).is_dir()), None)
            return Compiler(path, _version(path), libraries, cache_folder)
    raise NvccError(MISSING)


def cutlass_include() -> Path:
    """The folder of CUTLASS's headers, from its wheel. Raises NvccError, which says what to install."""
    spec = importlib.util.find_spec("cutlass_library")
    for place in spec.submodule_search_locations or () if spec else ():
        include = Path(place) / "source" / "include"
        if (include / "cutlass" / "cutlass.h").is_file():
            return include
    raise NvccError(NO_CUTLASS)


@cache
def cutlass_version() -> str:
    """Version of the headers, as they state it."""
    text = (cutlass_include() / "cutlass" / "version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text))
