"""What ptxas says that a kernel takes, read: `nvcc -Xptxas -v`.

ptxas info    : Compiling entry function 'k' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads      -->   {"k": Taken(40, 0, 0, 8192)}
ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codegen.cutlass.emission.nvcc import NvccError

__all__ = ["Taken", "read_report"]

ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?P<rest>.*)")
SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Taken:
    """Registers of a thread, bytes of them that are spilled (stores and loads), bytes of its stack (spills are part of
    it), and bytes of a block's shared memory that the kernel declares; a launch may ask for more."""

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int


def read_report(text: str) -> dict[str, Taken]:
    """By kernel. Raises NvccError for words in which a kernel has no numbers, or that name none."""
    found: dict[str, Taken] = {}
    kernels = list(ENTRY.finditer(text))
    if not kernels:
        raise NvccError("ptxas names no kernel")
    ends = [*(kernel.start() for kernel in kernels[1:]), len(text)]
    for kernel, end in zip(kernels, ends, strict=True):
        own = text[kernel.end() : end]
        stack, used = STACK.search(own), USED.search(own)
        if stack is None or used is None:
            raise NvccError(f"ptxas says nothing of the registers of {kernel['name']}")
        shared = SHARED.search(used["rest"])
        spilled = int(stack[2]) + int(stack[3])
        found[kernel["name"]] = Taken(int(used[1]), spilled, int(stack[1]), int(shared[1]) if shared else 0)
    return found
