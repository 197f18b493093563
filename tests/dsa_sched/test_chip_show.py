"""`dsa-sched chip show` draws memories, engines and links, as text and as SVG."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dsa_sched.analysis.chip_map import chip_map
from dsa_sched.cli import cli
from dsa_sched.report.chip_map_text import chip_map_lines
from hw_models.chip import Chip
from hw_models.loading import builtin_chips, load_chip, parse_chip

SOURCES, DESTINATIONS, DRIVER = "●◉", "▼▲◉", "■"


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["chip", "show", *map(str, words)])


def straight_to_cores() -> dict[str, Any]:
    """A chip of another team: two clusters of four cores, no shared buffer, memories of its own names."""
    fields = load_chip("stcp920").model_dump(mode="json")
    fields |= {"name": "straight", "clusters": 2, "cores_per_cluster": 4}
    fields["memories"] = [memory for memory in fields["memories"] if memory["name"] != "LLB"]
    (local,) = (memory for memory in fields["memories"] if memory["name"] == "L1")
    local["read_by"], local["written_by"] = [*local["read_by"], "dma"], [*local["written_by"], "dma"]
    inner = [link for link in fields["links"] if "LLB" not in (link["source"], link["destination"])]
    down = next(link for link in fields["links"] if link["name"] == "ddr_to_llb")
    ways = (("in", "DDR", "L1"), ("out", "L1", "DDR"))
    fields["links"] = [down | {"name": n, "source": s, "destination": d} for n, s, d in ways] + inner
    return fields


def drawn(text: str) -> list[str]:
    """The lines of the drawing, which follow the text form after an empty line."""
    return text.split("\n\n")[1].splitlines()


def joined(lines: list[str]) -> dict[str, tuple[str, str, str]]:
    """Link -> source, destination and engine, as a reader finds them in the drawing."""
    places = {int(found[0]): found.end() - 1 for found in re.finditer(r"\d+", lines[0])}
    legend = ", ".join(line.partition(": ")[2] for line in lines if line.startswith("  links: "))
    names = {int(number): name for number, name in (word.split() for word in legend.split(", "))}
    rows = [(line.split()[0], line) for line in lines[1:] if line.startswith("  ") and not line.startswith("  link")]
    found = {}
    for number, name in names.items():
        signs = [(row, line[places[number]]) for row, line in rows if len(line) > places[number]]
        ends = tuple(next(row for row, sign in signs if sign in wanted) for wanted in (SOURCES, DESTINATIONS, DRIVER))
        found[name] = (ends[0], ends[1], ends[2])
    return found


@pytest.mark.parametrize("name", [*builtin_chips(), "straight"])
@pytest.mark.commit
def test_every_memory_engine_and_link_is_drawn(name: str, tmp_path: Path) -> None:
    (tmp_path / "straight.yaml").write_text(json.dumps(straight_to_cores()), encoding="utf-8")
    source = name if name != "straight" else tmp_path / "straight.yaml"
    chip, svg = load_chip(source), tmp_path / "chip.svg"
    done = invoke(source, "--svg", svg)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(str(chip))
    lines = drawn(done.stdout)
    rows = [line.split()[0] for line in lines if line.startswith("  ")]
    assert {part.name for part in (*chip.memories, *chip.engines)} <= {*rows}
    if chip.links:
        assert joined(lines) == {link.name: (link.source, link.destination, link.engine) for link in chip.links}
    words = "\n".join(ElementTree.fromstring(svg.read_text(encoding="utf-8")).itertext())
    for part in (*chip.memories, *chip.engines, *chip.links):
        assert re.search(rf"^\s*{part.name}\b", words, re.MULTILINE), part.name


def reached(chip: Chip) -> dict[str, dict[str, str]]:
    """Engine -> memory -> `r`, `w` or `rw`, by the marks of the columns."""
    found = chip_map(chip)
    signs = {"reads": "r", "writes": "w", "reads and writes": "rw"}
    return {
        column.name: {found.rows[row].name: signs[mark.value] for row, mark in column.marks if mark.value in signs}
        for column in found.columns
        if not column.is_link
    }


def test_engines_stand_at_what_they_read_and_write() -> None:
    assert reached(parse_chip(json.dumps(straight_to_cores()), "straight")) == {
        "scalar": {"DDR": "rw", "L1": "rw", "IM": "rw"},
        "vector": {"L1": "rw", "IM": "rw"},
        "matrix": {"L1": "r", "IM": "rw"},
        "transfer": {"L1": "rw"},
        "dma": {"DDR": "rw", "L1": "rw"},
    }


def test_how_many_there_are_of_each_is_said() -> None:
    lines = drawn(invoke("stcp920").stdout)
    assert any(line.lstrip().startswith("4 clusters, each") for line in lines)
    assert any(line.lstrip().startswith("8 cores per cluster, each") for line in lines)
    alone = drawn(invoke("gemmini").stdout)
    assert any(line.lstrip().startswith("1 core") for line in alone)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    lines = chip_map_lines(chip_map(load_chip("stcp920")), ascii_only=True)
    assert "\n".join(lines).isascii()
    assert [len(line) for line in lines] == [len(line) for line in chip_map_lines(chip_map(load_chip("stcp920")))]


def test_equal_chips_give_equal_drawings_and_json_stays_json(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        done = invoke("gemmini", "--json", "--svg", tmp_path / name)
        assert json.loads(done.stdout) == load_chip("gemmini").model_dump(mode="json")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(("file", "said"), [("chip.gif", "ends in .svg"), ("no/chip.svg", "a folder that exists")])
def test_a_drawing_that_cannot_be_written_is_refused_before(file: str, said: str, tmp_path: Path) -> None:
    done = invoke("stcp920", "--svg", tmp_path / file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
