"""Contents of the cores' registers while shared code is made, and the code that loads the values of an instruction.

    Value --Registers.place--> a register, and the instructions that fill it where none holds the value yet

A value consists of a number on the lowest core that has it, its differences on the others, and its growth in each loop
around the code. Most values are near one that a register holds, and cost one addition.
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
"""Largest distance of one addition, either way."""

WORD_BYTES = 4
NEVER = 1 << 60
_WORD = (1 << 32) - 1


class NoRegister(Exception):
    """Only a register that follows a loop could give the value, and none does."""


@dataclass(frozen=True, slots=True)
class RollingValue:
    """A value with `base` on the lowest core, `spread` as the number of its differences on the others, and `strides` as
    the growth per iteration of each loop around it, from the outermost, without zeros at the end."""

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
    """Future uses of values: by spread and base, positions in the order of the code."""

    places: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    now: int = 0

    def next_use(self, held: RegisterContent) -> int:
        """The position of the next use; beyond all positions where there is none."""
        places = self.places.get((held.value.spread, held.value.base), [])
        at = bisect_right(places, self.now)
        return places[at] if at < len(places) else NEVER


@dataclass
class CoreRegisters:
    """The registers of all cores. Those in `pinned` are kept for a loop, those in `busy` until the next instruction is
    written."""

    spreads: Spreads
    held: dict[int, RegisterContent | None] = field(default_factory=lambda: dict.fromkeys(POOL))
    pinned: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    future: Future = field(default_factory=Future)
    used: dict[int, int] = field(default_factory=dict)
    """Rows of the table of spreads, in the order in which they were requested."""

    def place(self, code: list[Item], value: RollingValue, mask: int, fresh: bool = False) -> int:
        """A register that has the value on the cores of the mask; with `fresh`, a register that is used for nothing
        else.

        Raises NoRegister for a value that grows in a loop and is near no register that does.
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
        """Take the register and mark it as the one used last."""
        self.held.pop(register)
        self.held[register] = held
        self.busy.add(register)
        return register

    def _nearest(self, value: RollingValue, mask: int) -> tuple[int, int | None]:
        """The register whose value is nearest, and its distance, equal on every core; None for none."""
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
        """Distance where spreads or masks differ: the lowest core of each value is that of its own mask."""
        apart = self.spreads.apart(held.value.spread, value.spread, mask)
        return None if apart is None else value.base - held.value.base + apart

    def _victim(self) -> int:
        """The register whose value is used again last; those with unknown contents come first."""
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
        """Load from the table: each core's row holds the difference of its value."""
        self.held[target] = None  # its contents are lost before the base is added
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
        """Reserve a register that has the value and keeps it until it is unpinned."""
        register = self.place(code, value, mask, fresh)
        self.pinned.add(register)
        return register

    def forget(self, registers: Iterable[int] = POOL) -> None:
        """Mark the contents of these registers as unknown, except the pinned ones."""
        for register in registers:
            if register in self.held and register not in self.pinned:
                self.held[register] = None

    def follow(self, register: int, value: RollingValue) -> None:
        """Begin a loop: a pinned register has the value of every iteration."""
        held = self.held[register]
        assert held is not None  # it was just given the value of the first iteration
        self.held[register] = RegisterContent(value, held.mask)

    def hide(self, register: int) -> None:
        """Use a pinned register as a counter, which holds no value for other uses."""
        self.held[register] = None

    def leave(self, level: int, count: int, pointers: Collection[int]) -> None:
        """End the innermost loop, at this level: pointers have advanced once more than other registers."""
        for register, held in self.held.items():
            if held is not None and len(held.value.strides) > level:
                turns = count if register in pointers else count - 1
                grown = held.value.base + turns * held.value.strides[level]
                self.held[register] = replace(held, value=nearby(held.value, grown, level))


def nearby(value: RollingValue, base: int, level: int) -> RollingValue:
    """The value with another base and without the growth at this level and further in."""
    strides = value.strides[:level]
    while strides and strides[-1] == 0:
        strides = strides[:-1]
    return RollingValue(base, value.spread, strides)


def set_register(register: int, number: int) -> list[Item]:
    """Code that sets a register to a number: one or two instructions."""
    return [*load_immediate(register, number)] if number else [instruction("addi", register, ZERO, 0)]
