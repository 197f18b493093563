"""PTX text comes from strangers: whatever it is, it runs or ends with a PtxError, soon."""

from __future__ import annotations

import contextlib
import random
import re
import time

import numpy as np
import pytest

from codegen.cutlass.ptx import GlobalMemory, PtxError, PtxLimits, launch, parse

EMPTY = ("", "//")
PIECES = re.compile(r"[%$.\w:]+|[^\w\s]")
LIMITS = PtxLimits(max_steps=3000, max_global_bytes=1 << 24, max_static_bytes=1 << 20, batch_bytes=1 << 26)


def changed(text: str, choices: random.Random) -> str:
    """A few pieces dropped, doubled, exchanged or replaced by others of the text."""
    pieces = [(found.start(), found.end()) for found in PIECES.finditer(text)]
    for _ in range(choices.choice((1, 1, 2, 5))):
        start, end = choices.choice(pieces)
        other_start, other_end = choices.choice(pieces)
        word = choices.choice((
            "", text[start:end] * 2, text[other_start:other_end], "-1", "{}", "0",
            "99999999999999999999", ".v4", "%r1", "09",
        ))  # fmt: skip
        text = text[:start] + word + text[end:]
        pieces = [(found.start(), found.end()) for found in PIECES.finditer(text)]
    return text


def run(text: str) -> None:
    """Launches the first kernel on 64 threads with whatever parameters fit."""
    module = parse(text, LIMITS)
    for name, kernel in list(module.kernels.items())[:1]:
        memory = GlobalMemory(LIMITS)
        place = memory.allocate(np.arange(4096, dtype=np.uint32))
        params = (place.to_bytes(8, "little") * (kernel.parameter_bytes // 8 + 1))[: kernel.parameter_bytes]
        launch(module, name, (2, 1, 1), (64, 1, 1), params, memory, limits=LIMITS, shared_bytes=4096)


@pytest.mark.spread(2)
@pytest.mark.parametrize("kernel", ["relu_add", "softmax", "pipeline", "gemm_rk"])
@pytest.mark.commit
def test_changed_text_never_crashes(simple_ptx: str, gemm_ptx: str, kernel: str) -> None:
    whole = gemm_ptx if kernel.startswith("gemm") else simple_ptx
    header = whole[: whole.index(".visible")]
    start = whole.index(f".visible .entry {kernel}(")
    end = whole.find(".visible", start + 1)
    text = header + whole[start : end if end > 0 else len(whole)]
    if kernel == "gemm_rk":  # its first part, with one of each kind of instruction
        cut = text.index("wgmma.wait_group")
        text = text[: text.index(";", cut) + 1] + "\nret;\n}"
        text = re.sub(r"bra(\.uni)?\s+\$\w+", "nanosleep 1", text)
    choices = random.Random(kernel)
    ended = 0
    for _ in range(40 if kernel == "gemm_rk" else 150):
        try:
            run(changed(text, choices))
        except PtxError:
            ended += 1
    assert ended > 10


def test_tangled_kernels_end_soon() -> None:
    """Blocks that lead anywhere, each with registers of its own."""
    choices = random.Random(3)
    count = 2000
    body = "".join(
        f"$b{k}: mov.u32 %r{k}, 1; setp.eq.u32 %p{k}, %r{k}, 1; @%p{k} bra $b{choices.randrange(count)};"
        f"@!%p{k} bra $b{choices.randrange(count)};\n"
        for k in range(count)
    )
    text = f".visible .entry k() {{ .reg .b32 %r<{count}>; .reg .pred %p<{count}>; {body} ret; }}"
    start = time.process_time()
    with pytest.raises(PtxError, match=r"endless|too complex"):
        run(text)
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "text", ["", "}", "{", ".visible .entry", ".entry k(", "//", "/*", '"', ".global .b8 x = {{{{", "@", "k:"]
)
def test_torn_text(text: str) -> None:
    with pytest.raises(PtxError) if text not in EMPTY else contextlib.nullcontext():
        assert parse(text).kernels == {}
