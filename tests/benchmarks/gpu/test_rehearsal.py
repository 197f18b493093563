"""The steps from a pack alone, beside nothing but NumPy, on the executor: what they find, keep, and refuse."""

from __future__ import annotations

import json
import shutil
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.store import read_pack
from tests.benchmarks.gpu.conftest import Machine

pytestmark = pytest.mark.slow

STEPS = (
    "right", "rates", "kernels", "networks", "fit", "order", "case-study", "streams", "together", "sanitizer",
)  # fmt: skip
MEASURED = ("_ms", "per_second")
"""How names of measured times end."""
FLOORS = {"floor_ms", "cold_floor_ms", "warm_floor_ms", "launch_ms", "expected_ms", "error_ms"}
"""Of the pack."""


@pytest.fixture(scope="session")
def rehearsed(machine: Machine, pack: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Results of all steps, and what was said."""
    out = tmp_path_factory.mktemp("results")
    done = machine.steps(pack, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def rows(out: Path, step: str) -> dict[str, dict[str, Any]]:
    found = json.loads((out / f"gpu_{step}.json").read_text())
    assert found["done"]
    return {row["key"]: row for row in found["rows"]}


def test_every_group_is_right(rehearsed: tuple[Path, str], pack: Path) -> None:
    found = rows(rehearsed[0], "right")
    assert set(found) == {"branching x2 O0 h200", "branching x2 O3 h200"}
    for program in read_pack(pack).programs:
        if program.reuses:
            row = found[program.key]
            assert row["groups"] == len(program.kernels)
            assert row["samples"] > 100 * row["groups"]
            assert not row["wrong"]
            assert row["finite"]
            assert row["same_bits"]
            assert 0 < row["largest_share"] <= 1


def test_the_block_is_one_kernel_at_o3(rehearsed: tuple[Path, str]) -> None:
    groups = {key: row["groups"] for key, row in rows(rehearsed[0], "kernels").items()}
    assert set(groups["branching x2 O0 h200"]) - set(groups["branching x2 O3 h200"]) == {"depthwise.sum", "project"}
    assert groups["branching x2 O3 h200"]["expand.sum"]["kernel"].startswith("inverted_residual(")


def test_rates_have_results_that_are_checked(rehearsed: tuple[Path, str]) -> None:
    found = rows(rehearsed[0], "rates")
    assert {row["what"] for row in found.values()} == {"main memory", "L2", "mma", "wgmma", "launch"}
    assert all("error" not in row for row in found.values())


OF_STUDY = pytest.mark.parametrize("pack", [pytest.param("study", marks=pytest.mark.nightly)], indirect=True)


@OF_STUDY
def test_every_way_of_the_study_is_run_and_right(rehearsed: tuple[Path, str], pack: Path) -> None:
    found = {key: row for key, row in rows(rehearsed[0], "case-study").items() if "what" in row}
    programs = read_pack(pack).studied
    assert set(found) == {program.key for program in programs}
    for network in ("small_inverted", "small_tail"):
        assert {"default", "layers", "ours"} <= {row["what"] for row in found.values() if row["network"] == network}
    for program in programs:
        row = found[program.key]
        assert row.get("same", "") == program.same
        if not program.same:
            assert row["samples"] > 0
            assert row["wrong"] == ""
            assert row["launches"] >= len(program.kernels)
            assert row["floor_ms"] > 0
    fused = [program for program in programs if program.level == "ours" or program.level.startswith("forced ")]
    assert any(len(kernel["ops"]) > 3 for program in fused for kernel in program.kernels.values())


@OF_STUDY
def test_candidates_are_run_alone(rehearsed: tuple[Path, str], pack: Path) -> None:
    found = rows(rehearsed[0], "order")
    programs = {program.key: program for program in read_pack(pack).candidates}
    assert set(found) == set(programs)
    for key, row in found.items():
        assert row["kernel"] == programs[key].kernels[programs[key].group]["kernel"]
        assert row["launches"] >= 1
        assert row["floor_ms"] > 0
    of_a_set = [(row["network"], row["layers"]) for row in found.values()]
    assert all(of_a_set.count(each) == 2 for each in of_a_set)
    assert any("," in layers for _, layers in of_a_set)


def test_floors_are_fitted_where_rates_were_measured(rehearsed: tuple[Path, str]) -> None:
    found = rows(rehearsed[0], "fit")
    assert found.pop("kinds of kernels")["samples"] == []
    assert set(found) == {"branching x2 O0 h200", "branching x2 O3 h200"}
    assert {row["skipped"] for row in found.values()} == {"step rates has measured nothing"}


def test_stages_run_side_by_side_and_leave_the_same_bits(rehearsed: tuple[Path, str]) -> None:
    found = rows(rehearsed[0], "streams")
    ours = {row["method"]: row for row in found.values() if "method" in row}
    assert set(ours) == {"sequential", "greedy", "ios"}
    assert all(row["same_bits"] for row in ours.values())
    assert ours["sequential"]["streams"] == 1 < ours["greedy"]["streams"]


def test_a_processor_and_the_gpu_share_a_network(rehearsed: tuple[Path, str], pack: Path) -> None:
    (row,) = rows(rehearsed[0], "together").values()
    (program,) = [program for program in read_pack(pack).programs if not program.reuses]
    ways = row["ways"]
    assert set(ways) == {"placed", "split", "gpu", "processor"}
    assert not any(way["wrong"] for way in ways.values())
    assert ways["gpu"]["on_processor"] == []
    assert set(ways["processor"]["on_processor"]) == set(program.kernels)
    assert 0 < len(ways["split"]["on_processor"]) < len(program.kernels)


def test_a_rehearsal_keeps_no_times(rehearsed: tuple[Path, str]) -> None:
    def times(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {name for name in value if str(name).endswith(MEASURED) and str(name) not in FLOORS}
            return own.union(*map(times, value.values()))
        return set().union(*map(times, value)) if isinstance(value, list) else set()

    for step in STEPS:
        assert not times(json.loads((rehearsed[0] / f"gpu_{step}.json").read_text())), step


def test_what_is_not_there_is_said(rehearsed: tuple[Path, str]) -> None:
    out, said = rehearsed
    assert len(list(out.iterdir())) == len(STEPS)
    without = ("networks", "case-study", "sanitizer")
    skipped = [row for step in without for row in rows(out, step).values() if "skipped" in row]
    assert {row["skipped"] for row in skipped} == {"the rehearsal has no GPU"}
    for step in STEPS:
        assert f"\n## {step}\n" in said


def test_what_is_done_is_not_done_again(
    machine: Machine, rehearsed: tuple[Path, str], pack: Path, tmp_path: Path
) -> None:
    out = tmp_path / "again"
    shutil.copytree(rehearsed[0], out)
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    cut = json.loads(kept["gpu_rates.json"])
    cut["rows"], cut["done"] = cut["rows"][:-1], False
    (out / "gpu_rates.json").write_text(json.dumps(cut))
    done = machine.steps(pack, out)
    assert done.returncode == 0
    worked = [line.split(":")[:2] for line in done.stdout.splitlines() if line.endswith(" s)")]
    assert [key.strip() for step, key in worked if step != "fit"] == ["wgmma h200"]
    assert len(worked) == 4  # what only reads other steps' rows is done anew
    assert {path.name: path.read_bytes() for path in out.iterdir()} == kept


def damaged(pack: Path, folder: Path, group: str, old: bytes, new: bytes) -> Path:
    """A copy of the pack whose PTX for a group says something else; all names of content are those of the new one."""
    shutil.copytree(pack, folder)
    found = read_pack(folder)
    for program in found.programs:
        listed = json.loads(found.object(program.entry["launches"]))
        used = {listed["modules"][launch["module"]]["ptx"] for launch in listed["launches"] if launch["layer"] == group}
        for path in used:
            text = found.object(program.entry["modules"][path])
            assert old in text
            content = text.replace(old, new)
            name = sha256(content).hexdigest()[:32]
            (folder / "objects" / name).write_bytes(zlib.compress(content))
            program.entry["modules"][path] = name
    (folder / "manifest.json").write_text(json.dumps(found.manifest))
    return folder


def test_a_wrong_kernel_is_found_by_its_layer(machine: Machine, pack: Path, tmp_path: Path) -> None:
    wrong = damaged(pack, tmp_path / "pack", "pool", b"max.NaN.f32", b"min.NaN.f32")
    done = machine.steps(wrong, tmp_path, "--only", "right")
    assert done.returncode == 1
    row = json.loads((tmp_path / "gpu_right.json").read_text())["rows"][0]
    assert set(row["wrong"]) == {"pool"}
    assert "group pool: " in done.stdout
    assert "samples beyond their bound" in done.stdout


def test_damaged_content_is_refused(machine: Machine, pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    shutil.copytree(pack, folder)
    found = read_pack(folder)
    name = found.programs[0].entry["plan"]
    (folder / "objects" / name).write_bytes(zlib.compress(b"plan"))
    done = machine.steps(folder, tmp_path, "--only", "right")
    assert done.returncode == 1
    assert "needs the content that its name is the hash of" in done.stdout


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("checkout", "0" * 64, "needs a pack of this checkout; has one of another"),
        ("code", "cubin", "needs a pack with ptx; has cubin; build it with --ptx"),
        ("format", "other/1", "needs format dsa-sched-gpu-pack/1; has other/1"),
    ],
)
def test_packs_that_do_not_fit_are_refused(
    machine: Machine, pack: Path, tmp_path: Path, field: str, value: str, said: str
) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    manifest = json.loads((pack / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, field: value}))
    done = machine.steps(folder, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr


def test_without_a_gpu_there_is_one_message(machine: Machine, pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    manifest = json.loads((pack / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "code": "cubin"}))
    done = machine.run(folder, tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: needs cuda-bindings: pip install 'cuda-bindings>=13,<14'\n"
    assert not list(tmp_path.glob("*.json"))


def test_an_unknown_step_is_refused(machine: Machine, pack: Path, tmp_path: Path) -> None:
    done = machine.steps(pack, tmp_path, "--only", "right,left")
    assert done.returncode == 1
    assert "--only" in done.stderr
    assert "left" in done.stderr
