"""DMA chains in shared code: stores of descriptors and of the start, and the loops that wait for the end.

    engine, channel, words --Chains.start--> sw, sw, ...      engine, channel --Chains.await_end--> lw, andi, bne, sw

Words that a channel still holds from an earlier chain are not written again (`settings.kept_words` says for which
channels that is known).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.neuralscale.asm.assembler import Item
from codegen.neuralscale.emit.expansion import S10, S11, T0, ZERO, descriptor_store
from codegen.neuralscale.emit.memory_map import DMA_ENGINE_BASES
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.rolling.registers import CoreRegisters, RollingValue, set_register
from codegen.neuralscale.rolling.repeats import Leaf
from codegen.neuralscale.rolling.settings import Settings, word_name

DESCRIPTOR_MODE = 0x8000_0000
"""Bit of a channel's control: its work is written in descriptors."""


@dataclass
class Chains:
    """A writer of code for the engines of one cluster, with the registers and settings of the surrounding code."""

    cluster: int
    registers: CoreRegisters
    settings: Settings
    kept_words: frozenset[str] = frozenset()
    """Words of descriptors that keep their contents until they are written again."""

    def start(self, code: list[Item], given: dict[str, int], words: Sequence[RollingValue], mask: int) -> None:
        """Write the chain of descriptors, then channel control, first descriptor and start."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][given["engine"]], given["channel"]
        self._base(code, S10, engine, mask)
        self._base(code, S11, descriptor_store(engine, channel), mask)
        for position, word in enumerate(words):
            self._word(code, word_name(given, position), word, 4 * position, mask)
        self._store(code, RollingValue(1), 0x000, S10, mask)
        self._store(code, RollingValue(DESCRIPTOR_MODE), 0x100 * (channel + 1), S10, mask)
        code.append(instruction("sw", S11, 0x114 + 0x100 * channel, S10))
        self._store(code, RollingValue(1 << channel), 0x004, S10, mask)

    def await_end(self, code: list[Item], given: dict[str, int], mask: int) -> None:
        """Poll the busy bit, then clear the done flag."""
        channel = given["channel"]
        self._base(code, S10, DMA_ENGINE_BASES[self.cluster][given["engine"]], mask)
        code.append(instruction("lw", T0, 0x010, S10))
        code.append(instruction("andi", T0, T0, 1 << channel))
        code.append(instruction("bne", T0, ZERO, -8))
        self._store(code, RollingValue(1 << 2 * channel), 0x014, S10, mask)

    def _base(self, code: list[Item], register: int, address: int, mask: int) -> None:
        """Point the registers at a DMA engine and its descriptors."""
        name = f"x{register}"
        if not self.settings.holds(name, address, mask):
            code += set_register(register, address)
            self.settings.set(name, address, mask)

    def _word(self, code: list[Item], name: str, value: RollingValue, offset: int, mask: int) -> None:
        """Write a word of a channel's descriptors, unless it is there from an earlier chain."""
        if value.strides or value.spread or name not in self.kept_words:
            self.settings.forget((name,), mask)
            self._store(code, value, offset, S11, mask)
        elif not self.settings.holds(name, value.base, mask):
            self._store(code, value, offset, S11, mask)
            self.settings.set(name, value.base, mask)

    def _store(self, code: list[Item], value: RollingValue, offset: int, base: int, mask: int) -> None:
        code.append(instruction("sw", self.registers.place(code, value, mask), offset, base))
        self.registers.busy.clear()


def asked_for(leaf: Leaf) -> Iterator[tuple[int, int]]:
    """Values that a step wants in registers: (number of the spread, value of the lowest core)."""
    kind = leaf.step.kind
    yield from zip(leaf.step.spreads, leaf.values, strict=True)
    match kind.opcode:
        case "dma.start":
            yield from ((0, value) for value in (1, DESCRIPTOR_MODE, 1 << dict(kind.settings)["channel"]))
        case "dma.wait":
            yield 0, 1 << 2 * dict(kind.settings)["channel"]
        case _:
            yield from ((0, value) for _, value in kind.settings)
