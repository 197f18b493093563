"""Shares of a link or memory while several transfers move at the same time.

    transfers in motion --shares--> bytes per cycle of each

Each transfer is limited by its link, by its core's part of the link, and by the bandwidth of the memories at both ends
where the chip file gives one. The rest is divided fairly (max-min): no transfer gets less than another unless it cannot
use more. Work of the matrix and vector engines on a core's own memories is not counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hw_models.chip import Chip

FETCH = "fetch"
"""Name, in place of a link, of the path that brings lines into a core's instruction cache."""

Resource = Hashable
"""Something with a bandwidth: a link, a core's part of one, a memory."""


class Mover(NamedTuple):
    """One transfer in motion: over `link`, for `cores` (more than one where a single read serves all of them, none for
    the DMA). It is a plain tuple, because the cycle model looks up transfers that move together by it at every event.
    """

    link: str
    cores: tuple[int, ...] = ()


@dataclass(slots=True)
class Contention:
    """Bandwidths of one cluster of a chip, of which `clusters` work alike at the same time.

    What belongs to the whole chip is divided evenly among the clusters, since they all run the same kind of program.
    """

    chip: Chip
    clusters: int = 1
    _resources: dict[Mover, tuple[tuple[Resource, float], ...]] = field(default_factory=dict)
    _shares: dict[tuple[Mover, ...], tuple[float, ...]] = field(default_factory=dict)
    _rates: dict[frozenset[tuple[Mover, int]], Mapping[Mover, float]] = field(default_factory=dict)

    def shares(self, movers: tuple[Mover, ...]) -> tuple[float, ...]:
        """Bytes per cycle of each transfer in motion."""
        found = self._shares.get(movers)
        if found is None:
            rates = self._together(movers)
            found = self._shares[movers] = tuple(rates[mover] for mover in movers)
        return found

    def _together(self, movers: tuple[Mover, ...]) -> Mapping[Mover, float]:
        """Bytes per cycle by mover, independent of the order in which movers are listed: cores that fetch code start in
        many orders."""
        key = frozenset(Counter(movers).items())
        found = self._rates.get(key)
        if found is None:
            fair = _fair([self.resources(mover) for mover in movers])
            found = self._rates[key] = dict(zip(movers, fair, strict=True))
        return found

    def resources(self, mover: Mover) -> tuple[tuple[Resource, float], ...]:
        """The resources that a transfer needs, each with its bandwidth in bytes per cycle."""
        found = self._resources.get(mover)
        if found is None:
            found = self._resources[mover] = tuple(self._list(mover))
        return found

    def _list(self, mover: Mover) -> list[tuple[Resource, float]]:
        if mover.link == FETCH:
            return self._fetched(mover)
        link = next(link for link in self.chip.links if link.name == mover.link)
        owners: tuple[int | str, ...] = mover.cores or ("dma",)
        wanted: list[tuple[Resource, float]] = []
        if link.shared_by == "core":
            wanted += [((link.name, owner), link.bandwidth_bytes_per_cycle) for owner in owners]
        else:
            wanted.append((link.name, self._part(link.bandwidth_bytes_per_cycle, link.shared_by)))
        if link.core_bandwidth_bytes_per_cycle is not None:
            wanted += [((link.name, "core", owner), link.core_bandwidth_bytes_per_cycle) for owner in owners]
        for name in dict.fromkeys((link.source, link.destination)):
            memory = self.chip.memory(name)
            if memory.bandwidth_bytes_per_cycle is None:
                continue
            if memory.scope == "core":
                wanted += [(("memory", name, owner), memory.bandwidth_bytes_per_cycle) for owner in owners]
            else:
                wanted.append((("memory", name), self._part(memory.bandwidth_bytes_per_cycle, memory.scope)))
        return wanted

    def _fetched(self, mover: Mover) -> list[tuple[Resource, float]]:
        """Resources of a core's code fetches: it fetches one line at a time, each in the time of a miss, and never more
        than its memory gives."""
        cache = self.chip.instruction_cache
        assert cache is not None  # without one, nobody fetches
        memory = self.chip.memory(cache.memory)
        wanted: list[tuple[Resource, float]] = [((FETCH, *mover.cores), cache.line_bytes / cache.miss_cycles)]
        if memory.bandwidth_bytes_per_cycle is not None:
            wanted.append((("memory", memory.name), self._part(memory.bandwidth_bytes_per_cycle, memory.scope)))
        return wanted

    def _part(self, bandwidth: float, scope: str) -> float:
        return bandwidth / self.clusters if scope == "chip" else bandwidth


def _fair(needs: list[tuple[tuple[Resource, float], ...]]) -> tuple[float, ...]:
    """Max-min fair rates: the resource with the least for each of its users decides theirs, then the next."""
    left = {resource: bandwidth for wanted in needs for resource, bandwidth in wanted}
    users: dict[Resource, int] = {}
    for wanted in needs:
        for resource, _ in wanted:
            users[resource] = users.get(resource, 0) + 1
    rates = [0.0] * len(needs)
    waiting = list(range(len(needs)))
    while waiting:
        tightest = min((r for r in users if users[r]), key=lambda r: left[r] / users[r])
        rate = left[tightest] / users[tightest]
        fixed = [n for n in waiting if any(resource == tightest for resource, _ in needs[n])]
        for n in fixed:
            rates[n] = rate
            for resource, _ in needs[n]:
                left[resource] = max(0.0, left[resource] - rate)
                users[resource] -= 1
        waiting = [n for n in waiting if n not in fixed]
    return tuple(rates)
