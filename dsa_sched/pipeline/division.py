"""Division of a batch among the clusters of a chip, and each cluster's share into passes of one program.

options --shares_of_clusters--> shares        items per pass --on_clusters--> a part for each cluster
"""

from __future__ import annotations

from collections.abc import Callable

from dsa_sched.frontend import Model
from dsa_sched.search.passes import require_independent_items
from dsa_sched.stages.compilation import Compilation, CompileOptions
from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.cost.micro_batching import pass_count, shares_of


def shares_of_clusters(chip: Chip, options: CompileOptions) -> tuple[int, ...]:
    """Items of each cluster. Raises ModelError naming the option that cannot be."""
    batch, clusters, per_pass = options.batch, options.clusters, options.per_pass
    if not 1 <= clusters <= chip.clusters:
        raise ModelError("--clusters", needs=f"1 to {chip.clusters}, as {chip.name} has", has=str(clusters))
    if clusters > 1 and (batch is None or batch < clusters):
        raise ModelError("--clusters", needs=f"a --batch of at least {clusters} to divide", has=str(batch or "none"))
    if per_pass is not None and batch is None:
        raise ModelError("--per-pass", needs="a --batch to divide into micro-batches", has="none")
    shares = shares_of(batch or 1, clusters)
    if isinstance(per_pass, int) and not 1 <= per_pass <= shares[0]:
        needs = f"1 to {shares[0]}, the share of a cluster, or auto"
        raise ModelError("--per-pass", needs=needs, has=str(per_pass))
    return shares


def require_divisible(
    load: Callable[[int], Model],
    options: CompileOptions,
    batch: int,
    shares: tuple[int, ...],
    progress: Callable[[str], None],
) -> None:
    """Refuse to divide a batch whose items meet; that can be seen in a graph of two items or more. Raises
    ModelError."""
    if len(shares) > 1 or pass_count(shares[0], batch) > 1:
        progress("checking that the items of the batch are independent")
        require_independent_items(load(max(2, batch)), options)


def on_clusters(
    shares: tuple[int, ...],
    batch: int,
    one_pass: Callable[[int], Compilation],
    first: Compilation | None = None,
) -> tuple[Compilation, ...]:
    """A part for each cluster, in passes of this many items; where that is the largest share, each share is one pass.
    `first` is the part of the first cluster, where it is there already."""
    sizes = shares if batch == shares[0] else (batch,) * len(shares)
    by_size = {} if first is None else {batch: first}
    by_size |= {size: one_pass(size) for size in sorted(set(sizes) - set(by_size))}
    parts = [by_size[size].on_cluster(n, share) for n, (size, share) in enumerate(zip(sizes, shares, strict=True))]
    return (first or parts[0], *parts[1:])
