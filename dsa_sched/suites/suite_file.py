"""suite.yaml: what must compile, verify and stay fast. It has the parts of a sweep file, and checks.

suite.yaml --read_suite--> SuiteFile
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dsa_sched.sweeping.job_file import fields_listed, read_job
from dsa_sched.sweeping.sweep_file import SweepFile, contradictions, parts_listed
from hw_models.yaml_nodes import Value

Check = Literal["compile", "verify", "time"]
CHECKS: tuple[Check, ...] = ("compile", "verify", "time")
"""All checks, in the order in which they are made. Without `compile`, there is nothing to verify or time: it is always
made."""

EXAMPLE = """\
# A suite: networks x chips x levels, each compiled, verified and timed.
schema_version: 1
name: ours

networks:                       # names of the zoo (dsa-sched models), ONNX files, or files with shapes:
  - wide_deep-mini              #   {model: mine.onnx, shape: {x: [1, 3, 224, 224]}, bind: {sr: 16000}}

chips: stcp920                  # a built-in chip or a chip file; fields can be set and varied as in a sweep

options:                        # as on the command line; a list is several values
  level: [O0, O3]

checks: [compile, verify, time] # verify runs the machine code and compares with onnxruntime
inputs: 2                       # of verify: how many inputs are drawn, and from which seed
seed: 0
"""
"""A file that shows every part; `--example` prints it."""


class SuiteFile(SweepFile):
    """A suite: points as in a sweep, the checks of each, and what `verify` draws."""

    checks: Annotated[tuple[Check, ...], Field(min_length=1, max_length=len(CHECKS))] = CHECKS
    inputs: Annotated[int, Field(ge=2, le=64)] = 2
    seed: Annotated[int, Field(ge=0, le=1 << 31)] = 0


def read_suite(path: Path) -> SuiteFile:
    """Read and check a suite file. Raises JobFileError with every problem of the file."""
    return read_job(path, "suite file", SuiteFile, _listed, contradictions)


def _listed(fields: dict[str, Value]) -> None:
    parts_listed(fields)
    fields_listed(fields, ("checks",))
