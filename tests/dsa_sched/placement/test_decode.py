"""The compiled list scheduler against the simulator, and what it says of the critical path."""

from __future__ import annotations

import numpy as np
import pytest

from dsa_sched.placement.schedule.list_decoder import BY_COPY, BY_DATA, BY_LANE, Decoder
from dsa_sched.placement.schedule.schedule import verify_schedule
from dsa_sched.placement.schedule.simulate import simulate
from tests.dsa_sched.placement.test_frame import chain
from tests.placement_problems import random_problem

FREE = -1


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", range(25))
def test_what_is_decoded_is_what_is_simulated(seed: int, streams: int) -> None:
    """To the nanosecond, for given devices, free ones and a mixture."""
    problem = random_problem(seed, 3 + seed, 1 + seed % 4, streams, refusing=bool(seed % 2))
    decoder, rng = Decoder.of(problem), np.random.default_rng(seed)
    given = np.array([rng.choice(accepted) for accepted in problem.accepted])
    for gene in (given, np.full(len(given), FREE), np.where(rng.random(len(given)) < 0.5, given, FREE)):
        makespan = decoder.run(gene, rng.random(len(given)))
        schedule = simulate(problem, decoder.placement())
        verify_schedule(schedule, problem)
        assert schedule.makespan_ns == makespan
        assert (decoder.machine == gene)[gene != FREE].all()


def test_the_critical_path_says_what_was_waited_for() -> None:
    decoder = Decoder.of(chain((5, 7), (5, 7), (5, 7)))
    makespans, paths = decoder.evaluate(np.array([[0, 1, 1]]), np.zeros((1, 3)), paths=True)
    assert makespans.tolist() == [5 + 110 + 7 + 7]
    assert paths[0, 1:].tolist() == [BY_COPY, BY_DATA]


def test_a_busy_stream_is_on_the_critical_path() -> None:
    problem = random_problem(0, 1)
    twice = chain((100, 1), (200, 1), shares=(0.1, 0.1))
    decoder = Decoder.of(twice)
    assert decoder.run(np.array([1, 1]), np.array([1.0, 0.0])) == 2
    _, paths = decoder.evaluate(np.array([[1, 1]]), np.array([[1.0, 0.0]]), paths=True)
    assert paths[0, 1] == BY_LANE
    assert Decoder.of(problem).run(np.zeros(3, np.int64), np.zeros(3)) == problem.work_ns[1, 0]


@pytest.mark.parametrize("seed", range(10))
def test_critical_work_and_copies_fill_the_makespan(seed: int) -> None:
    """Each start of the path is the end of something, so nothing of it is slack: making a task of it longer delays."""
    problem = random_problem(seed, 12, 2)
    decoder, rng = Decoder.of(problem), np.random.default_rng(seed)
    genes = np.array([[rng.choice(accepted) for accepted in problem.accepted] for _ in range(5)])
    makespans, paths = decoder.evaluate(genes, rng.random(genes.shape), paths=True)
    work = problem.work_ns[np.arange(genes.shape[1]), genes]
    assert ((work * (paths > 0)).sum(axis=1) <= makespans).all()
    assert (paths > 0).any(axis=1).all()
