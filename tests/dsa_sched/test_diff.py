"""`dsa-sched diff`: which of two artifacts is faster, by how much, why, and what else differs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.cli import cli
from dsa_sched.report.difference import print_difference
from dsa_sched.report.listing import plain_console
from hw_models.changes import differing_fields
from partitioner.ir.decisions import Decision
from tests.repo.test_docs import documented_keys
from tests.small_models import classifier, save

SLOWER = 5


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["diff", *map(str, arguments)], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of one network: at two levels, for a slower chip with less staging memory, at two levels for a GPU."""
    folder = tmp_path_factory.mktemp("built")
    model = save(classifier(), folder / "classifier.onnx")
    slower = dsa_sched.load_chip("stcp920", {"memories.LLB.size_bytes": 4_194_304, "clock_hz": 900_000_000})
    for name, chip, level in (
        ("o0", "stcp920", "O0"),
        ("o3", "stcp920", "O3"),
        ("slower", slower, "O3"),
        ("h200-o0", "h200", "O0"),
        ("h200-o3", "h200", "O3"),
    ):
        dsa_sched.compile(model, chip, level=level).save(folder / name)
    return folder


def test_an_artifact_is_as_fast_as_itself(built: Path) -> None:
    done = invoke(built / "o3", built / "o3", "--tolerance", 0)
    assert done.exit_code == 0
    assert done.stdout.startswith("equally fast: ")
    assert "parts are planned alike and take equally long" in done.stdout
    assert "decisions only" not in done.stdout
    found = dsa_sched.diff(built / "o3", built / "o3").found
    assert (found.times, found.same_order, found.reason) == (1.0, True, None)
    assert not any(change.more for change in (*found.counts, *found.causes, *found.moved_bytes, *found.peak_bytes))


def test_decisions_that_differ_in_numbers_alone_are_counted(built: Path) -> None:
    found = dsa_sched.diff(built / "o3", built / "o3").found
    asked = Decision("level", "not O2", "95,667 cycles by the cycle model")
    sides = (
        replace(found.before, decisions=(asked, Decision("relu", "fused", "reads conv1"))),
        replace(found.after, decisions=(replace(asked, reason="95,470 cycles by the cycle model"),)),
    )
    printed: dict[bool, str] = {}
    for full in (False, True):
        stream = io.StringIO()
        print_difference(replace(found, before=sides[0], after=sides[1]), full, plain_console(stream))
        printed[full] = stream.getvalue()
    assert "decisions only before\n  relu: fused: reads conv1\n1 decision has the same reason" in printed[False]
    assert "not O2" not in printed[False]
    assert "decisions only after" not in printed[False]
    assert printed[True].count("not O2") == 2
    assert "with other numbers" not in printed[True]


def test_the_first_line_says_by_how_much_and_why(built: Path) -> None:
    times = {name: dsa_sched.time(built / name) for name in ("o0", "o3")}
    ways = (("o0", "o3"), ("o3", "o0"))
    for before, after in ways:
        found = dsa_sched.diff(built / before, built / after)
        assert found.times == pytest.approx(times[after].seconds / times[before].seconds)
        word, by = ("slower", found.times - 1) if found.times > 1 else ("faster", 1 - found.times)
        assert found.headline.startswith(f"{word}: {by:.1%} {'more' if word == 'slower' else 'less'} time per item; ")
        cause, _ = found.found.reason or pytest.fail("no reason")
        assert f"cycles {'more' if word == 'slower' else 'less'}" in found.headline
        assert cause.more == max(
            (c.more for c in found.found.causes), key=lambda more: more * (1 if word == "slower" else -1)
        )
    (first, second) = (dsa_sched.diff(built / a, built / b).found for a, b in ways)
    assert first.times * second.times == pytest.approx(1)


