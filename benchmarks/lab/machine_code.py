"""What a kernel's machine code has, read from a disassembler's listing: `nvdisasm -c kernel.cubin`.

/*0a10*/  @P0 STG.E.128 desc[UR4][R2.64], R4 ;   -->   Code(instructions=1, products=0, stores=((16, 1),), spills=0)
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from codegen.cutlass.emission.nvcc import NvccError

__all__ = ["Code", "disassembled", "read_code"]

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)", re.MULTILINE)
PRODUCT = re.compile(r"^[HI]G?MMA\b")
STORE = re.compile(r"^STG\.")
SPILL = re.compile(r"^(LDL|STL)\b")
WIDTH = re.compile(r"\.(?P<bits>128|64|U16|S16|16|U8|S8)\b")
BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions as they are written down, each once: all of them, those of the tensor cores, stores to the main
    memory as (bytes of each, how many), and accesses of the stack."""

    instructions: int
    products: int
    stores: tuple[tuple[int, int], ...]
    spills: int


def read_code(text: str) -> Code:
    """Raises NvccError for a listing without instructions."""
    names = [found["name"] for found in INSTRUCTION.finditer(text)]
    if not names:
        raise NvccError("the disassembler lists no instruction")
    stores = Counter(_bytes(name) for name in names if STORE.match(name))
    return Code(
        len(names),
        sum(bool(PRODUCT.match(name)) for name in names),
        tuple(sorted(stores.items())),
        sum(bool(SPILL.match(name)) for name in names),
    )


def _bytes(name: str) -> int:
    found = WIDTH.search(name)
    return BYTES[found["bits"]] if found else WORD_BYTES


def disassembled(cubin: bytes, disassembler: Path) -> str:
    """The listing of machine code. Raises NvccError where the disassembler cannot be run or refuses it."""
    with tempfile.TemporaryDirectory(prefix="disassembly-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [str(disassembler), "-c", str(path)], capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NvccError(f"{disassembler}: {error}") from None
    if done.returncode:
        raise NvccError(f"{disassembler}: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout
