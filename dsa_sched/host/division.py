"""Operators that the host takes, and the stages that chip and host run by turns.

    model --what the chip refuses--> operators of the host --order--> stages: chip, host, chip, ...

Operators that can run on the chip do, except layers that only rearrange values between two stages of the host. The
number of stages is the smallest that the two possible starts and the earliest and latest place of every operator allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.folded import FoldedModel, SubModel
from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.network.refusals import Judge, Unsupported

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HostStage:
    """Nodes that run in one go. `loaded` is the frontend's model of them for the chip, None on the host."""

    nodes: tuple[str, ...]
    cut: SubModel
    loaded: Model | None

    @property
    def place(self) -> str:
        return "host" if self.loaded is None else "chip"


@dataclass(frozen=True, slots=True)
class HostDivision:
    """The stages in order, and those of `operators` that depend on an input and that the host takes, by the names of
    the user's file.
    """

    stages: tuple[HostStage, ...]
    operators: int
    on_host: tuple[str, ...]

    @property
    def line(self) -> str:
        """`host: 2 of 40 operators: Log a, Log b; 3 stages: chip, host, chip`."""
        said = f"host: {len(self.on_host)} of {self.operators} operators"
        if not self.on_host:
            return f"{said}: the chip computes them all"
        count = len(self.stages)
        places = ", ".join(stage.place for stage in self.stages)
        return f"{said}: {', '.join(self.on_host)}; {count} stage{'s' if count > 1 else ''}: {places}"


def divide(folded: FoldedModel, judge: Judge, progress: Progress = lambda _step: None) -> HostDivision:
    """Ask the chip until it accepts everything that is left to it. Raises ModelError for values between stages without
    a static shape, and for nodes that the frontend cannot read at all.
    """
    network = folded.network
    host = set(_without_shapes(network))
    while True:
        progress(f"dividing between chip and host, {len(host)} operators on the host")
        stages, more = _tried(folded, frozenset(host), judge)
        if not more:
            types = {node.name: node.op_type for node in network.nodes}
            return HostDivision(
                tuple(stages), len(types), tuple(f"{types[name]} {name}" for name in types if name in host)
            )
        host |= more


def _without_shapes(network: Network) -> Iterator[str]:
    """Nodes that make or read values whose shapes follow from numbers: a program has static ones."""
    for node in network.nodes:
        for name in (*node.reads, *filter(None, node.outputs)):
            if name not in network.values and name not in network.constants:
                yield node.name
                break


def _tried(folded: FoldedModel, host: frozenset[str], judge: Judge) -> tuple[list[HostStage], frozenset[str]]:
    """The stages with these nodes on the host, and the nodes that must join them; then the stages mean nothing."""
    stages, more = list[HostStage](), set[str]()
    numbers = stage_numbers(folded.network, host)
    for number in sorted(set(numbers.values())):
        names = tuple(name for name, other in numbers.items() if other == number)
        cut = folded.cut(names, name=f"{folded.network.name}, stage {len(stages)}")
        loaded = None
        if not host.issuperset(names):
            try:
                loaded = load_model(cut.model, judge=judge)
            except Unsupported as error:
                refused = {node.name for node in error.refused} & {*names}
                if not refused:
                    raise
                more |= refused
                continue
            if host and all(op.is_view for op in loaded.graph.ops):
                more |= {*names}
        stages.append(HostStage(names, cut, loaded))
    return stages, frozenset(more)


def stage_numbers(network: Network, host: frozenset[str]) -> dict[str, int]:
    """Stage of every node, in order. The nodes of a stage are all on the host or none is; each reads only values of its
    own stage or an earlier one.
    """
    ways = [way(network, host, first) for first in (False, True) for way in (_earliest, _latest)]
    return min(ways, key=lambda numbers: len(set(numbers.values())))


def _earliest(network: Network, host: frozenset[str], host_first: bool) -> dict[str, int]:
    """The host has the even numbers where it comes first, else the odd ones."""
    numbers: dict[str, int] = {}
    for node in network.nodes:
        own = int((node.name in host) != host_first)
        for name in node.reads:
            if producer := network.producer.get(name):
                before = numbers[producer.name]
                own = max(own, before + (before - own) % 2)
        numbers[node.name] = own
    return numbers


def _latest(network: Network, host: frozenset[str], host_first: bool) -> dict[str, int]:
    earliest = _earliest(network, host, host_first)
    last = max(earliest.values())
    numbers: dict[str, int] = {}
    for node in reversed(network.nodes):
        own = last - (last - earliest[node.name]) % 2
        for reader in (reader for name in node.outputs for reader in network.readers.get(name, ())):
            after = numbers[reader.name]
            own = min(own, after - (after - own) % 2)
        numbers[node.name] = own
    return {node.name: numbers[node.name] for node in network.nodes}