def test_a_tolerance_is_for_teams(built: Path) -> None:
    times = {name: dsa_sched.time(built / name).seconds for name in ("o0", "o3")}
    slow, fast = sorted(times, key=lambda name: -times[name])
    percent = 100 * (times[slow] / times[fast] - 1)
    assert invoke(built / fast, built / slow).exit_code == 0
    assert invoke(built / fast, built / slow, "--tolerance", 0.9 * percent).exit_code == SLOWER
    assert invoke(built / fast, built / slow, "--tolerance", 1.1 * percent).exit_code == 0
    assert invoke(built / slow, built / fast, "--tolerance", 0).exit_code == 0


def test_parts_are_whole_groups_of_both_plans_and_the_time_of_both(built: Path) -> None:
    found = dsa_sched.diff(built / "o0", built / "o3").found
    for side, shares in (
        (found.before, [p.before for p in found.parts]),
        (found.after, [p.after for p in found.parts]),
    ):
        assert sorted(chain.from_iterable(shares), key=lambda share: share.name) == sorted(
            side.groups, key=lambda s: s.name
        )
    for part in found.parts:
        assert {layer for share in (*part.before, *part.after) for layer in share.layers} == {*part.layers}
    assert len(found.parts) < len(found.before.groups)
    for side in (found.before, found.after):
        assert sum(share.seconds for share in side.groups) == pytest.approx(
            sum(seconds for cause, seconds in side.causes.items() if cause != "launch"), rel=0.1
        )


def test_fields_of_the_chip_and_options_are_named(built: Path) -> None:
    printed = invoke(built / "o3", built / "slower").stdout
    assert "chip memories.LLB.size_bytes: 8388608 -> 4194304\n" in printed
    assert "chip clock_hz: 1000000000 -> 900000000\n" in printed
    assert "option level: O0 -> O3\n" in invoke(built / "o0", built / "o3").stdout
    assert "the models are not" not in printed


def test_fields_that_one_chip_lacks() -> None:
    chip = dsa_sched.load_chip("stcp920")
    assert differing_fields(chip, chip) == ()
    other = dsa_sched.load_chip("stcp920", {"clock_hz": 900_000_000, "description": "mine"})
    assert differing_fields(chip, other) == (("clock_hz", "1000000000", "900000000"),)
    fields = {path: values for path, *values in differing_fields(chip, dsa_sched.load_chip("a100"))}
    assert fields["memories.L1.size_bytes"] == ["1310720", ""]


def test_kernels_of_a_gpu_are_compared_by_estimates(built: Path) -> None:
    printed = invoke(built / "h200-o0", built / "h200-o3").stdout
    assert printed.startswith("equally fast: ")
    assert "per item (estimates)\n" in printed
    assert "launches" in printed
    (fc,) = (p for p in dsa_sched.diff(built / "h200-o0", built / "h200-o3").found.parts if p.layers == ("fc",))
    assert fc.before == fc.after
    assert fc.before[0].place.startswith("gemm(")
    across = invoke(built / "o3", built / "h200-o3").stdout
    assert "chips of different kinds: neuralscale-v1 -> sm_90a\n" in across


def test_json_has_the_documented_keys(built: Path, tmp_path: Path) -> None:
    assert invoke(built / "o0", built / "o3", "--json", tmp_path / "diff.json").exit_code == 0
    found = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    assert found == dsa_sched.diff(built / "o0", built / "o3").to_dict() | {
        side: found[side] | {"name": str(built / name)} for side, name in (("before", "o0"), ("after", "o3"))
    }
    parts = found["parts"][0]
    keys = {*found, *found["before"], *found["causes"][0], *parts, *parts["before"][0], *found["decisions"][0][0]}
    assert keys - documented_keys("diff") == set()


def test_what_is_no_artifact_is_refused(built: Path, tmp_path: Path) -> None:
    assert invoke(built / "o3", built / "classifier.onnx").exit_code == 2
    done = CliRunner().invoke(cli, ["diff", str(built / "o3"), str(tmp_path)])
    assert done.exit_code == 1
    assert str(tmp_path) in done.stderr
