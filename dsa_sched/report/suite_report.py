"""A suite for a reader, as JSON and as JUnit XML.

Judgement x n --print_suite--> a row per case, what is worse than before      --write_suite--> suite.json, junit.xml

Equal suites give equal files: no date and no duration is in them. The keys of the JSON form are in
docs/reference/json.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.listing import output_console, print_listing, shortened
from dsa_sched.report.timed_run import time_text
from dsa_sched.suites.case_result import PASSED, SKIPPED
from dsa_sched.suites.suite import FORMAT, RESULTS, SLOWER, Judgement
from dsa_sched.sweeping.fault import FAULT

JUNIT = "junit.xml"

UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow."""

HEADINGS = ("case", "compile", "verify", "time", "planner", "time per item", "before", "change", "note")


def print_suite(name: str, cases: tuple[Judgement, ...], console: Console | None = None) -> None:
    """Print a row per case, then what makes the suite fail."""
    console = console or output_console()
    print_listing(HEADINGS, ((*row(case)[:-1], shortened(note(case))) for case in cases), (5, 6, 7), console)
    console.print(f"\n{summary(name, cases)}", markup=False, highlight=False, soft_wrap=True)


def row(case: Judgement) -> tuple[str, ...]:
    """The cells of a case: the checks, the times, and a note with the first reason."""
    now, before, times = case.result.seconds_per_item, case.seconds_before, case.times
    estimated = " (estimate)" if case.result.estimated else ""
    return (
        case.title,
        *(_said(case, check) for check in ("compile", "verify", "time")),
        case.result.planner,
        time_text(now) + estimated if now is not None else "",
        time_text(before) if before is not None else "",
        f"{times - 1:+.1%}" if times is not None else "",
        note(case),
    )


def note(case: Judgement) -> str:
    """The first reason of a check that does not pass; else what is to say about the artifact."""
    reasons = (check.reason for name, check in case.result.checks.items() if check.status != SKIPPED and check.reason)
    return next(reasons, "" if case.is_new else "same artifact" if case.same_artifact else "another artifact")


def _said(case: Judgement, check: str) -> str:
    status = case.statuses.get(check, "")
    return f"{status} (known)" if check in case.known else status


def summary(name: str, cases: tuple[Judgement, ...]) -> str:
    """How many cases there are, and what makes the suite fail."""
    bad = Counter(f"{check} {said}" for case in cases for check, said in case.regressions.items())
    worse = ", ".join(f"{count} x {what}" for what, count in sorted(bad.items()))
    known = sum(bool(case.known) for case in cases)
    words = [
        f"{len(cases)} cases",
        worse or "nothing to complain of",
        f"{known} known {'failure' if known == 1 else 'failures'}" if known else "",
    ]
    return f"{name}: {'; '.join(filter(None, words))}"


def suite_json(name: str, cases: tuple[Judgement, ...]) -> str:
    """The suite as JSON text, which a later run is set against."""
    whole = {"format": FORMAT, "name": name, "summary": summary(name, cases), "cases": [_case(case) for case in cases]}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _case(case: Judgement) -> dict[str, object]:
    checks = {
        name: {"status": case.statuses[name], "reason": check.reason, "known": name in case.known}
        for name, check in case.result.checks.items()
    }
    found = {
        "title": case.title,
        "checks": checks,
        "artifact": case.result.artifact,
        "planner": case.result.planner,
        "estimated": case.result.estimated,
        "seconds_per_item": case.result.seconds_per_item,
        "cycles": case.result.cycles,
        "instructions": case.result.instructions,
        "seconds_before": case.seconds_before,
        "times": case.times,
    }
    return {key: value for key, value in found.items() if value is not None}


def suite_junit(name: str, cases: tuple[Judgement, ...]) -> bytes:
    """The suite as JUnit XML: a test case per case and check. Known failures are skipped ones, with their reason."""
    checks = [(case, check) for case in cases for check in case.result.checks]
    bad = [case.statuses[check] for case, check in checks if check in case.regressions]
    counts = {
        "tests": len(checks),
        "failures": sum(said != FAULT for said in bad),
        "errors": sum(said == FAULT for said in bad),
        "skipped": sum(_is_skipped(case, check) for case, check in checks),
    }
    texts = {key: str(count) for key, count in counts.items()}
    root = ElementTree.Element("testsuites", {"name": _legal(name), **texts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _legal(name), **texts})
    for case, check in checks:
        names = {"classname": _legal(f"{name}.{check}"), "name": _legal(case.title)}
        _outcome(ElementTree.SubElement(suite, "testcase", names), case, check)
    ElementTree.indent(root, " ")
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _is_skipped(case: Judgement, check: str) -> bool:
    return case.statuses[check] == SKIPPED or check in case.known


def _outcome(element: ElementTree.Element, case: Judgement, check: str) -> None:
    said, reason = case.statuses[check], case.result.checks[check].reason
    if said == SLOWER:
        reason = f"{row(case)[7]} time per item: {row(case)[6]} -> {row(case)[5]}"
    if _is_skipped(case, check):
        ElementTree.SubElement(element, "skipped", {"message": _legal(f"known: {said}: {reason}" if check in case.known
                                                                      else reason)})  # fmt: skip
    elif said != PASSED:
        kind = "error" if said == FAULT else "failure"
        ElementTree.SubElement(element, kind, {"type": said, "message": _legal(reason)})


def _legal(text: str) -> str:
    return UNPRINTABLE.sub("?", text)


def gone(cases: Collection[Judgement], earlier: Collection[str]) -> Iterator[str]:
    """Titles of cases of the earlier run that this one does not have."""
    titles = {case.title for case in cases}
    return (title for title in earlier if title not in titles)


def write_suite(name: str, cases: tuple[Judgement, ...], folder: Path) -> tuple[Path, ...]:
    """Write suite.json and junit.xml into a folder, each whole or not at all. Raises UserError."""
    texts = {RESULTS: suite_json(name, cases).encode(), JUNIT: suite_junit(name, cases)}
    for file, data in texts.items():
        write_whole(folder / file, lambda stream, data=data: stream.write(data))  # type: ignore[misc]
    return tuple(folder / file for file in texts)
