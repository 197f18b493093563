"""Work spread over processes of this machine, or over the workers of a Dask cluster.

items, work --spread--> (item, result) as each is done, in any order

A worker that ends before its work is done, for lack of memory say, costs that item alone: its result is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dsa_sched.builds.build_cache import compiler_hash
from dsa_sched.search.ahead import Workers, processes_of
from hw_models.errors import JobFileError

Item = TypeVar("Item")
Found = TypeVar("Found")

START = "dask worker SCHEDULER --nthreads 1 --nworkers N"

CLUSTER_SECONDS = 10.0
"""Seconds within which the scheduler of a cluster must answer."""


def spread(
    items: Sequence[Item], work: Callable[[Item], Found], jobs: int | None, cluster: str | None
) -> Iterator[tuple[Item, Found | None]]:
    """The items with the results of their work, as they come: over up to `jobs` processes of this machine (None: one
    per core), or over the cluster whose scheduler has this address. Both `work` and items are pickled. Raises
    JobFileError for a cluster that cannot be used."""
    if cluster is not None:
        return _over_cluster(items, work, cluster)
    processes = min(processes_of(jobs), len(items))
    return _over_processes(items, work, processes) if processes > 1 else ((item, work(item)) for item in items)


def _over_processes(
    items: Sequence[Item], work: Callable[[Item], Found], processes: int
) -> Iterator[tuple[Item, Found | None]]:
    waiting, running = deque(items), list[tuple[Item, Any]]()
    with Workers[None]() as workers:
        workers.fork(processes, None)
        while waiting or running:
            while waiting and workers.has_free:
                item = waiting.popleft()
                running.append((item, workers.begin(partial(_without_state, work, item))))
            workers.wait()
            done = [(item, begun) for item, begun in running if begun.is_done]
            running = [(item, begun) for item, begun in running if not begun.is_done]
            for item, begun in done:
                if begun.error is not None:
                    raise begun.error
                if not begun.found:
                    workers.fork_one(processes, None)  # in the place of the one that ended
                yield item, begun.found[0] if begun.found else None


def _without_state(work: Callable[[Item], Found], item: Item, _state: None) -> Found:
    return work(item)


def _over_cluster(
    items: Sequence[Item], work: Callable[[Item], Found], address: str
) -> Iterator[tuple[Item, Found | None]]:
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError:
        change = "pip install dask distributed, here and where the workers run"
        raise JobFileError(f"cluster {address}", needs="the package distributed", has="none", change=change) from None
    try:
        client = Client(address, timeout=CLUSTER_SECONDS)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        needs = "the address of a Dask scheduler that answers, like tcp://host:8786"
        raise JobFileError(f"cluster {address}", needs=needs, has=str(error)) from None
    with client:
        _require_alike(client, address)
        work = partial(_by_compiler, work, compiler_hash())  # workers may come later
        futures = {client.submit(work, item, pure=False): item for item in items}
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            item = futures.pop(future)
            try:
                yield item, future.result()
            except KilledWorker:
                yield item, None


def _require_alike(client: Any, address: str) -> None:
    """Refuse workers of several threads, which the compiler does not support, and those with another compiler. Raises
    JobFileError."""
    who = f"cluster {address}"
    threads = [worker["nthreads"] for worker in client.scheduler_info(-1)["workers"].values()]
    if not threads:
        raise JobFileError(who, needs="a worker", has="none", change=f"start some with: {START}")
    if max(threads) > 1:
        has = f"{max(threads)} in one of them"
        raise JobFileError(who, needs="workers with one thread each", has=has, change=f"start them with: {START}")
    try:
        client.run(partial(_by_compiler, str, compiler_hash()), "")
    except ImportError as error:
        raise JobFileError(who, needs="dsa-sched where its workers run", has=str(error)) from None


def _by_compiler(work: Callable[[Item], Found], compiler: str, item: Item) -> Found:
    """The result of work by this compiler. Raises JobFileError where the process has another one."""
    if compiler_hash() != compiler:
        needs = "workers with this version of dsa-sched and of its libraries"
        raise JobFileError("the cluster", needs=needs, has="another one", change="install the same checkout there")
    return work(item)
