"""Work that other processes begin ahead of its turn: the same results in the same order, and nobody left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dsa_sched.search.ahead import Ahead, Workers, alongside, processes_of
from hw_models.errors import PlanError


def children() -> set[str]:
    return {number for path in Path("/proc/self/task").glob("*/children") for number in path.read_text().split()}


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def power(base: int, exponent: int) -> int:
    time.sleep(0.02 * (5 - exponent % 5))  # the first are the last to be done
    return int(base**exponent)


def work(exponent: int) -> partial[int]:
    return partial(power, exponent=exponent)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_results_come_in_turn(count: int) -> None:
    with Workers[int]() as workers:
        workers.fork(count, 3)
        ahead = Ahead(range(12), work, workers, 3)
        assert [ahead.result(item) for item in ahead] == [3**item for item in range(12)]


def process_of(_state: object) -> int:
    return os.getpid()


def test_what_is_not_worth_it_is_done_here() -> None:
    with Workers[int]() as workers:
        workers.fork(2, 0)
        ahead = Ahead(range(4), lambda _item: process_of, workers, 0, lambda item: item > 1)
        here = [ahead.result(item) == os.getpid() for item in ahead]
    assert here[:2] == [True, True]
    assert here[2] is False


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_not_asked_for_is_left_out(count: int) -> None:
    with Workers[int]() as workers:
        workers.fork(count, 2)
        ahead = Ahead(range(10), work, workers, 2)
        assert [ahead.result(item) for item in ahead if item % 3 == 0] == [1, 8, 64, 512]


def refused(_state: int, item: int) -> int:
    if item == 1:
        raise PlanError("item 1", needs="room", has="none")
    return item


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_the_user_is_raised_in_its_turn(count: int) -> None:
    with Workers[int]() as workers:
        workers.fork(count, 0)
        ahead = Ahead(range(3), lambda item: partial(refused, item=item), workers, 0)
        turns = iter(ahead)
        assert ahead.result(next(turns)) == 0
        with pytest.raises(PlanError, match="item 1: needs room; has none"):
            ahead.result(next(turns))
        assert ahead.result(next(turns)) == 2


@pytest.mark.parametrize("count", [1, 2])
def test_one_piece_of_work_is_done_next_to_others(count: int) -> None:
    with Workers[int]() as workers:
        workers.fork_one(count, 3)
        result = alongside(process_of, workers, 3)
        assert workers.count == (count > 1)
        assert (result() == os.getpid()) is (count == 1)
    with Workers[int]() as workers:
        workers.fork_one(count, 1)
        failed = alongside(partial(refused, item=1), workers, 1)
        with pytest.raises(PlanError, match="item 1: needs room; has none"):
            failed()


def late(_state: int, item: int) -> int:
    time.sleep(0.3 if item == 0 else 0.0)
    return item


def test_something_is_done_meanwhile_where_others_are_free() -> None:
    done: list[str] = []
    with Workers[int]() as workers:
        workers.fork(2, 0)
        items = Ahead(range(2), lambda item: partial(late, item=item), workers, 0, meanwhile=lambda: done.append("it"))
        assert [items.result(item) for item in items] == [0, 1]
    assert done


def broken(own: int, item: int) -> int:
    if os.getpid() != own:
        os._exit(1) if item == 1 else os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_what_a_process_fails_at_is_done_again_here() -> None:
    with Workers[int]() as workers:
        workers.fork(2, os.getpid())
        ahead = Ahead(range(4), lambda item: partial(broken, item=item), workers, os.getpid())
        assert [ahead.result(item) for item in ahead] == [0, 1, 2, 3]


def endless(own: int, item: int) -> int:
    if os.getpid() == own:
        return item
    time.sleep(1000)
    return -1


def test_ctrl_c_comes_while_others_work() -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with Workers[int]() as workers:
            workers.fork(2, os.getpid())
            ahead = Ahead(range(4), lambda item: partial(endless, item=item), workers, os.getpid())
            first = next(iter(ahead))
            with pytest.raises(KeyboardInterrupt):
                ahead.result(first)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_worker_has_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    assert processes_of(7) == 1
