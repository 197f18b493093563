"""`dsa-sched chip new`: a chip file like a built-in one, with the values that are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa_sched.cli import cli
from hw_models.changes import changed_chip, differing_fields
from hw_models.derived_chip import derived_text
from hw_models.errors import ChipError
from hw_models.loading import builtin_chips, load_chip, parse_chip


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["chip", "new", *map(str, words)])


def test_a_file_has_the_given_values_and_all_others_of_its_pattern(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    done = invoke("mine", "--cores", 4, "--array", "32x16", "--memory", "L1=768KiB", "--clock", 900,
                  "--set", "links.ddr_to_llb.latency_cycles=120", "-o", file)  # fmt: skip
    assert done.exit_code == 0, done.output
    first, parts = done.stdout.splitlines()
    assert first == f"{file}: like stcp920, 6 values given; see: dsa-sched chip check {file}"
    assert parts.startswith("L1 is divided into data 614.40 KiB, weights 153.60 KiB; --set memories.L1.buffers.PART")
    made = load_chip(file)
    assert (made.name, made.cores_per_cluster, made.clock_hz) == ("mine", 4, 900_000_000)
    assert (made.matrix.array_pixels, made.matrix.array_channels) == (32, 16)
    l1 = made.memory("L1")
    assert l1.size_bytes == sum(part.size_bytes for part in l1.buffers) == 768 << 10
    changed = {path.split(".")[0] for path, *_ in differing_fields(load_chip("stcp920"), made)}
    assert changed == {"clock_hz", "cores_per_cluster", "memories", "engines", "links"}
    text = file.read_text(encoding="utf-8")
    assert (text.count("[given]; stcp920: "), text.count("[share]; stcp920: ")) == (6, len(l1.buffers))
    assert CliRunner().invoke(cli, ["chip", "check", str(file)]).stdout.startswith(f"{file}: good; chip mine")


@pytest.mark.parametrize("like", builtin_chips())
def test_every_built_in_chip_is_a_pattern(like: str) -> None:
    clock = load_chip(like).clock_hz + 1
    made = parse_chip(derived_text(like, "other", {"clock_hz": clock}), "other")
    assert differing_fields(changed_chip(load_chip(like), {"clock_hz": clock}), made) == ()


def test_engines_are_known_by_their_kind(tmp_path: Path) -> None:
    done = invoke("wide", "--like", "gemmini", "--array", "32x32", "-o", tmp_path / "wide.yaml")
    assert done.exit_code == 0, done.output
    assert load_chip(tmp_path / "wide.yaml").matrix.array_channels == 32
    assert (
        "needs a field engines.vector.lanes"
        in invoke("wide", "--like", "gemmini", "--lanes", 2, "-o", tmp_path / "no").stderr
    )


@pytest.mark.parametrize("name", ["true", "null", "on"])
def test_a_name_stays_a_name(name: str) -> None:
    assert parse_chip(derived_text("stcp920", name, {}), "other").name == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memory", "L3=1MiB"), "needs a field memories.L3.size_bytes; has DDR, LLB, L1, IM"),
        (("--set", "engines.vector=3"), "needs a number at engines.vector; has several fields"),
        (("--set", "nothing.there=3"), "needs a field nothing.there"),
        (("--memory", "L1=0"), "memories[2]"),
        (("--set", "dma.gather=1"), "dma.gather"),
    ],
)
def test_what_no_chip_has_is_refused_and_nothing_is_written(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = invoke("mine", "-o", tmp_path / "mine.yaml", *words)
    assert done.exit_code == 1, done.output
    assert said in done.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "words",
    [
        ("../mine",), ("1e3",), ("mine", "--array", "32"), ("mine", "--memory", "L1"), ("mine", "--memory", "L1=1 TB"),
        ("mine", "--set", "=3"), ("mine", "--cores", "0"), ("mine", "--clock", "0"), ("mi\nne",),
        ("mine", "--clock", "1THz"),
    ],
)  # fmt: skip
def test_words_that_are_off_are_a_matter_of_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    assert invoke(*words, "-o", tmp_path / "mine.yaml").exit_code == 2
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine", encoding="utf-8")
    assert invoke("mine", "-o", tmp_path / "mine.yaml").exit_code == 2
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "mine"


def test_a_pattern_is_a_built_in_chip_or_a_chip_file() -> None:
    with pytest.raises(ChipError, match="stcp921"):
        derived_text("stcp921", "mine", {})
    with pytest.raises(ChipError, match=r"nowhere\.yaml: needs a chip file; has no such file"):
        derived_text("nowhere.yaml", "mine", {})


def test_a_file_is_made_like_another_file(tmp_path: Path) -> None:
    mine, half = tmp_path / "mine.yaml", tmp_path / "half.yaml"
    assert invoke("mine", "--cores", 4, "--memory", "L1=768KiB", "-o", mine).exit_code == 0
    done = invoke("half", "--like", mine, "--memory", "L1=384KiB", "-o", half)
    assert done.exit_code == 0, done.output
    assert ", 1 value given;" in done.stdout
    changed = {path for path, *_ in differing_fields(load_chip(mine), load_chip(half))}
    assert changed == {f"memories.L1.{part}size_bytes" for part in ("", "buffers.data.", "buffers.weights.")}
    assert load_chip(half).description == "Like mine, with other values"
    assert "size_bytes: 393_216         # [given]; mine: 786_432" in half.read_text(encoding="utf-8")


def test_a_part_that_is_given_leaves_the_rest_to_the_first(tmp_path: Path) -> None:
    weights = "memories.L1.buffers.weights.size_bytes=256KiB"
    assert invoke("mine", "--memory", "L1=768KiB", "--set", weights, "-o", tmp_path / "mine.yaml").exit_code == 0
    parts = load_chip(tmp_path / "mine.yaml").memory("L1").buffers
    assert [(part.name, part.size_bytes >> 10) for part in parts] == [("data", 512), ("weights", 256)]


@pytest.mark.parametrize(("given", "hertz"), [("600", 600e6), ("1.2GHz", 1.2e9), ("1 ghz", 1e9), ("850MHz", 850e6)])
def test_a_clock_may_have_a_unit(given: str, hertz: float, tmp_path: Path) -> None:
    assert invoke("mine", "--clock", given, "-o", tmp_path / "mine.yaml").exit_code == 0
    assert load_chip(tmp_path / "mine.yaml").clock_hz == hertz


def test_a_description_over_several_lines_is_refused_in_words(tmp_path: Path) -> None:
    text = derived_text("stcp920", "mine", {}).replace('"Like stcp920, with other values"', ">-\n  one\n  two")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert load_chip(tmp_path / "mine.yaml").description == "one two"
    with pytest.raises(ChipError, match="needs description on a line of its own"):
        derived_text(str(tmp_path / "mine.yaml"), "half", {})
