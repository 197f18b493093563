"""Many searches at once, over the processes of this machine or a Dask cluster, with the same outcomes.

    Searched(problem, method, search) x n --an executor--> Outcome x n, in their order

Any `concurrent.futures.Executor` will do. A search depends only on its problem and seed, so where it runs changes
nothing, unless `Search.seconds` ends it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from dsa_sched.placement.methods.registry import Outcome, Search, find_method
from dsa_sched.placement.model.problem import Problem
from hw_models.errors import PlacementError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Searched:
    """Input of one search. `name` is for progress, for example the network and the scenario."""

    name: str
    problem: Problem
    method: str
    search: Search

    def run(self) -> Outcome:
        return find_method(self.method)(self.problem, self.search)


def outcomes(searches: Sequence[Searched], executor: Executor | None = None, say: Say | None = None) -> list[Outcome]:
    """The outcomes, in order; without an executor, the searches run here in sequence. `say` gets a line for each that
    is over.

    The first error of a search is raised, and waiting searches are given up.
    """
    if executor is None:
        return [
            _told(searched, searched.run(), place, len(searches), say) for place, searched in enumerate(searches, 1)
        ]
    running: dict[Future[Outcome], Searched] = {executor.submit(searched.run): searched for searched in searches}
    try:
        for place, future in enumerate(as_completed(running), 1):
            _told(running[future], future.result(), place, len(searches), say)
    except BaseException:
        for future in running:
            future.cancel()
        raise
    return [future.result() for future in running]


def _told(searched: Searched, outcome: Outcome, place: int, count: int, say: Say | None) -> Outcome:
    if say is not None:
        seed = searched.search.seed
        say(f"{place} of {count}: {searched.name}, {searched.method}, seed {seed}: {outcome.makespan_ns / 1e6:.3f} ms")
    return outcome


@contextmanager
def processes(workers: int | None = None) -> Iterator[Executor]:
    """This many processes of this machine; by default one for each of its cores."""
    # Started afresh: a fork of a process with threads, which solvers and compiled code leave behind, may hang.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)  # after an error nobody waits for the rest


@contextmanager
def dask_executor(address: str, seconds: float = 10.0) -> Iterator[Executor]:
    """The workers of the Dask cluster whose scheduler has this address (tcp://host:port). They need this package.

    Raises PlacementError without the `distributed` package, and when no scheduler answers within `seconds`.
    """
    try:
        from distributed import Client
    except ImportError:
        change = "pip install distributed"
        raise PlacementError(f"cluster {address}", needs="the package distributed", change=change) from None
    try:
        client = Client(address, timeout=seconds)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        needs = "the address of a Dask scheduler that answers, like tcp://host:8786"
        raise PlacementError(f"cluster {address}", needs=needs, has=str(error)) from None
    with client:
        yield client.get_executor()  # type: ignore[no-untyped-call]
