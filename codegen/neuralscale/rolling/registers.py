"""What the registers of the cores hold while shared code is made, and how they come to hold what an instruction needs.

    Value --Registers.place--> a register, and the instructions that fill it where none holds the value yet

A value is a number on the lowest core that has it, how it differs on the others, and by how much it grows in each loop
around the code. Most values lie near one that a register holds, and cost one addition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from codegen.neuralscale.asm.assembler import Item, load_immediate
from codegen.neuralscale.emit.expansion import T0, ZERO
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.rolling.alignment import Spreads

CORE_BIT, TABLE = 3, 4
"""Registers that every core sets before the shared code: a bit for its place, and its row of the table of spreads."""

POOL = (1, 2, *range(6, 26), *range(28, 32))
"""Registers that hold values; the rest are T0, CORE_BIT, TABLE, and those of the DMA engines."""

NEAR = 2047
"""The farthest that one addition reaches, either way."""

WORD_BYTES = 4
NEVER = 1 << 60
_WORD = (1 << 32) - 1


class NoRegister(Exception):
    """A value that only a register which follows a loop could give, and none does."""


@dataclass(frozen=True, slots=True)
class RollingValue:
    """`base` on the lowest core, `spread` the number of how it differs on the others, `strides` what each loop around
    adds an iteration, from the outermost, without zeros at the end."""

    base: int
    spread: int = 0
    strides: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterContent:
    """A value that a register has on the cores of `mask`."""

    value: RollingValue
    mask: int


@dataclass
class Future:
    """When which values are asked for again: by spread and base, places in the order of the code."""

    places: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    now: int = 0

    def next_use(self, held: RegisterContent) -> int:
        """The place of the next use; beyond all where there is none."""
        places = self.places.get((held.value.spread, held.value.base), [])
        at = bisect_right(places, self.now)
        return places[at] if at < len(places) else NEVER


@dataclass
class CoreRegisters:
    """The registers of all cores. `pinned` are kept for a loop, `busy` until the next instruction is there."""

    spreads: Spreads
    held: dict[int, RegisterContent | None] = field(default_factory=lambda: dict.fromkeys(POOL))
    pinned: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    future: Future = field(default_factory=Future)
    used: dict[int, int] = field(default_factory=dict)
    """Places in the table of spreads, in the order in which they were asked for."""

    def place(self, code: list[Item], value: RollingValue, mask: int, fresh: bool = False) -> int:
        """A register that has the value on the cores of the mask; its own and of nobody else where it must be `fresh`.

        Raises NoRegister for a value that grows in a loop and lies by no register that does.
        """
        if value.base == 0 and not value.spread and not value.strides and not fresh:
            return ZERO
        register, distance = self._nearest(value, mask)
        if distance == 0 and not fresh:
            return self._take(register, self.held[register])
        target = self._victim()
        self._fill(code, target, value, mask, register, distance)
        return self._take(target, RegisterContent(value, mask))

    def _take(self, register: int, held: RegisterContent | None) -> int:
        """The register is the one used last."""
        self.held.pop(register)
        self.held[register] = held
        self.busy.add(register)
        return register

    def _nearest(self, value: RollingValue, mask: int) -> tuple[int, int | None]:
        """The register whose value is nearest, and how far it is on every core; None for none."""
        best, distance = ZERO, None
        for register, held in self.held.items():
            if held is None or held.value.strides != value.strides or held.mask & mask != mask:
                continue
            found = value.base - held.value.base
            if held.value.spread != value.spread or (value.spread and held.mask != mask):
                apart = self._apart(held, value, mask)
                if apart is None:
                    continue
                found = apart
            if distance is None or abs(found) < abs(distance):
                best, distance = register, found
                if not found:
                    break
        return best, distance

    def _apart(self, held: RegisterContent, value: RollingValue, mask: int) -> int | None:
        """Where spreads or masks differ: the lowest core of each value is that of its own mask."""
        apart = self.spreads.apart(held.value.spread, value.spread, mask)
        return None if apart is None else value.base - held.value.base + apart

    def _victim(self) -> int:
        """The register whose value is asked for again last, those of which nothing is known first."""
        victim, latest = None, -1
        for register, held in self.held.items():
            if register in self.pinned or register in self.busy:
                continue
            if held is None:
                return register
            again = self.future.next_use(held)
            if again > latest:
                victim, latest = register, again
        if victim is None:
            raise NoRegister
        return victim

    def _fill(
        self, code: list[Item], target: int, value: RollingValue, mask: int, register: int, distance: int | None
    ) -> None:
        if distance is not None and abs(distance) <= NEAR:
            code.append(instruction("addi", target, register, distance))
        elif not value.strides and not value.spread:
            code += set_register(target, value.base & _WORD)
        elif distance is not None:
            code += set_register(T0, distance & _WORD)
            code.append(instruction("add", target, register, T0))
        elif not value.strides:
            self._from_table(code, target, value, mask)
        else:
            raise NoRegister

    def _from_table(self, code: list[Item], target: int, value: RollingValue, mask: int) -> None:
        """Each core's row says by how much its value differs."""
        self.held[target] = None  # what it held is gone before the base is added
        place = WORD_BYTES * self.used.setdefault(value.spread, len(self.used))
        if place <= NEAR:
            code.append(instruction("lw", target, place, TABLE))
        else:
            code += set_register(T0, place)
            code += [instruction("add", T0, T0, TABLE), instruction("lw", target, 0, T0)]
        if value.base:
            base, near = self._nearest(replace(value, spread=0), mask)
            if near == 0:
                code.append(instruction("add", target, target, base))
            else:
                code += set_register(T0, value.base & _WORD)
                code.append(instruction("add", target, target, T0))

    # Loops

    def pin(self, code: list[Item], value: RollingValue, mask: int, fresh: bool = True) -> int:
        """A register of its own that has the value and keeps it until it is unpinned."""
        register = self.place(code, value, mask, fresh)
        self.pinned.add(register)
        return register

    def forget(self, registers: Iterable[int] = POOL) -> None:
        """Nothing is known of these any more, the pinned ones excepted."""
        for register in registers:
            if register in self.held and register not in self.pinned:
                self.held[register] = None

    def follow(self, register: int, value: RollingValue) -> None:
        """The loop begins: a pinned register has the value of every iteration."""
        held = self.held[register]
        assert held is not None  # it was just given the value of the first one
        self.held[register] = RegisterContent(value, held.mask)

    def hide(self, register: int) -> None:
        """A pinned register counts, and is no value for anybody."""
        self.held[register] = None

    def leave(self, level: int, count: int, pointers: Collection[int]) -> None:
        """The loop at this level, the innermost, is over: pointers have gone on once more than the others."""
        for register, held in self.held.items():
            if held is not None and len(held.value.strides) > level:
                turns = count if register in pointers else count - 1
                grown = held.value.base + turns * held.value.strides[level]
                self.held[register] = replace(held, value=nearby(held.value, grown, level))


def nearby(value: RollingValue, base: int, level: int) -> RollingValue:
    """The value with another base and without what grows at this level and further in."""
    strides = value.strides[:level]
    while strides and strides[-1] == 0:
        strides = strides[:-1]
    return RollingValue(base, value.spread, strides)


def set_register(register: int, number: int) -> list[Item]:
    """One or two instructions."""
    return [*load_immediate(register, number)] if number else [instruction("addi", register, ZERO, 0)]
