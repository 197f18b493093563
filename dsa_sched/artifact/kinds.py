"""What a program needs next to its executable: kinds of execution, who may ask for machine code only, shared weights.

manifest --kind of each program--> nothing where all are machine code, else one sentence
"""

from __future__ import annotations

from pathlib import Path

from codegen.target import ELF
from dsa_sched.artifact.format import Manifest, read_manifest
from dsa_sched.artifact.whole_folder import MANIFEST, WEIGHTS_FILE
from hw_models.errors import TargetError


def require_machine_code(manifest: Manifest, name: str) -> None:
    """Raises TargetError for an artifact that is executed otherwise than by running machine code."""
    kinds = tuple(dict.fromkeys(p.execution.kind for p in manifest.programs if p.execution.kind != ELF))
    if kinds:
        raise TargetError(
            name,
            needs="machine code, of an artifact for a target of in-order cores",
            has=f"kernels of whole groups of layers (execution {', '.join(kinds)})",
            change="`dsa-sched run` and `verify` execute them",
        )


def weights_beside(program: Path) -> tuple[int, Path] | None:
    """The address and the file of the constants that an executable in the folder of one size shares with others, and
    does not hold; None for any other program."""
    for folder in program.absolute().parents[:2]:
        if (folder / MANIFEST).is_file():
            try:
                weights = read_manifest(folder / MANIFEST).weights
            except TargetError:
                return None
            home = folder if (folder / WEIGHTS_FILE).exists() else folder.parent
            return None if weights is None else (weights.address, home / WEIGHTS_FILE)
    return None


def refuse_other_execution(path: Path) -> None:
    """Check `path` for a command that takes an executable: raises TargetError for an artifact folder, or a file of one,
    whose programs are no machine code. No other path is judged here.
    """
    for folder in (path, *path.absolute().parents[:3]):
        if (folder / MANIFEST).is_file():
            try:
                manifest = read_manifest(folder / MANIFEST)
            except TargetError:
                return
            require_machine_code(manifest, str(path))
            return
