"""Work that is begun ahead of its turn, by processes forked from this one.

    items --the next ones, each to a process that is free--> results --taken in turn--> as if made one after the other

A worker has all that this process has when it is forked; a piece of work and its result are pickled between the two.
What is begun too early and not asked for in its turn is dropped. So the order of results, and what they are, depend on
neither the number of processes nor their speed, as long as the work itself does not.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NoReturn, TypeVar

from hw_models.errors import UserError

StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

LEAST_SECONDS = 0.1
"""Seconds that the first piece of work takes at least where processes are forked for the others."""

MOST_BEGUN = 2
"""Items that may be begun before their turn, per process."""

PR_SET_PDEATHSIG = 1
"""Number of the option of Linux's `prctl` that names the signal for a process whose parent ends."""


ENVIRONMENT = "DSA_SCHED_JOBS"
"""Name of the variable that gives the number of processes where no option does."""


def processes_of(jobs: int | None) -> int:
    """Number of processes that may work at once; default: what the environment says, or one for each core that this
    process may use.

    It is one where this process is a worker of another one, or has threads whose locks a fork would copy, or where the
    system is not Linux.
    """
    alone = threading.active_count() == 1 and multiprocessing.parent_process() is None
    if not alone or sys.platform != "linux":
        return 1
    said = os.environ.get(ENVIRONMENT, "")
    return jobs or (int(said) if said.isdecimal() else 0) or len(os.sched_getaffinity(0))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process:
    """A forked process that does one piece of work at a time. Fork it where Ctrl-C is blocked, which it stays there."""

    def __init__(self, state: object) -> None:
        parent = os.getpid()
        self.pipe, pipe = multiprocessing.Pipe()
        self.work: _Begun[Any] | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _serve(state, pipe, parent)
        pipe.close()

    def begin(self, work: _Begun[Any]) -> None:
        self.work = work
        self.pipe.send(work.function)

    def take(self) -> None:
        """Take what was found: nothing where the process ended before it was done."""
        assert self.work is not None  # it was asked
        self.work.is_done = True
        try:
            self.work.found, self.work.error = self.pipe.recv()
            self.work = None
        except (EOFError, OSError):
            self.pipe.close()

    def end(self) -> None:
        self.pipe.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(state: object, pipe: Connection, parent: int) -> NoReturn:
    """Life of a forked process: it ends with its parent, and does nothing that the parent would do at its own end."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == parent:
            work = pipe.recv()
            try:
                answer: tuple[tuple[object, ...], UserError | None] = (work(state),), None
            except UserError as raised:
                answer = (), raised.with_traceback(None)
            pipe.send(answer)
    finally:
        os._exit(0)


class _Begun(Generic[ResultT]):
    """A piece of work that a process was given, and what it found."""

    def __init__(self, function: Callable[..., ResultT]) -> None:
        self.function = function
        self.is_done = False
        self.found: tuple[ResultT, ...] = ()
        self.error: UserError | None = None


class Workers(Generic[StateT]):
    """Processes forked from this one, none before `fork` and none after the `with`; work is done on their `state`."""

    def __init__(self) -> None:
        self._processes: list[_Process] = []

    def __enter__(self) -> Workers[StateT]:
        return self

    def __exit__(self, *_raised: object) -> None:
        with _uninterrupted():
            for process in self._processes:
                process.end()
            self._processes.clear()

    def fork(self, count: int, state: StateT) -> None:
        """Fork this many processes, with all that this one has now; none where it is one, which this process is."""
        self._fork(count if count > 1 else 0, state)

    def fork_one(self, count: int, state: StateT) -> None:
        """Fork one process for work next to that of this one, where this many may work at once: none where it is
        one."""
        self._fork(1 if count > 1 else 0, state)

    def _fork(self, count: int, state: StateT) -> None:
        with _uninterrupted():
            self._processes += [_Process(state) for _ in range(count)]

    @property
    def count(self) -> int:
        return len(self._processes)

    @property
    def has_free(self) -> bool:
        return any(self._free())

    def begin(self, function: Callable[[StateT], ResultT]) -> _Begun[ResultT]:
        """Give work to a process that is free."""
        begun = _Begun(function)
        with _uninterrupted():
            next(self._free()).begin(begun)
        return begun

    def wait(self) -> None:
        """Wait until a process is done."""
        busy = [process for process in self._processes if process.work is not None and not process.pipe.closed]
        ready = wait([process.pipe for process in busy])
        with _uninterrupted():
            for process in busy:
                if process.pipe in ready:
                    process.take()

    def _free(self) -> Iterator[_Process]:
        return (process for process in self._processes if process.work is None)


def alongside(function: Callable[[StateT], ResultT], workers: Workers[StateT], state: StateT) -> Callable[[], ResultT]:
    """Begin work on a `state` in one of the workers, if there is any; what is returned waits for the result, or does
    the work here."""
    begun = workers.begin(function) if workers.has_free else None

    def result() -> ResultT:
        while begun is not None and not begun.is_done:
            workers.wait()
        if begun is not None and begun.error is not None:
            raise begun.error
        return begun.found[0] if begun is not None and begun.found else function(state)

    return result


class Ahead(Generic[ItemT, StateT, ResultT]):
    """Items in their order, and for the item of each turn the result of its work, which may have been begun before.

    Iterating draws items as early as there are `workers` that are free. The function that `work` makes of an item is
    pickled; it is called here where no worker has begun it. Work is begun only for items for which `worth` is true when
    they are drawn. `meanwhile` is done here while only the item of this turn is in work and nothing else is worth it.
    """

    def __init__(
        self,
        items: Iterable[ItemT],
        work: Callable[[ItemT], Callable[[StateT], ResultT]],
        workers: Workers[StateT],
        state: StateT,
        worth: Callable[[ItemT], bool] = lambda _item: True,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._items, self._work, self._workers, self._state, self._worth = iter(items), work, workers, state, worth
        self._meanwhile = meanwhile
        self._drawn: deque[tuple[ItemT, _Begun[ResultT] | None]] = deque()
        self._now: _Begun[ResultT] | None = None

    def __iter__(self) -> Iterator[ItemT]:
        while True:
            self.begin()
            if not self._drawn and not self._draw():
                return
            item, self._now = self._drawn.popleft()
            yield item

    def result(self, item: ItemT) -> ResultT:
        """The result for the item of this turn. Raises what its work raises."""
        begun = self._now
        if begun is None:
            return self._work(item)(self._state)
        while not begun.is_done:
            self.begin()
            if self._workers.has_free and all(work is None or work.is_done for _, work in self._drawn):
                self._meanwhile()
            self._workers.wait()
        if begun.error is not None:
            raise begun.error
        return begun.found[0] if begun.found else self._work(item)(self._state)

    def begin(self) -> None:
        """Draw the next items, and begin their work, as long as workers are free."""
        while self._workers.has_free and len(self._drawn) < MOST_BEGUN * self._workers.count and self._draw():
            pass

    def _draw(self) -> bool:
        """Draw the next item, if there is one, and begin its work where a worker is free."""
        for item in self._items:
            begins = self._workers.has_free and self._worth(item)
            self._drawn.append((item, self._workers.begin(self._work(item)) if begins else None))
            return True
        return False
