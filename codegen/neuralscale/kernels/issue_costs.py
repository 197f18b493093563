"""Number of scalar instructions that a program becomes, for the cycle model: the expansion of emission, only
counted."""

from __future__ import annotations

from codegen.neuralscale.emit.expansion import POLL_INSTRUCTIONS, Body
from codegen.neuralscale.emit.frame import ending_count, start_up_count
from isched.program.program import Instr, Program
from isched.program.timed_ops import CoreIssue, IssueCost


def issue_costs(program: Program) -> tuple[CoreIssue, ...]:
    """Number of scalar instructions that each core runs before, for and after its instructions, in the order given."""
    known: dict[int, IssueCost] = {}  # equal costs are one object, so that the cycle model looks at them once
    costs = []
    for number, stream in enumerate(program.streams):
        body = Body(program.cluster)
        issues = tuple(_issue_cost(instr, body, known) for instr in stream.instrs)
        costs.append(CoreIssue(start_up_count(program.cluster, number), issues, ending_count(stream.core)))
    return tuple(costs)


def _issue_cost(instr: Instr, body: Body, known: dict[int, IssueCost]) -> IssueCost:
    """The scalar instructions of one instruction. A wait issues with its first load; what follows its loop and the rest
    of one iteration count for the next instruction."""
    if instr.opcode != "dma.wait":
        before = body.count(instr)
        if before not in known:
            known[before] = IssueCost(before)
        return known[before]
    code = body.expand(instr)
    asks = next(place for place, word in enumerate(code) if word.mnemonic == "lw") + 1
    return IssueCost(asks, len(code) - asks, POLL_INSTRUCTIONS)
