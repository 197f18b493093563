"""The table of the nightly tests is read as it is written; every test is in one part of them."""

from __future__ import annotations

import pytest

from tests import nightly


def test_a_table_is_read_as_it_is_written() -> None:
    rows = [
        nightly.Row(nightly.ORDINARY, 10_922, 0, 3, 8.5, "0123abcd", "2026-11-25"),
        nightly.Row("tests/golden/test_goldens.py", 35, 1, 0, 12.0, "0123abcd+", "2026-11-26"),
    ]
    assert list(nightly.read_rows(nightly.written(rows)).values()) == rows


def test_files_with_slow_tests_are_parts() -> None:
    parts = nightly.parts()
    assert parts[0] == nightly.ORDINARY
    assert len(parts) == len(set(parts))
    assert {"tests/golden/test_goldens.py", "tests/exports/test_found.py"} <= set(parts)
    assert all((nightly.ROOT / part).is_file() for part in parts[1:])


def test_the_committed_table_has_parts_that_there_are() -> None:
    if nightly.TABLE.exists():
        assert set(nightly.read_rows(nightly.TABLE.read_text(encoding="utf-8"))) <= set(nightly.parts())


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(["tests/no_such_file.py"]) == 2
    assert "tests/golden/test_goldens.py" in capsys.readouterr().err
