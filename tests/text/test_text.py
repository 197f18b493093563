"""Each file beside this one, in the folder of its kind, is a test: what goes in as text, what must come out as text.

python -m pytest tests/text                                  # all of them
python -m pytest tests/text --update-goldens -k residual     # write what comes out into the files that run
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text.calls import CALLS, outcome
from tests.text.case_file import compare, read_case
from tests.text.short_graph import read_graph

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_text(path: Path, update_goldens: bool) -> None:
    case = read_case(path)
    compare(case, outcome(case), update_goldens)


def test_every_folder_is_a_kind_and_every_kind_has_cases() -> None:
    assert {path.parent.name for path in FILES} == set(CALLS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("level: O0\n", "begins with a comment"),
        ("# a\nlevel O0\n", "'level O0' is not 'option: value'"),
        ("# a\nlevel: O0\nlevel: O1\n", "'level: O1' is not 'option: value', each once"),
        ("# a\n== graph\n== graph\n", "section graph is there twice"),
        ("# a\nlevels: O0\n== graph\n", "no use for levels"),
        (
            "# a\nchip: small lanes=4\nlevel: O0\n== graph\nx = input 1 4\nrelu0 = relu x\noutput relu0\n",
            "small has co",
        ),
    ],
)
def test_a_case_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    path = tmp_path / "plan" / "odd.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        outcome(read_case(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = input 1 4\ny = relu x\n", "y: makes relu0.out"),
        ("x = input 1 4\nrelu0 = relu x slope=1\n", "options slope"),
        ("x = input 1 4\ncosh0 = cosh x\n", "cosh is not one of input, conv"),
    ],
)
def test_a_line_that_is_no_operator_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_graph(text)


def test_the_update_writes_the_expected_section_alone(tmp_path: Path) -> None:
    path = tmp_path / "case.txt"
    path.write_text("# Shows a thing.\nlevel: O0\n\n== graph\nx = input 1\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="no expected section; make it by: python -m pytest tests/text --update"):
        compare(read_case(path), "one\n", update=False)
    compare(read_case(path), "one\n", update=True)
    compare(read_case(path), "one\n", update=False)
    with pytest.raises(AssertionError, match=r"differs; accept by: .* -k case"):
        compare(read_case(path), "two\n", update=False)
    compare(read_case(path), "two\n", update=True)
    head = "# Shows a thing.\nlevel: O0\n\n== graph\nx = input 1\n\n"
    assert path.read_text(encoding="utf-8") == f"{head}== expected\ntwo\n"
