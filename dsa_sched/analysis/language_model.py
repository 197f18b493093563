"""What a run of a language model is for its user: tokens, and the bytes that weights, caches and the last factor cost.

RunTime of an artifact that keeps caches --language_figures--> LanguageFigures
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from dsa_sched.artifact.session import kept_state
from hw_models.routes import main_memory
from partitioner.ir.graph import Graph

if TYPE_CHECKING:
    from dsa_sched.analysis.artifact_timing import RunTime
    from dsa_sched.artifact.format import Manifest

WEIGHTS, HEAD, CACHES, OTHERS = "weights", "head", "caches", "others"


@dataclass(frozen=True, slots=True)
class LanguageFigures:
    """Tokens that one run reads, all items together, and of one item. `main_bytes` are what a pass of the first program
    moves from the main memory or to it: constants by `weights`, those of the last product by `head`, what is kept from
    run to run by `caches`, and all else."""

    tokens: int
    rows: int
    main_bytes: Mapping[str, int]


def language_figures(run: RunTime) -> LanguageFigures | None:
    """The figures of an artifact that keeps values from one run to the next; None for any other."""
    manifest = None if run.artifact is None else run.artifact.manifest
    tokens = 0 if manifest is None else tokens_of(manifest)
    if manifest is None or not tokens:
        return None
    rows = tokens // max(1, run.batch)
    return LanguageFigures(tokens, rows, _main_bytes(run, manifest, kept_state(manifest, {})))


def tokens_of(manifest: Manifest) -> int:
    """Tokens that one run of an artifact looks up, if it keeps values from one run to the next; 0 for any other."""
    looked_up = [entry.shape for entry in manifest.inputs if entry.indices]
    if manifest.divided or not looked_up or not kept_state(manifest, {}):
        return 0
    return max(map(prod, looked_up))


def _main_bytes(run: RunTime, manifest: Manifest, state: Mapping[str, str]) -> Mapping[str, int]:
    artifact = run.artifact
    assert artifact is not None
    main, head = main_memory(artifact.chip), _head(artifact.graph, frozenset(state))
    kinds = []
    for entry in manifest.tensors:
        is_kept = entry.name in state or entry.name in state.values()
        kind = CACHES if is_kept else OTHERS
        if entry.kind == "constant":
            kind = HEAD if entry.name in head else WEIGHTS
        kinds.append((entry.address, entry.address + entry.bytes, kind))
    kinds.sort()
    starts = [start for start, _, _ in kinds]
    found = dict.fromkeys((WEIGHTS, HEAD, CACHES, OTHERS), 0)
    for stream in run.programs[0].streams:
        for op in stream.ops:
            for region in (*op.reads, *op.writes) if op.moved_bytes else ():
                if region.memory == main:
                    at = bisect_right(starts, region.offset_bytes) - 1
                    inside = at >= 0 and region.offset_bytes < kinds[at][1]
                    found[kinds[at][2] if inside else OTHERS] += region.size_bytes
    return found


def _head(graph: Graph, kept: frozenset[str]) -> frozenset[str]:
    """The constants of the last operator that has weights on the way to an output that is not kept."""
    wanted = {name for name in graph.results if name not in kept}
    for op in (*graph.concluded[::-1], *graph.ops[::-1]):
        if not wanted.intersection(op.outputs):
            continue
        constants = frozenset(name for name in op.inputs if name in graph.by_name and graph.by_name[name].constant)
        if op.macs and constants:
            return constants
        wanted.update(op.inputs)
    return frozenset()
