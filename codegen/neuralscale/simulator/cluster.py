"""Parts that the cores of a cluster share in addition to memory: barriers, transfers in flight, DMA engines, byte
counts.

The cluster executes NPU instructions: the vector and matrix engines work on one core's memories; the others move data
between memories and cores, or wait for other cores.
"""

from __future__ import annotations

import random
from collections import Counter

from codegen.neuralscale.isa.row import Engine as Unit
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.hart import Hart, WaitReason
from codegen.neuralscale.simulator.core.operands import Operands, check_vtype
from codegen.neuralscale.simulator.devices.dma import ENGINE_BASES, DmaBus, SysDmaEngine
from codegen.neuralscale.simulator.devices.sync import Barriers
from codegen.neuralscale.simulator.engines import move_engine
from codegen.neuralscale.simulator.engines.issued import IssuedInstruction
from codegen.neuralscale.simulator.engines.matrix_engine import execute_matrix
from codegen.neuralscale.simulator.engines.vector_engine import execute_vector
from codegen.neuralscale.simulator.memory.faults import SimulationFault
from codegen.neuralscale.simulator.memory.memory import SimulatedMemory
from codegen.neuralscale.simulator.memory.transfer import Flight, MemoryTransfer


class Cluster:
    """The shared parts of one cluster; `moved_bytes` counts by (source, destination) memory."""

    def __init__(self, number: int, memory: SimulatedMemory, harts: tuple[Hart, ...], choices: random.Random) -> None:
        self._memory = memory
        self._harts = harts
        self._by_id = {hart.hart_id: hart for hart in harts}
        self._operands = tuple(Operands(memory, hart) for hart in harts)
        self._flight = Flight(memory, self._count)
        self._icmovs: list[MemoryTransfer] = []
        self.moved_bytes: Counter[tuple[str, str]] = Counter()
        self.barriers = Barriers([hart.hart_id for hart in harts])
        line = DmaBus(memory, choices, self._flight.depart, self._flight.land)
        self.engines = tuple(SysDmaEngine(base, line) for base in ENGINE_BASES[number])

    def execute(self, hart: Hart, row: InstructionRow, word: int) -> None:
        """Execute one NPU instruction. Raises `Trap` or `SimulationFault`."""
        rd, rs1, rs2 = word >> 7 & 31, word >> 15 & 31, word >> 20 & 31
        if row.engine in (Unit.VME, Unit.MME):
            issue = IssuedInstruction(hart, self._operands[hart.index], rd, rs1, rs2, word >> 14 & 1, word >> 25 & 1)
            (execute_vector if row.engine is Unit.VME else execute_matrix)(row.family, issue)
            return
        target, source = int(hart.x[rd]), int(hart.x[rs1])
        match row.family:
            case "sync":
                check_vtype(hart)
                self._sync(hart)
            case "icmov":
                self._icmov(hart, target, source, int(hart.x[rs2]))
            case "pld":
                self._pld(hart, target, source)
            case "mov.l1.llb":
                shape = move_engine.shape_of(hart)
                move_engine.check_mov_l1_llb(target, source, shape)
                check_vtype(hart)
                move_engine.gather(self._operands[hart.index], target, source, shape)
                self.moved_bytes["LLB", "L1"] += shape.l1_bytes
            case "mov.llb.l1":
                shape = move_engine.shape_of(hart)
                move_engine.check_mov_llb_l1(target, source, shape)
                check_vtype(hart)
                move_engine.scatter(self._operands[hart.index], target, source, shape)
                self.moved_bytes["L1", "LLB"] += shape.l1_bytes
            case _:
                raise SimulationFault("unsupported", "not modelled")

    def _sync(self, hart: Hart) -> None:
        hart.waiting = WaitReason.SYNC
        released = self.barriers.enter_sync(hart.hart_id)
        for other in self._harts:
            if released >> other.hart_id & 1 and other.waiting is WaitReason.SYNC:
                other.waiting = None
        for transfer in [transfer for transfer in self._icmovs if released >> transfer.hart & 1]:
            self._icmovs.remove(transfer)
            self._flight.land(transfer)

    def _icmov(self, hart: Hart, target: int, source: int, length: int) -> None:
        transfer = move_engine.icmov(self._memory, hart, self._by_id, target, source, length)
        self._flight.depart(transfer)
        self._icmovs.append(transfer)

    def _pld(self, hart: Hart, target: int, source: int) -> None:
        move_engine.check_pld(target, source, move_engine.shape_of(hart))
        check_vtype(hart)
        hart.waiting, hart.pending = WaitReason.PLD, (target, source)
        released = self.barriers.enter_pld(hart.hart_id, int(hart.csr[csr.MTE_COREMAP]))
        for other in self._harts:
            if not released >> other.hart_id & 1 or other.pending is None:
                continue
            (to, start), other.pending, other.waiting = other.pending, None, None
            if int(other.csr[csr.MTE_COREMAP]) >> other.hart_id & 1:
                shape = move_engine.shape_of(other)
                move_engine.gather(self._operands[other.index], to, start, shape)
                self.moved_bytes["LLB", "L1"] += shape.l1_bytes

    def settle(self) -> None:
        """End the run: transfers in flight land, so that dumps show them."""
        for engine in self.engines:
            engine.finish()
        for transfer in self._icmovs:
            self._flight.land(transfer)
        self._icmovs.clear()

    def reason(self, hart: Hart) -> str:
        """The reason why a core waits, for a deadlock message."""
        match hart.waiting:
            case WaitReason.SYNC:
                return f"waits in sync ({'; '.join(self.barriers.missing(hart.hart_id))})"
            case WaitReason.PLD:
                return f"waits in pld for the cores of map {int(hart.csr[csr.MTE_COREMAP]):#x}"
            case None:
                return "runs"
            case waiting:
                return f"waits in {waiting.value}"

    def _count(self, transfer: MemoryTransfer) -> None:
        for piece in transfer.pieces:
            names = []
            for bank, start in ((piece.source, piece.source_start), (piece.destination, piece.destination_start)):
                names.append(self._memory.describe(start)[0] if bank.data is self._memory.bytes else "DDR")
            self.moved_bytes[names[0], names[1]] += piece.size_bytes
