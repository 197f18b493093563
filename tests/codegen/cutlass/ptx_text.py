"""Small kernels as PTX text, and what they leave in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codegen.cutlass.ptx import GlobalMemory, PtxLimits, Statistics, launch, parameters, parse

Array: TypeAlias = NDArray[Any]

REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<64>;
    .reg .b32 %r<128>;
    .reg .f32 %f<128>;
    .reg .b64 %d<64>;
    .reg .f64 %g<16>;
"""


def kernel_text(body: str, pointers: int, *, variables: str = "", target: str = "sm_90a") -> str:
    """A kernel `k` with so many pointers, which the body finds in %d0, %d1, ...; %r0 is the thread of the grid."""
    names = ", ".join(f".param .u64 p{k}" for k in range(pointers))
    loads = "\n".join(f"    ld.param.u64 %d{k}, [p{k}];" for k in range(pointers))
    start = (
        "    mov.u32 %r1, %ctaid.x;\n    mov.u32 %r2, %ntid.x;\n    mov.u32 %r3, %tid.x;\n    "
        "mad.lo.s32 %r0, %r1, %r2, %r3;"
    )
    return (
        f".version 8.0\n.target {target}\n.address_size 64\n{variables}\n"
        f".visible .entry k({names})\n{{{REGISTERS}{loads}\n{start}\n{body}\n    ret;\n}}\n"
    )


def run_text(
    body: str,
    inputs: Sequence[Array],
    result: tuple[str, tuple[int, ...]],
    *,
    threads: int,
    blocks: int = 1,
    variables: str = "",
    shared_bytes: int = 0,
    seed: int = 0,
    limits: PtxLimits | None = None,
) -> tuple[Array, Statistics]:
    """Runs `kernel_text(body)` with the inputs' addresses and, as the last pointer, the result's."""
    module = parse(kernel_text(body, len(inputs) + 1, variables=variables))
    memory = GlobalMemory()
    places = [memory.allocate(array, f"input {k}") for k, array in enumerate(inputs)]
    kind, shape = result
    places.append(memory.allocate(int(np.prod(shape)) * np.dtype(kind).itemsize, "result"))
    params = parameters(module.kernels["k"], *places)
    done = launch(
        module, "k", (blocks, 1, 1), (threads, 1, 1), params, memory, seed, shared_bytes=shared_bytes, limits=limits
    )
    return memory.load(places[-1], kind, shape), done
