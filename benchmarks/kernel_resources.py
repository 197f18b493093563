"""What our kernels take of a GPU's core: `python benchmarks/kernel_resources.py [--network NAME] [--chip CHIP]`.

    every kernel of several layers that is offered for a network --nvcc, ptxas's report--> registers, spills, shared
    every wgmma_layer, split_layer, first_convolution, depthwise, attention kernel --nvdisasm--> products, stores too

Each is held to what its family has predicted (`Kernel.resources`), from which planners choose: nothing is spilled,
registers of a thread and shared bytes of a block are no more than predicted, and one block at least fits on a core.
Exit code 1 where one is not so. Kernels of equal source and equal predictions are compiled once; nothing is run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.fused_kernels import Offer, fused_offers
from benchmarks.gpu.blocks import STUDIED_BLOCKS
from benchmarks.gpu.networks import NETWORKS, batches_of, loaded, name_of
from benchmarks.lab.assembly_report import Taken, read_report
from benchmarks.lab.machine_code import disassembled, read_code
from benchmarks.output import add_outputs, at_least_one, finish, table
from codegen.cutlass.emission.nvcc import Compiler, NvccError, find_nvcc
from codegen.cutlass.emission.parameter_blocks import parameter_blocks
from codegen.cutlass.families.fused.occupancy import REGISTERS_STEP, RESERVED_BYTES, rounded_up
from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import ComputedLaunch, Launch
from codegen.cutlass.ptx import PtxError, parse
from codegen.target import GroupTarget
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import TargetError, UserError
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.ir.kernels import read_kernel

__all__ = ["Asked", "asked_of", "blocks_of_a_core", "complaints", "markdown", "measured"]

Row = dict[str, Any]

CHIPS = ("h200", "a100")
BATCHES = (32,)
"""Sources have the tile and the channels, seldom the batch."""
COMPILERS = 2
"""At a time."""
SINGLES = ("wgmma_layer", "split_layer", "first_convolution", "depthwise", "attention")
"""Templates of one layer that are looked at too."""
UNPREDICTED = {"depthwise": ("registers", "shared_bytes")}
"""What a template does not predict since nothing depends on it: blocks of few threads without shared memory."""


@dataclass(frozen=True)
class Asked:
    """A launch of a fused kernel, what was predicted of it, and the first place where it is offered."""

    chip: Chip
    where: str
    kernel: str
    predicted: tuple[tuple[str, int], ...]
    launch: Launch | ComputedLaunch

    @property
    def key(self) -> object:
        """What is compiled and judged once."""
        shared = self.launch.shared_bytes if isinstance(self.launch, Launch) else self.launch.numbers
        return self.chip.name, self.launch.source, self.launch.kernel, shared, self.predicted


def asked_of(
    network: str, batch: int, chip: Chip, candidates: int | None = None, templates: Sequence[str] = ()
) -> Iterator[Asked]:
    """Of a network, an ONNX file or a block of the study; of each set of layers and template so many candidates, the
    fastest by their floors, or all; of some templates, or of all that are looked at. Raises UserError."""
    target = target_of(chip)
    if not isinstance(target, GroupTarget):
        raise TargetError(f"chip {chip.name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
    model = loaded(network, batch, judge_of(chip, target))
    context = GraphContext(model.graph, model.constants, chip, target)
    for offer in _fastest((*fused_offers(context), *_single_offers(context)), candidates):
        template, parameters = read_kernel(offer.kernel.text)
        if templates and template not in templates:
            continue
        work = KernelWork(model.graph, offer.layers, chip)
        for launch in FAMILIES[template].launches(work, parameters, model.constants):
            where = f"{name_of(network)} {offer.layers[0].name}"
            yield Asked(chip, where, offer.kernel.text, offer.kernel.resources, launch)


def _single_offers(context: KernelContext) -> Iterator[Offer]:
    for layer in context.layers:
        if not layer.is_view(context.graph):
            kernels = context.target.kernels(context.graph, (layer,), context.chip)
            yield from (Offer((layer,), kernel) for kernel in kernels if kernel.template in SINGLES)


def _fastest(offers: Iterable[Offer], candidates: int | None) -> Iterator[Offer]:
    known: dict[object, list[Offer]] = {}
    for offer in offers:
        known.setdefault((offer.layers, offer.kernel.template), []).append(offer)
    for own in known.values():
        yield from sorted(own, key=lambda offer: offer.kernel.seconds)[:candidates]


def measured(
    asked: Sequence[Asked], compiler: Compiler, said: Callable[[str], None], disassembler: Path | None = None
) -> list[Row]:
    """One row each, in order; those of equal keys are one; with what their machine code has where there is something
    that reads it. Raises NvccError, TargetError or PtxError."""
    distinct = list({each.key: each for each in reversed(asked)}.values())[::-1]

    def row(numbered: tuple[int, Asked]) -> Row:
        number, each = numbered
        found = _row(each, compiler, disassembler)
        judged = "; ".join(found["complaints"]) or "as predicted"
        said(f"{number} of {len(distinct)}: {each.chip.name} {each.kernel}: {judged}")
        return found

    with ThreadPoolExecutor(COMPILERS) as pool:
        return list(pool.map(row, enumerate(distinct, 1)))


def _row(asked: Asked, compiler: Compiler, disassembler: Path | None) -> Row:
    launch, chip = asked.launch, asked.chip
    architecture, name = chip.isa.removeprefix("sm_"), launch.source.name
    text = compiler.ptx(launch.source.text, architecture, cutlass=launch.source.cutlass, name=name)
    taken = read_report(compiler.assembly_report(text, architecture, name=name))[launch.kernel]
    if isinstance(launch, ComputedLaunch):
        made = parameter_blocks([launch], {launch.source: parse(text)})[launch]
        threads, dynamic = made.threads, made.shared_bytes
    else:
        threads, dynamic = launch.block[0] * launch.block[1] * launch.block[2], launch.shared_bytes
    shared = taken.shared_bytes + dynamic
    blocks = blocks_of_a_core(chip, threads, taken.registers, shared)
    free = UNPREDICTED.get(read_kernel(asked.kernel)[0], ())
    has = {"registers": taken.registers, "shared_bytes": shared}
    predicted = {name: has[name] for name in free} | dict(asked.predicted)
    return {
        "chip": chip.name,
        "kernel": asked.kernel,
        "where": asked.where,
        "threads": threads,
        "registers": taken.registers,
        "spilled_bytes": taken.spilled_bytes,
        "stack_bytes": taken.stack_bytes,
        "shared_bytes": shared,
        "blocks": blocks,
        "predicted": dict(asked.predicted),
        "complaints": complaints(predicted, taken, threads, shared, blocks),
    } | (_code(text, architecture, name, compiler, disassembler) if disassembler else {})


def _code(text: str, architecture: str, name: str, compiler: Compiler, disassembler: Path) -> Row:
    """Instructions as they are written down, those of the tensor cores, and stores by their bytes."""
    code = read_code(disassembled(compiler.assembled(text, architecture, name=name), disassembler))
    stores = {str(size): count for size, count in code.stores}
    return {"instructions": code.instructions, "products": code.products, "stores": stores}


def blocks_of_a_core(chip: Chip, threads: int, registers: int, shared_bytes: int) -> int:
    """How many of such blocks a core holds at once."""
    simt = chip.simt
    warps = -(-threads // simt.warp_threads)
    each = rounded_up(max(registers, 1), REGISTERS_STEP) * warps * simt.warp_threads
    shared = chip.memory(simt.shared_memory).size_bytes // (shared_bytes + RESERVED_BYTES)
    if shared_bytes > simt.shared_bytes_per_block or threads > simt.threads_per_block:
        return 0
    return min(
        simt.blocks_per_core,
        simt.threads_per_core // (warps * simt.warp_threads),
        simt.registers_per_core // each,
        shared,
    )


def complaints(predicted: dict[str, int], taken: Taken, threads: int, shared_bytes: int, blocks: int) -> list[str]:
    """What is not as it must be."""
    found = [f"{taken.spilled_bytes} bytes are spilled"] if taken.spilled_bytes else []
    for name, has in (("registers", taken.registers), ("shared_bytes", shared_bytes), ("threads", threads)):
        if name not in predicted:
            found.append(f"{name} were not predicted, it takes {has}")
        elif has > predicted[name]:
            found.append(f"{has} {name}, {predicted[name]} were predicted")
    return found if blocks else [*found, "not one block fits on a core"]


def markdown(rows: Sequence[Row]) -> str:
    headings = (
        "chip", "kernel", "first at", "registers", "predicted", "spilled", "shared bytes", "predicted",
        "blocks a core", "instructions", "products", "bytes a store", "",
    )  # fmt: skip
    cells = [
        (row["chip"], row["kernel"], row["where"], str(row["registers"]), str(row["predicted"].get("registers", "")),
         str(row["spilled_bytes"]), str(row["shared_bytes"]), str(row["predicted"].get("shared_bytes", "")),
         str(row["blocks"]), str(row.get("instructions", "")), str(row.get("products", "")),
         ", ".join(row.get("stores", {})), "; ".join(row["complaints"]))
        for row in rows
    ]  # fmt: skip
    wrong = sum(bool(row["complaints"]) for row in rows)
    said = (
        "`python benchmarks/kernel_resources.py`: what ptxas gives every fused kernel that is offered and those of one "
        f"layer by {', '.join(SINGLES)}, and what its family has predicted. {len(rows)} kernels, {wrong} of them "
        "not as predicted. Nothing was run."
    )
    return "\n\n".join(("# What fused kernels take", said, table(headings, cells), ""))


def _kept(path: Path | None, templates: Sequence[str]) -> list[Row]:
    """Rows of other templates."""
    if path is None or not path.exists() or not templates:
        return []
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if read_kernel(row["kernel"])[0] not in templates]


def main() -> int:
    parser = argparse.ArgumentParser(description="Registers, spills and shared memory of kernels.")
    add_outputs(parser)
    parser.add_argument("--network", action="append", metavar="NAME", help="of the zoo, or a file; may be repeated")
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N", help="may be repeated")
    parser.add_argument("--candidates", type=at_least_one, metavar="N", help="of each set of layers (default all)")
    parser.add_argument("--chip", action="append", metavar="CHIP", help=f"may be repeated (default {', '.join(CHIPS)})")
    parser.add_argument(
        "--template",
        action="append",
        metavar="NAME",
        default=[],
        help="may be repeated; rows of other templates that the file of --json has are kept",
    )
    parser.add_argument("--disassembler", type=Path, metavar="NVDISASM", help="count what the machine code has")
    options = parser.parse_args()

    def said(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    try:
        asked: list[Asked] = []
        for chip in map(load_chip, options.chip or CHIPS):
            for network in options.network or (*NETWORKS, *(block.name for block in STUDIED_BLOCKS)):
                for batch in batches_of(network, tuple(options.batch or BATCHES)):
                    asked += asked_of(network, batch, chip, options.candidates, options.template)
                    said(f"{network}, batch {batch}, {chip.name}: {len(asked)} kernels so far")
        rows = measured(asked, find_nvcc(Cache.of_user("nvcc").folder), said, options.disassembler)
    except (UserError, NvccError, PtxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    kept = _kept(options.json, options.template)
    finish(options, {"rows": [*kept, *rows]}, markdown([*kept, *rows]))
    if not rows:
        print("error: there is no kernel to judge", file=sys.stderr)
    return 1 if not rows or any(row["complaints"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
