"""What text cases show of plans and programs: all that decides what runs where, little of what repeats it."""

from __future__ import annotations

from isched.program.program import Instr, Program, Region
from partitioner.ir.plan import Plan

__all__ = ["plan_text", "program_text"]


def plan_text(plan: Plan, show: str) -> str:
    """`show` is plan (groups, steps and what is pinned, in the plan's own text form without hashes), decisions or all.

    Raises ValueError for another word."""
    lines = [line for line in str(plan).splitlines() if not line.startswith("plan ")]
    decisions = [line for line in lines if line.startswith("  decision ")]
    shown = {"plan": [line for line in lines if line not in decisions], "decisions": decisions, "all": lines}
    if show not in shown:
        raise ValueError(f"show: {show} is not one of {', '.join(shown)}")
    return "".join(f"{line.removeprefix('  ')}\n" for line in shown[show])


def program_text(program: Program) -> str:
    """Where tensors lie, then a line an instruction: engine, opcode, from, to, which token it starts or awaits, why."""
    lines = [f"{p.tensor}: {p.kind} in {p.memory}, {p.size_bytes} bytes" for p in program.placements]
    for stream in program.streams:
        lines.append(f"core {stream.core}")
        lines += [f"  {_instr(instr, program)}" for instr in stream.instrs]
    return "\n".join(lines) + "\n"


def _instr(instr: Instr, program: Program) -> str:
    ways = f" {_regions(instr.reads)} -> {_regions(instr.writes)}" if instr.reads or instr.writes else ""
    words = [
        f"starts {instr.starts}" if instr.starts else "",
        f"awaits {instr.awaits}" if instr.awaits else "",
        "with others" if instr.meets else "",
        f"for {instr.source}" if instr.source and not program.is_barrier(instr) else "",
    ]
    said = ", ".join(word for word in words if word)
    return f"{instr.engine} {instr.opcode}{ways}" + (f"; {said}" if said else "")


def _regions(regions: tuple[Region, ...]) -> str:
    return " ".join(map(_region, regions)) or "nothing"


def _region(region: Region) -> str:
    """memory[offset +bytes], or memory[offset +bytes x rows every stride]."""
    rows = f" x {region.rows} every {region.stride_bytes}" if region.rows > 1 else ""
    return f"{region.memory}[{region.offset_bytes} +{region.row_bytes}{rows}]"
