"""Contents of CSRs and other settings, core by core, while shared code is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from codegen.neuralscale.emit.descriptors import CHAINS, DESCRIPTOR_BYTES
from codegen.neuralscale.rolling.registers import WORD_BYTES
from codegen.neuralscale.rolling.repeats import Leaf, Node, RepeatLoop

ENGINE_BASES = ("x26", "x27")
"""The registers that point to a DMA engine and to its descriptors, which are settings, too."""


@dataclass
class Settings:
    """Known values of settings, with the cores (one bit each) that have them."""

    known: dict[str, dict[int, int]] = field(default_factory=dict)

    def holds(self, name: str, value: int, mask: int) -> bool:
        return self.known.get(name, {}).get(value, 0) & mask == mask

    def set(self, name: str, value: int, mask: int) -> None:
        found = {other: cores & ~mask for other, cores in self.known.get(name, {}).items() if cores & ~mask}
        found[value] = found.get(value, 0) | mask
        self.known[name] = found

    def forget(self, names: Iterable[str], mask: int) -> None:
        """Mark these settings as unknown on the cores of the mask."""
        for name in names:
            found = self.known.get(name, {})
            self.known[name] = {value: cores & ~mask for value, cores in found.items() if cores & ~mask}

    def copy(self) -> Settings:
        return Settings({name: dict(found) for name, found in self.known.items()})


def leaves_of(nodes: Iterable[Node]) -> Iterator[Leaf]:
    """All steps in order, with those of a loop once."""
    for node in nodes:
        if isinstance(node, RepeatLoop):
            yield from leaves_of(node.body)
        else:
            yield node


def names_in(loop: RepeatLoop) -> frozenset[str]:
    """Settings that an iteration may write."""
    names = set(ENGINE_BASES)
    for leaf in leaves_of(loop.body):
        names.update(name for name, _ in leaf.step.kind.settings)
        if leaf.step.kind.opcode == "dma.start":
            names.update(_words_of(leaf))
    return frozenset(names)


def kept_words(leaves: Iterable[Leaf]) -> frozenset[str]:
    """Words of descriptors, by their names, that keep the last written value until they are written again: those of
    channels that only one core starts. The first word of a descriptor says that it is valid; an engine might clear it,
    so it is always written."""
    cores: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], set[str]] = {}
    for leaf in leaves:
        if leaf.step.kind.opcode == "dma.start":
            given = dict(leaf.step.kind.settings)
            channel = given["engine"], given["channel"]
            cores[channel] = cores.get(channel, 0) | leaf.mask
            names.setdefault(channel, set()).update(_words_of(leaf))
        elif leaf.step.kind.opaque is not None and leaf.step.kind.opcode in CHAINS:
            given = dict(leaf.step.kind.opaque.operands)
            channel = given["engine"], given["channel"]
            cores[channel] = cores.get(channel, 0) | leaf.mask
    alone = (channel for channel, mask in cores.items() if mask & (mask - 1) == 0)
    return frozenset(name for channel in alone for name in names.get(channel, ()))


def word_name(channel: Mapping[str, int], position: int) -> str:
    """The name of the setting for a word of a channel's descriptors."""
    return f"word {channel['engine']}.{channel['channel']}.{position}"


def _words_of(leaf: Leaf) -> Iterator[str]:
    given = dict(leaf.step.kind.settings)
    return (word_name(given, n) for n in range(len(leaf.values)) if n % (DESCRIPTOR_BYTES // WORD_BYTES))


def steady_settings(loop: RepeatLoop) -> Iterator[tuple[str, int]]:
    """Settings whose value at the end of an iteration is the one that the iteration needs first, alike on all cores, so
    that they can be written before the loop."""
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
