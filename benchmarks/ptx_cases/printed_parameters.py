"""Launch parameters of CUTLASS kernels, printed by a program of the host: pointers are marks, to be replaced."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARKS", "Given", "printed_parameters"]

MARKS = (0x1111 << 48, 0x2222 << 48, 0x3333 << 48, 0x4444 << 48)
"""What stands in Params for the addresses of the two factors, the addend and the result."""


@dataclass(frozen=True, slots=True)
class Given:
    """How a kernel is launched; `params` with marks."""

    shared_bytes: int
    grid: tuple[int, int, int]
    threads: int
    params: bytes

    def at(self, places: Sequence[int]) -> bytes:
        """The parameter block with addresses in the place of the marks."""
        params = self.params
        for mark, place in zip(MARKS, places, strict=True):
            params = params.replace(mark.to_bytes(8, "little"), place.to_bytes(8, "little"))
        return params


def printed_parameters(program: bytes, numbers: Sequence[int]) -> list[Given]:
    """Runs a program with these arguments; one launch a line: shared bytes, grid, threads, bytes in hexadecimal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parameters"
        path.write_bytes(program)
        path.chmod(0o755)
        words = [str(number) for number in numbers]
        done = subprocess.run([str(path), *words], capture_output=True, text=True, check=True, timeout=60)
    found = []
    for line in done.stdout.splitlines():
        shared, x, y, z, threads, data = line.split()
        found.append(Given(int(shared), (int(x), int(y), int(z)), int(threads), bytes.fromhex(data)))
    return found
