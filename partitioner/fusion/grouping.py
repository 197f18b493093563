"""Grouping: layers that become one sub-graph, merged by three patterns until none applies (Algorithm 2).

    straight   p -> c                 p + c       p's only reader is c, c's only producer is p
    diamond    e -> paths -> x        paths + x   one entry e (left out), one exit x, nothing leaves in between
    branch     p -> x <- others       p + x       p's only reader is x, which has other producers too

Rule (i), for straight and branch: f(consumer) >= f(producer) and f(merged) <= f(consumer). Rule (ii), for diamonds:
f(merged) <= the largest factor among the merged groups. f is the number of instances that the caller's best splitting
gives. Every group keeps one output, the last layer's, so groups are convex and in topological order by construction.

Rounds go through the patterns in order, and each group joins at most one merge of a pattern per round, so that a long
chain is merged in pairs and the work stays near linear; only groups that a merge affected are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from partitioner.fusion.split_factor import Splitting
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer

BestSplit = Callable[[tuple[Layer, ...]], Splitting | None]
Allowed = Callable[[tuple[Layer, ...]], str | None]

MOST_GROUPS_IN_A_DIAMOND = 64
"""Largest number of groups between entry and exit of a diamond; larger diamonds are not looked for."""

NEVER_FITS = 1 << 62
"""Factor of a group that no splitting makes fit."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Layers by their place in the network; `number` is unique, merged groups get new ones."""

    number: int
    layers: tuple[Layer, ...]
    places: tuple[int, ...]
    splitting: Splitting | None
    is_view: bool

    @property
    def factor(self) -> int:
        return NEVER_FITS if self.splitting is None else self.splitting.instances

    @property
    def name(self) -> str:
        first, last = self.layers[0].name, self.layers[-1].name
        return first if len(self.layers) == 1 else f"{first}..{last}"


MOST_LAYERS = 1_024
"""Largest number of layers in a group: the cost of planning one grows faster than its layers, of which unrolled
networks have thousands."""


@dataclass(slots=True)
class _Merging:
    """State of the merging: the present groups, their readers, and the decisions so far."""

    graph: Graph
    best_split: BestSplit
    allowed: Allowed
    groups: dict[int, _Group] = field(default_factory=dict)
    producers: dict[int, set[int]] = field(default_factory=dict)
    consumers: dict[int, set[int]] = field(default_factory=dict)
    accepted: list[Decision] = field(default_factory=list)
    refused: dict[tuple[int, ...], dict[str, Decision]] = field(default_factory=dict)
    next_number: int = 0

    def start(self, layers: tuple[Layer, ...]) -> None:
        owner: dict[str, int] = {}
        for place, layer in enumerate(layers):
            splitting = self.best_split((layer,))
            group = _Group(place, (layer,), (place,), splitting, layer.is_view(self.graph))
            self.groups[place] = group
            self.producers[place] = {owner[name] for name in layer.inputs(self.graph) if name in owner}
            self.consumers[place] = set()
            for producer in self.producers[place]:
                self.consumers[producer].add(place)
            owner.update((output, place) for name in layer.ops for output in self.graph.op_by_name[name].outputs)
        self.next_number = len(layers)

    def in_order(self, numbers: Iterable[int]) -> list[int]:
        """Groups in topological order: a group's output is its last layer's, and readers come after it."""
        return sorted((n for n in numbers if n in self.groups), key=lambda n: self.groups[n].places[-1])

    def stored(self, number: int) -> str:
        """The network output that a group makes and that must leave it, or an empty text."""
        output = self.groups[number].layers[-1].output
        return output if output in self.graph.outputs else ""

    def merge(self, pattern: str, numbers: list[int], exit_number: int, rule: str) -> int | None:
        """Merge `numbers` (the exit's among them) if the pattern's rule and the caller allow it; the new number."""
        parts = [self.groups[n] for n in self.in_order(numbers)]
        pairs = sorted((place, layer) for part in parts for place, layer in zip(part.places, part.layers, strict=True))
        layers = tuple(layer for _, layer in pairs)
        subject = " + ".join(part.name for part in parts)
        ends = [n for n in numbers if n != exit_number and self.stored(n)]
        reason, splitting = "", None
        if ends:
            verdict = False
            reason = f"{self.stored(ends[0])} is an output of the network and must be stored"
        elif len(layers) > MOST_LAYERS:
            verdict = False
            reason = f"{len(layers)} layers; a group has at most {MOST_LAYERS}"
        else:
            splitting = self.best_split(layers)
            verdict, reason = self._judged(rule, parts, self.groups[exit_number], splitting)
            if verdict and (veto := self.allowed(layers)):
                verdict, reason = False, veto
        reason = f"{pattern}, {reason}"
        if not verdict:
            # The same groups may be refused by two patterns, and by one of them again after other merges.
            self.refused.setdefault(tuple(sorted(numbers)), {})[pattern] = Decision(subject, "not merged", reason)
            return None
        self.accepted.append(Decision(subject, "merged", reason))
        return self._replace(numbers, pairs, parts, splitting)

    def _judged(self, rule: str, parts: list[_Group], last: _Group, splitting: Splitting | None) -> tuple[bool, str]:
        """The rule's verdict and its numbers."""
        merged = NEVER_FITS if splitting is None else splitting.instances
        fits = f"factor {merged} merged ({splitting})" if splitting else "no factor makes it fit when merged"
        if splitting is None:
            return False, f"rule {rule}: {fits}"
        if rule == "(ii)":
            bound = max(part.factor for part in parts)
            return merged <= bound, f"rule (ii): {fits} {_compared(merged, bound)} the largest before"
        producer = next(part for part in parts if part is not last)
        # A view computes nothing and has no factor of its own.
        before = last.factor if producer.is_view else producer.factor
        after = producer.factor if last.is_view else last.factor
        if after < before:
            return False, f"rule (i): factor {after} < {before} of the producer"
        numbers = f"factor {after} >= {before} of the producer, {fits} {_compared(merged, after)} the consumer's"
        return merged <= after, f"rule (i): {numbers}"

    def _replace(
        self, numbers: list[int], pairs: list[tuple[int, Layer]], parts: list[_Group], splitting: Splitting | None
    ) -> int:
        number, self.next_number = self.next_number, self.next_number + 1
        producers = {p for n in numbers for p in self.producers[n]} - set(numbers)
        consumers = {c for n in numbers for c in self.consumers[n]} - set(numbers)
        for n in numbers:
            del self.groups[n], self.producers[n], self.consumers[n]
        for p in producers:
            self.consumers[p] = (self.consumers[p] - set(numbers)) | {number}
        for c in consumers:
            self.producers[c] = (self.producers[c] - set(numbers)) | {number}
        self.producers[number], self.consumers[number] = producers, consumers
        self.groups[number] = _Group(
            number,
            tuple(layer for _, layer in pairs),
            tuple(place for place, _ in pairs),
            splitting,
            all(part.is_view for part in parts),
        )
        return number


