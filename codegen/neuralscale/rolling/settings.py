"""What CSRs and other settings hold, core by core, while shared code is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from codegen.neuralscale.rolling.repeats import Leaf, Loop, Node

__all__ = ["ENGINE_BASES", "Settings", "leaves_of", "names_in", "steady_settings"]

ENGINE_BASES = ("x26", "x27")
"""The registers that point to a DMA engine and to its descriptors, which are settings too."""


@dataclass
class Settings:
    """Which cores (a bit each) are known to have which value."""

    known: dict[str, dict[int, int]] = field(default_factory=dict)

    def holds(self, name: str, value: int, mask: int) -> bool:
        return self.known.get(name, {}).get(value, 0) & mask == mask

    def set(self, name: str, value: int, mask: int) -> None:
        found = {other: cores & ~mask for other, cores in self.known.get(name, {}).items() if cores & ~mask}
        found[value] = found.get(value, 0) | mask
        self.known[name] = found

    def forget(self, names: Iterable[str], mask: int) -> None:
        """Nothing is known of these on the cores of the mask any more."""
        for name in names:
            found = self.known.get(name, {})
            self.known[name] = {value: cores & ~mask for value, cores in found.items() if cores & ~mask}

    def copy(self) -> Settings:
        return Settings({name: dict(found) for name, found in self.known.items()})


def leaves_of(nodes: Iterable[Node]) -> Iterator[Leaf]:
    """All steps in order, those of a loop once."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from leaves_of(node.body)
        else:
            yield node


def names_in(loop: Loop) -> frozenset[str]:
    """Settings that an iteration may write."""
    names = {name for leaf in leaves_of(loop.body) for name, _ in leaf.step.kind.settings}
    return frozenset(names | set(ENGINE_BASES))


def steady_settings(loop: Loop) -> Iterator[tuple[str, int]]:
    """What an iteration leaves as it first needs it, and so can be written before the loop: on all cores alike."""
    ends: dict[str, dict[int, tuple[int, int]]] = {}
    for leaf in leaves_of(loop.body):
        if leaf.step.kind.opcode.startswith("dma."):
            continue
        for name, value in leaf.step.kind.settings:
            by_core = ends.setdefault(name, {})
            for core in range(leaf.mask.bit_length()):
                if leaf.mask >> core & 1:
                    by_core[core] = by_core.get(core, (value, value))[0], value
    for name, by_core in ends.items():
        values = {value for pair in by_core.values() for value in pair}
        if len(values) == 1:
            yield name, values.pop()
