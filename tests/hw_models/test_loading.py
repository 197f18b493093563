"""Chip files: what loads, and the exact words for everything that does not."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models.errors import ChipError
from hw_models.loading import MAX_FILE_BYTES, builtin_chips, load_chip, parse_chip

STCP920 = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")


def message(text: str) -> str:
    """What a user sees when this text is the file c.yaml."""
    with pytest.raises(ChipError) as caught:
        parse_chip(text, "c.yaml")
    return str(caught.value)


def outcome(text: str) -> str:
    """The chip that a text describes, or the message about it, as text."""
    try:
        return str(parse_chip(text, "c.yaml"))
    except ChipError as error:
        return str(error)


def edited(*edits: tuple[str, str]) -> str:
    """The built-in file with the first occurrence of each old text replaced; fails when there is none."""
    text = STCP920
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_known_fields_are_those_of_the_part_that_the_kind_chooses() -> None:
    """A rate of a tensor engine names an instruction, one of a vector engine does not."""
    text = (resources.files("hw_models") / "chips" / "a100.yaml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "instruction:" in line)
    said = message(text.replace(line, line.replace("instruction:", "opcode:"), 1))
    assert "rates[0].opcode: unknown field; known fields: instruction, dtype, macs_per_cycle" in said


def test_every_built_in_chip_loads_under_its_own_name() -> None:
    assert "stcp920" in builtin_chips()
    for name in builtin_chips():
        assert load_chip(name).name == name


def test_a_path_loads_the_same_chip_as_the_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920, encoding="utf-8")
    assert load_chip(str(file)) == load_chip(file) == load_chip("stcp920")


def test_comments_and_layout_do_not_change_the_hash_but_content_does() -> None:
    chip = load_chip("stcp920")
    bare = "\n".join(line.split(" #")[0] for line in STCP920.splitlines() if not line.startswith("#"))
    assert parse_chip(bare, "c.yaml").hash == chip.hash
    assert parse_chip(edited(("8_388_608", "8_388_610")), "c.yaml").hash != chip.hash
    assert len(chip.hash) == 64


def test_an_unknown_name_lists_what_exists() -> None:
    with pytest.raises(ChipError) as caught:
        load_chip("stcp90")
    assert str(caught.value) == (
        "chip 'stcp90': needs the name of a built-in chip or the path of a chip file; "
        "has built-in chips a100, gemmini, gemmini_32, h100, h200, stcp920; did you mean 'stcp920'? "
        "Otherwise give a path such as ./stcp90.yaml"
    )


@pytest.mark.parametrize("name", ["", "../stcp920.yaml", "..", "stcp920.yaml", "/"])
def test_a_name_never_reaches_into_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChipError):
        load_chip(name)


def test_a_missing_file_a_folder_and_an_unreadable_name_are_said(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "no.yaml", "has no such file; check the path"),
        (
            tmp_path / "stcp920.yaml",
            "built-in chips are given by name alone: a100, gemmini, gemmini_32, h100, h200, stcp920",
        ),
        (tmp_path, "has a folder"),
        (Path("a\0.yaml"), "null byte"),
    ):
        with pytest.raises(ChipError, match=words) as caught:
            load_chip(path)
        assert str(caught.value).startswith(f"{path}: needs a ")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_said(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.touch(0o000)
    with pytest.raises(ChipError, match="permission denied"):
        load_chip(file)


def test_a_file_that_is_not_text_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"name: x\nisa: \xff\n")
    with pytest.raises(ChipError) as caught:
        load_chip(file)
    assert str(caught.value) == f"{file}:2: byte 0xff at offset 13 is not UTF-8 text; save the file as UTF-8"


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ChipError, match="at most 1 MiB"):
        load_chip(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "c.yaml: the file is empty"),
        ("a: [", "c.yaml:1: not valid YAML: while parsing a flow node expected the node content"),
        ("a: 1\n\tb: 2", "c.yaml:2: not valid YAML: "),
        ("a: 1\n---\nb: 2", "c.yaml:2: not valid YAML: expected a single document"),
        ("a: *b", "c.yaml:1: not valid YAML: found undefined alias 'b'"),
        ("a: &x 1\nb: 2", "c.yaml:1: a: anchors and aliases (&name, *name) are not used in chip files"),
        ("a: 1\n? [b]\n: c", "c.yaml:2: a field name must be plain text"),
        ("a: 2020-01-01", "c.yaml:1: a: '2020-01-01' is not a number, a text or true/false"),
        ("a: !!python/name:os.system x", "c.yaml:1: a: 'x' is not a number, a text or true/false"),
        ("a: " + "9" * 5000, "c.yaml:1: a: '9999999999999999999999999999999999999...' cannot be held by a chip file"),
        ('a: "\\ud800"', "c.yaml:1: a: "),
        ("a: \0", "c.yaml: not valid YAML: unacceptable character"),
        ("a: 1\nb: 2\na: 3", "c.yaml:3: a: given twice, first in line 1"),
        ("- 1", "c.yaml:1: a list should be an object; write fields as 'name: value'"),
        ("[" * 100_000, "c.yaml: nested deeper than 12 levels"),
        ("{a: " * 20 + "}" * 20, "c.yaml:1: a.a.a.a.a.a.a.a.a.a.a.a.a: nested deeper than 12 levels"),
    ],
)
def test_wrong_yaml_is_one_clear_line(text: str, expected: str) -> None:
    said = message(text)
    assert said.startswith(expected), said
    assert "\n" not in said


def test_an_alias_bomb_costs_nothing_and_is_refused() -> None:
    lines = ["a0: &a0 [1, 1]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 60))]
    assert "anchors and aliases" in message("\n".join(lines))


FIELD_EDITS = (
    (
        "name: stcp920",
        "name: 'two words'",
        "name: 'two words' is not a name; write a letter, then letters, digits, '_'",
    ),
    ("description: S", 'description: "\\e" #', "is not one line of text; write it without line breaks"),
    ("clock_hz: 1_000_000_000", "clock_hz: fast", "clock_hz: 'fast' should be a valid integer; write a whole number"),
    (
        "size_bytes: 8_388_608",
        "size_bytes: 8 MiB",
        "'8 MiB' should be a valid integer; write the number of bytes, 8_388_608",
    ),
    ("clock_hz: 1_000_000_000", "clock_hz: 1.5", "clock_hz: 1.5 should be a valid integer"),
    ("clock_hz: 1_000_000_000", "clock_hz:", "clock_hz: an empty value should be a valid integer"),
    ("clusters: 4", "clusters: -4", "clusters: -4 should be greater than or equal to 1"),
    ("clusters: 4", "clusters: true", "clusters: true should be a valid integer"),
    ("clusters: 4", "clusters: 9999999", "clusters: 9999999 should be less than or equal to 1048576"),
    ("clusters: 4", "cluster: 4", "cluster: unknown field; did you mean 'clusters'?"),
    ("clusters: 4", "frobs: 4", "frobs: unknown field; known fields: schema_version, name"),
    ("size_bytes: 8_388_608", "size_bytes: -1", "memories[1].size_bytes: -1 should be greater than or equal to 1"),
    ("size_bytes: 262_144", "size_byte: 1", "memories[2].buffers[1].size_byte: unknown field; did you mean"),
    (
        "scope: cluster",
        "scope: cores",
        "memories[0].scope: 'cores' should be 'chip', 'cluster' or 'core'; did you mean 'core'?",
    ),
    ("latency_cycles: 66", "latency_cycles: .nan", "links[0].latency_cycles: nan should be a finite number"),
    ("bandwidth_bytes_per_cycle: 512", "bandwidth_bytes_per_cycle: 0", "0 should be greater than or equal to 0.001"),
    ("kind: vector", "kind: vecotr", "engines[1]: kind 'vecotr' is unknown; did you mean 'vector'?"),
    ("array_pixels: 64", "array_pixel: 64", "engines[2].array_pixel: unknown field; did you mean 'array_pixels'?"),
    ("groups: 16", "lanes: 16", "engines[5].lanes: unknown field; known fields: kind, name, groups"),
    ("gather: true", "gather: 1", "dma.gather: 1 should be a valid boolean; write true or false"),
    ("dtype: int8", "dtype: int9", "engines[1].rates[1].dtype: 'int9' should be 'float16',"),
    (
        "read_by: [scalar, dma]",
        "read_by: scalar",
        "memories[0].read_by: 'scalar' should be a valid array; write one item per line",
    ),
    (
        "schema_version: 1",
        "schema_version: 2",
        "schema_version: 2 should be 1",
    ),
)


@pytest.mark.parametrize(("old", "new", "expected"), FIELD_EDITS, ids=[new for _, new, _ in FIELD_EDITS])
def test_a_wrong_field_is_named_with_its_line_and_what_is_allowed(old: str, new: str, expected: str) -> None:
    text = edited((old, new))
    said = message(text)
    found = next((line for line in said.splitlines() if expected in line), None)
    assert found is not None, said
    number = line_of(text, new) if expected.split(":")[0] != "engines[1]" else line_of(text, "  - kind: vecotr")
    assert f"c.yaml:{number}: " in found


def test_a_missing_field_is_named_where_it_belongs() -> None:
    text = edited(("  - name: LLB ", "  - #"))
    said = message(text)
    assert said == f"c.yaml:{line_of(text, '  - #') + 1}: memories[1].name: missing; add this field"


def test_all_problems_of_a_file_come_at_once_in_the_order_of_lines() -> None:
    text = edited(("gather: true", "gather: 7"), ("clusters: 4", "clusters: none"), ("lanes: 64", "lanes: 0"))
    lines = message(text).splitlines()
    assert lines[0] == "c.yaml: 3 problems"
    assert [line.split(": ")[1] for line in lines[1:]] == ["clusters", "engines[1].lanes", "dma.gather"]


def test_contradictions_between_fields_come_at_once() -> None:
    text = edited(
        ("read_by: [scalar, dma]", "read_by: [scalar, dmaa]"),
        ("size_bytes: 1_048_576", "size_bytes: 1_048_578"),
        ("alignment_bytes: 2", "alignment_bytes: 3"),
        ("destination: LLB", "destination: LB"),
        ("name: l1_to_im", "name: im_to_l1"),
        ("{dtype: int32", "{dtype: int8"),
        ("\n  engine: dma\n", "\n  engine: vector\n"),
        ("    destination: IM\n    engine: vector", "    destination: IM\n    engine: transfer"),
    )
    lines = [line.strip().split(": ", 1)[1] for line in message(text).splitlines()[1:]]
    assert lines == [
        "memories[0].read_by[1]: there is no engine named 'dmaa'; "
        "known: scalar, vector, matrix, transfer, dma, sync; did you mean 'dma'?",
        "memories[1].alignment_bytes: 8388608 bytes are not a multiple of it; give a divisor of the size",
        "memories[2].buffers: the buffers take 1310722 bytes together; memory L1 has 1310720 (1.25 MiB)",
        "engines[1].rates: type int8 is given twice; give one rate per type",
        "links[0].source: dma may not read DDR; readers: scalar, dmaa",
        "links[0].destination: there is no memory named 'LB'; known: DDR, LLB, L1, IM; did you mean 'LLB'?",
        "links[6].name: name 'im_to_l1' is used twice; give each its own name",
        "links[6].destination: transfer may not write IM; writers: scalar, vector, matrix",
        "dma.engine: there is no DMA engine named 'vector'; known: dma",
    ]


def test_a_second_link_for_one_way_and_engine_and_empty_enforcement_are_refused() -> None:
    said = message(edited(("source: L1\n    destination: IM", "source: IM\n    destination: L1")))
    assert "a second link IM -> L1 by vector; give one link per way and engine" in said
    said = message(edited(("alignment_bytes: 2", "alignment_bytes: 2\n    buffers_enforced: true")))
    assert "memories[1].buffers_enforced: true, but the memory has no buffers" in said


def test_a_chip_with_another_shape_loads_without_a_change_of_code() -> None:
    text = edited(
        ("clusters: 4", "clusters: 1"), ("array_pixels: 64", "array_pixels: 16"), ("name: stcp920", "name: toy")
    )
    chip = parse_chip(text, "toy.yaml")
    assert (chip.name, chip.clusters, chip.matrix.array_pixels) == ("toy", 1, 16)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_to_the_file_ends_in_anything_but_a_chip_or_a_chip_error(data: st.DataObject) -> None:
    lines = STCP920.splitlines()[36:]
    index = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["drop", "repeat", "indent", "cut", "replace"]))
    line = lines[index]
    damaged = {
        "drop": [],
        "repeat": [line, line],
        "indent": ["  " + line],
        "cut": [line[: data.draw(st.integers(0, len(line)))]],
        "replace": [data.draw(st.text(max_size=30))],
    }[how]
    said = outcome("\n".join([*lines[:index], *damaged, *lines[index + 1 :]]))
    assert said.startswith(("chip ", "c.yaml"))
