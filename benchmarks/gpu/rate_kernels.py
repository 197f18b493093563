"""The kernels of step `rates`, compiled for a chip, and what the chip file says of what they measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.gpu.store import PackWriter
from codegen.cutlass.emission.nvcc import NvccError, find_nvcc
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import ChipError, TargetError
from hw_models.routes import floor_names, main_memory

__all__ = ["packed_rates"]

SOURCE = Path(__file__).with_name("rates.cu")


def packed_rates(chip: Chip, writer: PackWriter, *, ptx: bool) -> dict[str, Any]:
    """The entry of the manifest. Raises TargetError where nvcc is missing or refuses them."""
    architecture = chip.isa.removeprefix("sm_")
    source = ("#define SM90A\n" if architecture == "90a" else "") + SOURCE.read_text()
    try:
        compiler = find_nvcc(Cache.of_user("nvcc").folder)
        text = compiler.ptx(source, architecture, name="rates")
        code = text.encode() if ptx else compiler.assembled(text, architecture, name="rates")
    except NvccError as error:
        raise TargetError("kernels of rates", needs="nvcc to compile them", has=str(error)) from error
    return {
        "architecture": chip.isa,
        "clock_hz": chip.clock_hz,
        "module": writer.add(code),
        "kernels": _said(chip),
        "places": _places(chip),
        "roles": floor_names(chip),
    }


def _places(chip: Chip) -> dict[str, str]:
    """The memory or unit of the chip that an experiment measures, as floors name it."""
    return {
        "main memory": main_memory(chip),
        "L2": chip.simt.cache,
        "mma": chip.tensor.name,
        "wgmma": chip.tensor.name,
    }


def _said(chip: Chip) -> dict[str, float]:
    """By experiment what the chip file has: bytes or multiply-accumulates of the whole chip a cycle, microseconds."""
    found = {
        "main memory": chip.memory(main_memory(chip)).bandwidth_bytes_per_cycle or 0.0,
        "L2": chip.memory(chip.simt.cache).bandwidth_bytes_per_cycle or 0.0,
        "launch": chip.simt.launch_us,
    }
    for instruction in ("mma", "wgmma"):
        try:
            rate = chip.tensor.macs_per_cycle(instruction, "float16")
        except ChipError:
            continue
        found[instruction] = float(rate * chip.cores_per_cluster)
    return found