def group_layers_into_subgraphs(
    graph: Graph,
    layers: tuple[Layer, ...],
    best_split: BestSplit,
    allowed: Allowed = lambda _layers: None,
) -> tuple[tuple[tuple[Layer, ...], ...], tuple[Decision, ...]]:
    """Sub-graphs in topological order, as are the layers inside, and every merge made or (between final groups)
    refused.

    `best_split` gives the splitting of any candidate (None: fits with no factor), `allowed` a sentence against it or
    None.
    """
    state = _Merging(graph, best_split, allowed)
    state.start(layers)
    waiting = {pattern: set(state.groups) for pattern in _PATTERNS}
    while any(waiting.values()):
        for pattern, (merges_into, _) in _PATTERNS.items():
            exits, waiting[pattern] = state.in_order(waiting[pattern]), set()
            made: set[int] = set()
            for exit_number in exits:
                if exit_number not in state.groups:
                    continue
                for numbers in merges_into(state, exit_number):
                    if made.intersection(numbers):
                        waiting[pattern].add(exit_number)  # next round, with what was merged in this one
                        continue
                    rule = _PATTERNS[pattern][1]
                    number = state.merge(pattern, [*numbers, exit_number], exit_number, rule)
                    if number is not None:
                        made.add(number)
                        for changed in _touched(state, number):
                            for others in waiting.values():
                                others.add(changed)
                        break
    order = state.in_order(state.groups)
    final = [list(found.values()) for key, found in state.refused.items() if all(n in state.groups for n in key)]
    refusals = [Decision(found[0].subject, "not merged", "; ".join(d.reason for d in found)) for found in final]
    return tuple(state.groups[n].layers for n in order), (*state.accepted, *refusals)


def _straight(state: _Merging, exit_number: int) -> Iterator[list[int]]:
    producers = state.producers[exit_number]
    if len(producers) == 1:
        (producer,) = producers
        if state.consumers[producer] == {exit_number}:
            yield [producer]


def _branch(state: _Merging, exit_number: int) -> Iterator[list[int]]:
    if len(state.producers[exit_number]) > 1:
        for producer in state.in_order(state.producers[exit_number]):
            if state.consumers[producer] == {exit_number}:
                yield [producer]


def _diamond(state: _Merging, exit_number: int) -> Iterator[list[int]]:
    """Backward from the exit: the latest group first, until one alone is left, which is the entry."""
    frontier = set(state.producers[exit_number])
    inside: set[int] = set()
    while len(frontier) > 1 and len(inside) < MOST_GROUPS_IN_A_DIAMOND:
        latest = max(frontier, key=lambda n: state.groups[n].places[-1])
        if not state.consumers[latest] <= inside | {exit_number}:
            return  # it has a reader outside: it is not part of the paths, and the group before it is not an entry
        if not state.producers[latest]:
            return  # a path that starts here comes from no entry
        inside.add(latest)
        frontier = (frontier - {latest}) | state.producers[latest]
    if len(frontier) == 1 and inside:
        yield state.in_order(inside)


_PATTERNS: dict[str, tuple[Callable[[_Merging, int], Iterator[list[int]]], str]] = {
    "straight": (_straight, "(i)"),
    "diamond": (_diamond, "(ii)"),
    "branch": (_branch, "(i)"),
}


def _touched(state: _Merging, number: int) -> Iterator[int]:
    """Groups for which a merge may have opened a pattern: itself, its readers, and exits of paths through it."""
    yield number
    queue, seen = [number], {number}
    while queue and len(seen) < MOST_GROUPS_IN_A_DIAMOND:
        for consumer in state.in_order(state.consumers[queue.pop()]):
            if consumer not in seen:
                seen.add(consumer)
                yield consumer
                if len(state.producers[consumer]) == 1:
                    queue.append(consumer)


def _compared(value: int, bound: int) -> str:
    return f"{'<=' if value <= bound else '>'} {bound} of"
