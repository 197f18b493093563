"""Number of batch items that a cluster works on at once: its share in one pass, or in several smaller ones.

    items, clusters --divide--> share of a cluster --candidates--> plans and their costs --choose_batch--> Batching

A large pass launches less often and reads weights less often; a small one keeps values between layers on the chip. The
cost model decides, and the decisions contain the numbers of all candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, log

from hw_models.errors import ratio_text
from partitioner.cost.cost_model import PlanCost
from partitioner.ir.decisions import Decision

MOST_CANDIDATES = 6
"""Largest number of candidates: each needs a graph and a plan of its own, a few seconds for a large network."""

SUBJECT = "batch"


def shares_of(items: int, clusters: int) -> tuple[int, ...]:
    """Items of each cluster; the first clusters take one more where the batch does not divide evenly."""
    return tuple(items // clusters + (cluster < items % clusters) for cluster in range(clusters))


def pass_count(share: int, batch_per_pass: int) -> int:
    """Number of passes for a share; the last one may be padded."""
    return -(-share // batch_per_pass)


def candidate_batches(share: int, most: int = MOST_CANDIDATES) -> tuple[int, ...]:
    """Batches to try for a cluster's share, in rising order: powers of two and divisors. Where there are more than
    `most`, those nearest to a geometric ladder from 1 to the share, divisors first: they leave no pass half empty."""
    small = [n for n in range(1, isqrt(share) + 1) if share % n == 0]
    divisors = {*small, *(share // n for n in small)}
    found = divisors | {1 << n for n in range(share.bit_length())}
    if len(found) <= most:
        return tuple(sorted(found))
    rungs = (share ** (number / (most - 1)) for number in range(most))
    return tuple(sorted({_nearest(rung, found, divisors) for rung in rungs}))


def _nearest(rung: float, found: set[int], divisors: set[int]) -> int:
    return min(found, key=lambda n: (round(abs(log(n / rung)), 9), n not in divisors, n))


@dataclass(frozen=True, slots=True)
class PassCandidate:
    """A batch that was tried. `cycles` are those of all passes of the largest share, including launches and an
    incomplete last pass; `refusal` says why the batch is not possible (and then there are no cycles)."""

    batch_per_pass: int
    passes: int
    pass_cycles: float = 0.0
    refusal: str = ""

    @property
    def cycles(self) -> float:
        return self.passes * self.pass_cycles


@dataclass(frozen=True, slots=True)
class Batching:
    """The chosen batch: each cluster runs its share as micro-batches of this many items; and the decisions about it."""

    chosen: PassCandidate
    decisions: tuple[Decision, ...]


def choose_batch(
    costs: Mapping[int, PlanCost | str],
    items: int,
    clusters: int,
    base_cycles_per_item: float | None = None,
) -> Batching:
    """The candidate whose passes take the fewest cycles for the largest share; ties go to the larger batch.

    `costs` gives each candidate's cost, or the reason why it is not possible; at least one is possible.
    `base_cycles_per_item` are the cycles of level O0 per item at the smallest possible candidate: with it, decisions
    say how much of the gain the batch alone brings.
    """
    shares = shares_of(items, clusters)
    candidates = [
        PassCandidate(batch, pass_count(shares[0], batch), refusal=cost)
        if isinstance(cost, str)
        else PassCandidate(batch, pass_count(shares[0], batch), cost.cycles)
        for batch, cost in sorted(costs.items())
    ]
    ranked = tuple(sorted((c for c in candidates if not c.refusal), key=lambda c: (c.cycles, c.passes)))
    refused = tuple(candidate for candidate in candidates if candidate.refusal)
    gain = () if base_cycles_per_item is None else (_gain(ranked, shares[0], base_cycles_per_item),)
    return Batching(ranked[0], (_choice(ranked, shares), *gain, *_others(ranked[1:], refused)))


def _choice(ranked: tuple[PassCandidate, ...], shares: tuple[int, ...]) -> Decision:
    best = ranked[0]
    clusters = f"{len(shares)} clusters" if len(shares) > 1 else "1 cluster"
    numbers = ", ".join(_numbers(c, shares[0]) for c in sorted(ranked, key=lambda c: c.batch_per_pass))
    return Decision(
        SUBJECT,
        f"{best.batch_per_pass} per pass, {_passes(best.passes)}",
        f"{sum(shares)} items on {clusters}, {shares[0]} on the fullest: cycles per item {numbers}",
    )


def _gain(ranked: tuple[PassCandidate, ...], share: int, base_cycles_per_item: float) -> Decision:
    """Share of the batch alone, at equal level, in the gain over O0 at the smallest batch."""
    small, best = min(ranked, key=lambda c: c.batch_per_pass), ranked[0]
    here = best.cycles / share
    gain = base_cycles_per_item / here
    alone = small.pass_cycles / small.batch_per_pass / here
    part = log(alone) / log(gain) if gain != 1 else 0.0
    took = ratio_text(here, base_cycles_per_item, "cycles per item")
    reason = (
        f"{took} {'than' if gain > 1 else 'as'} O0 at batch {small.batch_per_pass}; "
        f"the larger batch alone brings {alone:.2f} times, {part:.0%} of it in logarithms"
    )
    return Decision(SUBJECT, f"gain {gain:.2f}, by the batch alone {alone:.2f}", reason)


def _others(lost: tuple[PassCandidate, ...], refused: tuple[PassCandidate, ...]) -> list[Decision]:
    found = [
        Decision(SUBJECT, f"not {c.batch_per_pass} per pass", f"{_passes(c.passes)} of {c.pass_cycles:,.0f} cycles, "
                 f"{c.cycles:,.0f} in all")
        for c in lost
    ]  # fmt: skip
    return found + [
        Decision(SUBJECT, f"not {c.batch_per_pass} per pass", f"not possible: {c.refusal}") for c in refused
    ]


def _numbers(candidate: PassCandidate, share: int) -> str:
    return f"{candidate.cycles / share:,.0f} at {candidate.batch_per_pass}"


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"
