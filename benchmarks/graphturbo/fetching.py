"""Lines of code that a program fetches, before it is machine code: each instruction of straight code once, cold.

    Program, its issue costs --fetched--> issue costs with lines that the instruction cache lacks

Straight code runs once, so of its instructions as many to a line as fit are fetched with each line. Loops within one
instruction (looked-up rows, words of scalar work) are fetched once, however often they run. Code with loops around
instructions (`compile --roll`) fetches less: benchmarks/code_size.py.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.neuralscale.emit.descriptors import CHAINS
from codegen.neuralscale.emit.expansion import Body
from codegen.neuralscale.emit.integer_loops import INTEGER_PREFIX
from hw_models.parts import InstructionCache
from isched.program.program import Instr, Program
from isched.program.timed_ops import CoreIssue, IssueCost

__all__ = ["fetched"]

WORD_BYTES = 4
"""Of one scalar instruction."""


def _words(instr: Instr, executed: int, known: dict[tuple[str, tuple[tuple[str, int], ...]], int]) -> int:
    """How many instructions lie in memory for those that are executed."""
    if instr.opcode not in CHAINS and not instr.opcode.startswith(INTEGER_PREFIX):
        return executed
    key = (instr.opcode, instr.operands)
    if key not in known:
        known[key] = len(Body(0).expand(instr))
    return min(executed, known[key])


def fetched(program: Program, issues: tuple[CoreIssue, ...], cache: InstructionCache) -> tuple[CoreIssue, ...]:
    """Each line is missed by the first instruction that reaches into it."""
    a_line = cache.line_bytes // WORD_BYTES
    words: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}
    known: dict[
        tuple[IssueCost, int], IssueCost
    ] = {}  # equal costs are one object, so that the cycle model looks at them once
    found = []
    for stream, issue in zip(program.streams, issues, strict=True):
        place = issue.start
        costs = []
        for instr, cost in zip(stream.instrs, issue.issues, strict=True):
            before, place = place, place + _words(instr, cost.before, words) + cost.after
            missed = -(-place // a_line) - -(-before // a_line)
            costs.append(known.setdefault((cost, missed), replace(cost, missed=missed)))
        found.append(replace(issue, issues=tuple(costs)))
    return tuple(found)
