"""Instructions in the form for rolling: the parts that must be equal where code is shared, and values that may differ.

    Instr --step_of--> Step(opcode, source, settings, values)

Settings (CSRs, scalars, engine and channel of a transfer) are part of the kind of a step; values (addresses, words of
DMA descriptors) may differ by core and grow by a constant from one iteration of a loop to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.neuralscale.emit.descriptors import CHAINS
from codegen.neuralscale.emit.expansion import CORE_MAP, OPERAND_REGISTERS, SCALAR_FIELDS, chain_words
from codegen.neuralscale.emit.integer_loops import INTEGER_PREFIX
from codegen.neuralscale.emit.memory_map import HARTS_PER_CLUSTER, in_cluster
from isched.program.program import Instr

SCALAR = "fs"
"""Name of the setting that a floating-point register holds."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """The parts of a step that are equal wherever its code is shared: `places` name its values, `settings` are in the
    order of the operands. `opaque` steps bring loops of their own, for which `instr` is kept; they are never rolled."""

    opcode: str
    source: str
    settings: tuple[tuple[str, int], ...]
    places: tuple[str, ...]
    opaque: Instr | None = None


@dataclass(frozen=True, slots=True)
class RollingStep:
    """One instruction of one core: its kind, and its values in the order of `Kind.places`."""

    kind: StepKind
    values: tuple[int, ...]


def step_of(instr: Instr, cluster: int) -> RollingStep:
    """The step of an instruction, with addresses and core maps of its cluster."""
    if instr.opcode in CHAINS or instr.opcode.startswith(INTEGER_PREFIX):
        return RollingStep(StepKind(instr.opcode, instr.source, instr.operands, (), instr), ())
    operands = dict(instr.operands)
    if instr.opcode == "dma.start":
        words = tuple(chain_words(operands, cluster))
        settings = (("engine", operands["engine"]), ("channel", operands["channel"]))
        return RollingStep(StepKind(instr.opcode, instr.source, settings, ("word",) * len(words)), words)
    settings_found: list[tuple[str, int]] = []
    places: list[str] = []
    values: list[int] = []
    for name, value in instr.operands:
        if name in OPERAND_REGISTERS:
            places.append(name)
            values.append(in_cluster(value, cluster))
        elif name in SCALAR_FIELDS:
            settings_found.append((SCALAR, value))
        else:
            settings_found.append((name, value << HARTS_PER_CLUSTER * cluster if name == CORE_MAP else value))
    return RollingStep(StepKind(instr.opcode, instr.source, tuple(settings_found), tuple(places)), tuple(values))
