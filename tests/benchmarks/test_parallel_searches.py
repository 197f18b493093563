"""Many searches: the same outcomes wherever they run."""

from __future__ import annotations

import sys

import pytest

from benchmarks.lab.parallel_searches import Searched, dask_executor, outcomes, processes
from dsa_sched.placement.methods.registry import Search
from hw_models.errors import PlacementError
from tests.placement_problems import random_problem


def searches() -> list[Searched]:
    return [
        Searched(f"random {number}", random_problem(number, 8), method, Search(seed=seed, evaluations=100))
        for number in range(2)
        for method in ("heft", "sphinx")
        for seed in range(2)
    ]


@pytest.mark.commit
def test_processes_find_what_one_process_finds() -> None:
    said: list[str] = []
    with processes(2) as executor:
        found = outcomes(searches(), executor, said.append)
    assert found == outcomes(searches())
    assert len(said) == len(found)
    assert said[-1].startswith("8 of 8: random ")


def test_a_dask_cluster_finds_the_same() -> None:
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**settings) as cluster,
        dask_executor(cluster.scheduler_address) as executor,
    ):
        assert outcomes(searches(), executor) == outcomes(searches())


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    pytest.importorskip("distributed")
    with (
        pytest.raises(PlacementError, match=r"cluster tcp://127\.0\.0\.1:9: needs the address of a Dask scheduler"),
        dask_executor("tcp://127.0.0.1:9", seconds=0.5),
    ):
        pass


def test_an_address_that_is_none_is_an_error() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(PlacementError, match="needs the address"), dask_executor("nonsense://x", seconds=0.5):
        pass


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PlacementError, match=r"pip install distributed"), dask_executor("tcp://x:1"):
        pass


def test_the_first_error_is_raised() -> None:
    wrong = Searched("random", random_problem(0, 3), "magic", Search())
    with processes(1) as executor, pytest.raises(PlacementError, match="method magic"):
        outcomes([wrong], executor)
