"""The JSON form of a verification report; its keys are documented in docs/verify.md and do not depend on the day.

Numbers are plain; an error that is not finite is the string "inf", because JSON has no word for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.verification.verdict import VerifyReport

__all__ = ["FORMAT", "report_json", "write_report"]

FORMAT = "dsa-sched-verify/2"

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def report_json(report: VerifyReport) -> str:
    """The report as JSON text, one key a line."""
    whole = {
        "format": FORMAT,
        "passed": report.passed,
        "end_to_end": report.end_to_end,
        **asdict(report),
        "seconds": dict(report.seconds),
    }
    for logits, result in zip(whole["logits"], report.logits, strict=True):
        logits |= {"share": result.share, "bound": result.bound, "statement": result.statement}
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
