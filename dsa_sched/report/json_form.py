"""The JSON form of a verification report. Its keys are in docs/reference/json.md; none of them depends on the date.

Numbers are plain; an error that is not finite is the string "inf", because JSON has no number for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path

from dsa_sched.host.verify import HostedReport
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.verification.kept_report import FORMAT
from dsa_sched.verification.tolerances import LogitsResult
from dsa_sched.verification.verdict import VerifyReport

HOSTED_FORMAT = "dsa-sched-verify-host/1"
"""Name of the JSON format for a network in stages of chip and host."""

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def report_json(report: VerifyReport) -> str:
    """The report as JSON text, one key a line."""
    return json_text(report_dict(report))


def report_dict(report: VerifyReport) -> dict[str, object]:
    """The report by the keys of its JSON form."""
    whole = {
        "format": FORMAT,
        "verdict": report.verdict,
        "reason": report.reason,
        "passed": report.passed,
        "end_to_end": report.end_to_end,
        **asdict(report),
        "doubts": report.all_doubts,
        "seconds": dict(report.seconds),
    }
    return whole | {"logits": [logits_dict(result) for result in report.logits]}


def logits_dict(result: LogitsResult) -> dict[str, object]:
    """The judgement of one tensor by the keys of its JSON form."""
    return asdict(result) | {"share": result.share, "bound": result.bound, "statement": result.statement}


def unequal_dict(name: str, number: int, wrong: int, count: int) -> dict[str, object]:
    """An output that is not in floating point, by its elements that differ from the reference's for an input."""
    return {"tensor": name, "input": number, "different": wrong, "elements": count}


def json_text(whole: dict[str, object]) -> str:
    """JSON text, one key a line."""
    return json.dumps(_plain(whole), indent=1, allow_nan=False) + "\n"


def _plain(value: object) -> Json:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if not isfinite(value):
            return "inf"
        case str() | bool() | int() | float() | None:
            return value
    raise TypeError(f"{value!r} has no JSON form")


def write_report(report: VerifyReport, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = report_json(report).encode()
    write_whole(path, lambda stream: stream.write(text))


def write_hosted_report(report: HostedReport, path: Path) -> None:
    """Write the report of a network in stages: the reports of the stages, then the findings about the whole."""
    whole = {
        "format": HOSTED_FORMAT,
        "verdict": report.verdict,
        "passed": report.passed,
        "line": report.line,
        "stages": [report_dict(stage) for stage in report.stages],
        "ends": [logits_dict(end) for end in report.ends],
        "unequal": [unequal_dict(*found) for found in report.unequal],
    }
    text = json_text(whole).encode()
    write_whole(path, lambda stream: stream.write(text))
