"""Executing an artifact: the target's own simulator, or a command that stands for another simulator or a board.

A command is a template, split like a shell line but run without a shell:

    COMMAND {elf} {cores} {cluster} {loads} {dumps} {out}

docs/runner.md is the contract. `{loads}` is `0xADDRESS=FILE,...` (raw bytes to be placed before the start), `{dumps}`
`0xADDRESS:0xBYTES,...`, and the command leaves each dump as `{out}/0xADDRESS_0xBYTES.bin` (lower-case hexadecimal) and
exits with the program's code.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from codegen.target import ELF, ClusterFiles, Execution
from codegen.target_registry import find_target
from hw_models.errors import TargetError
from hw_models.scratch import scratch_folder

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact

PLACEHOLDERS = ("{elf}", "{cores}", "{cluster}", "{loads}", "{dumps}", "{out}")


def execute(
    artifact: Artifact,
    loads: Mapping[int, bytes],
    dumps: tuple[tuple[int, int], ...],
    runner: str | None,
    seed: int,
    program: int = 0,
) -> Execution:
    """Run one program of an artifact. Raises TargetError when it cannot be run or fails."""
    files = artifact.clusters[program]
    if artifact.manifest.weights is not None:
        loads = {artifact.manifest.weights.address: artifact.weights, **loads}
    kind = artifact.manifest.programs[program].execution.kind
    if runner is not None:
        if kind != ELF:
            raise TargetError("--runner", needs="machine code, which a command can run", has=f"execution {kind}")
        return run_command(runner, files, loads, dumps)
    isa = artifact.manifest.chip.isa
    target = find_target(isa)
    if target is None:
        raise TargetError(
            f"artifact for {artifact.manifest.chip.name}",
            needs=f"a target for {isa} to run it",
            has="none",
            change="give --runner" if kind == ELF else "install the package that it was compiled with",
        )
    return target.run(files, loads, dumps, seed)


def run_command(
    template: str, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...]
) -> Execution:
    """Run the executable by a command template. Raises TargetError with the command's last words when it fails."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise TargetError("--runner", needs="a command that a shell could split", has=str(error)) from error
    if not words or "{elf}" not in template or "{out}" not in template:
        raise TargetError("--runner", needs=f"a command with {', '.join(PLACEHOLDERS)}", has=template or "nothing")
    with scratch_folder(Path(gettempdir())) as scratch:
        folder = scratch.path
        out = folder / "out"
        out.mkdir()
        elf = folder / "program.elf"
        elf.write_bytes(files.files[files.executable])
        values = {
            "{elf}": str(elf),
            "{cores}": str(files.cores),
            "{cluster}": str(files.cluster),
            "{loads}": ",".join(f"{address:#x}={_place(folder, address, data)}" for address, data in loads.items()),
            "{dumps}": ",".join(f"{address:#x}:{size:#x}" for address, size in dumps),
            "{out}": str(out),
        }
        _call([_fill(word, values) for word in words], scratch.lock)
        return Execution({(a, n): _collect(out, a, n) for a, n in dumps}, {}, {})


def _fill(word: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def _place(folder: Path, address: int, data: bytes) -> Path:
    path = folder / f"load_{address:#x}.bin"
    path.write_bytes(data)
    return path


def _call(command: list[str], lock: int) -> None:
    """Run the command, which shares the `lock` on the folder that it works in: it may outlive this process."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, pass_fds=(lock,))
    except OSError as error:
        raise TargetError("--runner", needs=f"the command {command[0]}", has=error.strerror or str(error)) from error
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()[-500:]
        raise TargetError("--runner", needs="exit code 0", has=f"{done.returncode}{': ' + words if words else ''}")


def _collect(out: Path, address: int, size: int) -> bytes:
    path = out / f"{address:#x}_{size:#x}.bin"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TargetError("--runner", needs=f"the dump {path.name}", has=error.strerror or str(error)) from error
    if len(data) != size:
        raise TargetError("--runner", needs=f"{size} bytes in {path.name}", has=str(len(data)))
    return data
