"""All tests in parts, and a table of what ran when and at which commit: `make nightly`.

    files of tests --a part per file with slow tests, one for all ordinary tests--> pytest --> a row of nightly.md

A part that has passed at this commit is not run again, so what was interrupted goes on where it stopped; a part that
is named is run in any case: `make nightly PARTS="tests/golden tests/fuzz/test_levels_agree.py"`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "benchmarks" / "results" / "nightly.md"
ORDINARY = "ordinary tests"
COLUMNS = ("part", "tests", "failed", "skipped", "minutes", "commit", "date")
HEAD = """# Nightly tests

What `make nightly` ran last, part by part: `tests/nightly.py` writes this table. A commit with `+` had changes that
were not committed.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """A part and its last run."""

    part: str
    tests: int
    failed: int
    skipped: int
    minutes: float
    commit: str
    date: str

    @property
    def line(self) -> str:
        numbers = f"{self.tests:,} | {self.failed:,} | {self.skipped:,} | {self.minutes:.1f}"
        return f"| {self.part} | {numbers} | {self.commit} | {self.date} |"


def read_rows(text: str) -> dict[str, Row]:
    """The rows of a table that `written` made. Raises ValueError for lines that are none."""
    rows = {}
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith(("| part ", "| --- ")):
            continue
        part, tests, failed, skipped, minutes, commit, date = line.strip("| ").split(" | ")
        run, bad, left_out = (int(number.replace(",", "")) for number in (tests, failed, skipped))
        rows[part] = Row(part, run, bad, left_out, float(minutes), commit, date)
    return rows


def written(rows: Iterable[Row]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}", *(row.line for row in rows)]
    return HEAD + "\n".join(lines) + "\n"


def parts() -> list[str]:
    """All ordinary tests together, and every file that has others."""
    marks = ("mark.slow", "mark.spread", "mark.nightly")
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if any(m in path.read_text() for m in marks))
    exports = ROOT / "tests" / "exports" / "test_found.py"  # takes its marks from another file
    return [ORDINARY, *(str(path.relative_to(ROOT)) for path in sorted({*files, exports}))]


def commit() -> str:
    """The commit that is checked out."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{TABLE.relative_to(ROOT)}")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def run(part: str, at: str, report: Path) -> Row:
    """Runs a part with two workers; what it prints goes to the terminal."""
    chosen = ("tests", "-m", "not slow and not nightly") if part == ORDINARY else (part, "-m", "slow or nightly")
    command = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", f"--junit-xml={report}", *chosen)
    began = time.monotonic()
    report.unlink(missing_ok=True)
    ended = subprocess.run(command, cwd=ROOT, check=False).returncode
    row = Row(part, 0, 1, 0, 0.0, at, datetime.now(UTC).date().isoformat())
    if report.exists():
        suite = ElementTree.parse(report).getroot().find("testsuite")
        assert suite is not None, "pytest writes one suite"
        tests, failures, errors, skipped = (int(suite.get(n, 0)) for n in ("tests", "failures", "errors", "skipped"))
        row = replace(row, tests=tests, failed=max(failures + errors, int(ended not in (0, 5))), skipped=skipped)
    return replace(row, minutes=round((time.monotonic() - began) / 60, 1))


def main(arguments: Sequence[str]) -> int:
    """The number of parts that failed, at most 100."""
    at, every = commit(), parts()
    rows = read_rows(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    wanted = [part for part in every if any(part.startswith(name.removeprefix("./")) for name in arguments)]
    if arguments and not wanted:
        print(f"no part of: {', '.join(every)}", file=sys.stderr)
        return 2
    passed = {part for part, row in rows.items() if row.commit == at and not row.failed}
    todo = wanted or [part for part in every if part not in passed]
    report = ROOT / "build" / "nightly.xml"
    report.parent.mkdir(exist_ok=True)
    for number, part in enumerate(todo):
        print(f"{number + 1} of {len(todo)}: {part}", flush=True)
        rows[part] = run(part, at, report)
        TABLE.write_text(written(rows[name] for name in every if name in rows), encoding="utf-8")
    failed = [part for part in todo if rows[part].failed]
    print(f"{len(todo)} parts, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return min(len(failed), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
