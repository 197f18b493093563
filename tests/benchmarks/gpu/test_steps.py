"""How steps end and go on: errors, time that is up, processes that are lost with their GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import steps
from benchmarks.gpu.bench import Bench, Item, Results, Row, Step
from benchmarks.gpu.store import Pack, PackWriter, checkout_hash
from codegen.cutlass.runner.runner import RunnerError

HEAD = {"step": "three", "pack": "0", "machine": "m"}


def three(made: list[str], fails: str = "") -> Step:
    """A step of three rows, one of which may fail; `made` gets the keys that are worked on."""

    def work(key: str) -> Row:
        made.append(key)
        if key == fails:
            raise RunnerError("cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS")
        return {"value": key}

    def items(_bench: Bench) -> Iterator[Item]:
        for key in "abc":
            yield Item(key, lambda key=key: work(key))  # type: ignore[misc]

    return Step("three", 60, items, lambda rows: [str(row) for row in rows])


def bench(*, rehearse: bool, rows_like: str = "") -> Bench:
    return Bench(Pack(Path(), "0", {}), rehearse, lambda _said: None, rows_like=rows_like)


def test_rows_are_kept_as_they_are_made(tmp_path: Path) -> None:
    made: list[str] = []
    results = Results.opened(tmp_path / "r.json", HEAD)
    assert not steps.run_step(three(made), bench(rehearse=False), results, 60)
    again = Results.opened(tmp_path / "r.json", HEAD)
    assert again.done
    assert [row["key"] for row in again.rows] == made == ["a", "b", "c"]
    assert not Results.opened(tmp_path / "r.json", {**HEAD, "pack": "1"}).rows


def test_an_error_on_a_gpu_asks_for_a_new_process_which_goes_on_behind_it(tmp_path: Path) -> None:
    made: list[str] = []
    step = three(made, fails="b")
    assert steps.run_step(step, bench(rehearse=False), Results.opened(tmp_path / "r.json", HEAD), 60)
    assert made == ["a", "b"]
    assert not steps.run_step(step, bench(rehearse=False), Results.opened(tmp_path / "r.json", HEAD), 60)
    assert made == ["a", "b", "c"]
    rows = Results.opened(tmp_path / "r.json", HEAD).rows
    assert (rows[1]["key"], rows[1]["error"]) == ("b", "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS")


def test_in_a_rehearsal_an_error_is_one_row(tmp_path: Path) -> None:
    made: list[str] = []
    assert not steps.run_step(three(made, "a"), bench(rehearse=True), Results.opened(tmp_path / "r.json", HEAD), 60)
    assert made == ["a", "b", "c"]


def test_when_time_is_up_the_rest_waits(tmp_path: Path) -> None:
    made: list[str] = []
    results = Results.opened(tmp_path / "r.json", HEAD)
    assert not steps.run_step(three(made), bench(rehearse=False), results, 0)
    assert made == []
    assert not results.done


def test_some_rows_may_be_asked_for_and_the_rest_waits(tmp_path: Path) -> None:
    made: list[str] = []
    results = Results.opened(tmp_path / "r.json", HEAD)
    assert not steps.run_step(three(made), bench(rehearse=False, rows_like="[bc]"), results, 60)
    assert made == ["b", "c"]
    assert not results.done
    assert not steps.run_step(three(made), bench(rehearse=False, rows_like="^a"), results, 60)
    assert made == ["b", "c", "a"]
    assert results.done


def test_rows_are_asked_for_by_a_regular_expression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert steps.main([str(tmp_path), "--rows", "("]) == 1
    assert "--rows: needs a regular expression" in capsys.readouterr().err


@pytest.mark.commit
def test_a_lost_process_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pack"
    program = {"network": "branching", "batch": 2, "chip": "h200", "level": "O0", "reuses": True, "kernels": {}}
    manifest = {"checkout": checkout_hash(steps.ROOT), "code": "cubin", "programs": [program], "left_out": []}
    PackWriter.begun(folder).finish(manifest)
    codes = iter((-11, 75, 0))
    started: list[Sequence[str]] = []

    def run(command: Sequence[str], **_settings: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == "nvidia-smi":
            raise FileNotFoundError(command[0])
        started.append(command)
        return subprocess.CompletedProcess(command, next(codes))

    class Gpu:
        def close(self) -> None:
            """Nothing is held."""

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(steps, "CudaDriver", Gpu)
    out = tmp_path / "out"
    assert steps.main([str(folder), "--out", str(out), "--only", "right", "--no-torch"]) == 1
    assert len(started) == 3
    assert all("--no-torch" in command and "right" in command for command in started)
    (row,) = json.loads((out / "gpu_right.json").read_text())["rows"]
    assert row == {"key": "branching x2 O0 h200", "error": "the process ended with code -11"}
