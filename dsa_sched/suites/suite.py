"""A suite carried out, and set against the run before.

suite.yaml, DIR --run_suite--> SuiteResult        SuiteResult, earlier cases, tolerance --judged--> Judgement per case

Without an earlier run, every check must pass. With one, none may become worse: what failed there and fails still is
known, and a time counts as slower when it is longer than before by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsa_sched.analysis.difference import is_slower
from dsa_sched.suites.case_result import FAILED, INCONCLUSIVE, CaseChecks, CaseResult, case_of, ended_case
from dsa_sched.suites.suite_file import SuiteFile, read_suite
from dsa_sched.sweeping.carried_out import HERE, PointWork, Say, WorkPlace, carried_out, require_place
from dsa_sched.sweeping.fault import FAULT
from dsa_sched.sweeping.points import Point, points
from hw_models.cache import key_of
from hw_models.errors import JobFileError

FORMAT = "dsa-sched-suite/1"
RESULTS = "suite.json"
"""Name of the file of results in the folder of a suite, which a later run is set against."""

SLOWER = "slower"
"""What becomes of the check `time` where it takes longer than before."""

MOST_RESULTS_BYTES = 64 << 20

SEVERITY = (INCONCLUSIVE, FAILED, FAULT)
"""What a check may say that does not pass, the worst last."""

EXITS = {FAULT: 1, "compile": 1, "verify": 3, INCONCLUSIVE: 4, SLOWER: 5}
"""Exit code by what is worst, in this order: a fault or what does not compile, wrong results, results about which no
statement is possible, slower than the tolerance."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """A suite with all its results, in the order of its file."""

    suite: SuiteFile
    points: tuple[Point, ...]
    results: tuple[CaseResult, ...]

    @property
    def cases(self) -> Mapping[str, CaseResult]:
        """The results by the titles of their points."""
        return {point.title: result for point, result in zip(self.points, self.results, strict=True)}


def run_suite(file: Path, folder: Path, place: WorkPlace = HERE, say: Say = lambda _step: None) -> SuiteResult:
    """Make all checks of a suite file that have no result in the folder yet. Raises JobFileError for a file that is
    wrong, and UserError for a folder that cannot be used."""
    suite = read_suite(file)
    require_place(folder)
    listed = points(suite, file.parent)
    checks = CaseChecks(suite.checks, suite.inputs, suite.seed)
    work = PointWork(
        "suite",
        CaseResult,
        partial(case_of, checks=checks, use_cache=place.use_cache),
        lambda point: key_of(point.key, repr(checks)),
        ended_case,
        lambda result: result.status,
        (FAILED, INCONCLUSIVE, FAULT),
    )
    return SuiteResult(suite, listed, carried_out(listed, work, folder, place, say))


# Against the run before.


class _Entry(BaseModel):
    """Rules of every part of a file of results that is read."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class EarlierCheck(_Entry):
    """A check of an earlier run."""

    status: str


class EarlierCase(_Entry):
    """A case of an earlier run; `seconds_per_item` is absent where it was not timed."""

    title: str
    checks: dict[str, EarlierCheck]
    seconds_per_item: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    artifact: str = ""


class _EarlierRun(_Entry):
    format: Literal["dsa-sched-suite/1"]  # `FORMAT`
    cases: Annotated[tuple[EarlierCase, ...], Field(max_length=100_000)]


def read_earlier(place: Path) -> Mapping[str, EarlierCase]:
    """The cases of an earlier run by their titles, of its folder or its file of results. Raises JobFileError for a file
    that is none."""
    path = place / RESULTS if place.is_dir() else place
    needs = f"a file {RESULTS} that `dsa-sched suite` wrote, or its folder"
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_RESULTS_BYTES else b""
        run = _EarlierRun.model_validate_json(data)
    except OSError as error:
        raise JobFileError(str(path), needs=needs, has=(error.strerror or str(error)).lower()) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise JobFileError(str(path), needs=needs, has=f"{where}: {first['msg']}".removeprefix(": ")) from None
    return {case.title: case for case in run.cases}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A case against the run before: what each check says now, and which of those that do not pass are `known`, since
    they said the same or worse then. A case that was not in that run, or of a suite without one, `is_new`."""

    title: str
    result: CaseResult
    statuses: Mapping[str, str]
    known: frozenset[str] = field(default_factory=frozenset)
    seconds_before: float | None = None
    is_new: bool = True
    same_artifact: bool = False

    @property
    def times(self) -> float | None:
        """Time of an item over that before; None where one of them is missing."""
        now, before = self.result.seconds_per_item, self.seconds_before
        return now / before if now is not None and before else None

    @property
    def regressions(self) -> Mapping[str, str]:
        """What each check says that makes the suite fail."""
        bad = (FAULT, FAILED, INCONCLUSIVE, SLOWER)
        return {name: said for name, said in self.statuses.items() if said in bad and name not in self.known}


def judged(found: SuiteResult, earlier: Mapping[str, EarlierCase] | None, tolerance: float) -> tuple[Judgement, ...]:
    """The cases of a suite against those of an earlier run, if there is one; `tolerance` is a share of the time."""
    return tuple(_judgement(title, case, (earlier or {}).get(title), tolerance) for title, case in found.cases.items())


def _judgement(title: str, case: CaseResult, before: EarlierCase | None, tolerance: float) -> Judgement:
    said = {name: check.status for name, check in case.checks.items()}
    if before is None:
        return Judgement(title, case, said)
    now, then = case.seconds_per_item, before.seconds_per_item
    if now is not None and then is not None and is_slower(now, then, tolerance):
        said["time"] = SLOWER
    known = frozenset(name for name, status in said.items() if _no_worse(status, before.checks.get(name)))
    same = bool(case.artifact) and case.artifact == before.artifact
    return Judgement(title, case, said, known, then, is_new=False, same_artifact=same)


def _no_worse(status: str, before: EarlierCheck | None) -> bool:
    """Whether a check did not pass before, either, and is no worse now. A time that is longer again is worse."""
    if before is None or status not in SEVERITY or before.status not in SEVERITY:
        return False
    return SEVERITY.index(status) <= SEVERITY.index(before.status)


def exit_code(cases: tuple[Judgement, ...]) -> int:
    """The exit code of a suite: 0 where nothing is worse than it may be, else that of the worst."""
    found = {_kind(name, said) for case in cases for name, said in case.regressions.items()}
    return next((code for kind, code in EXITS.items() if kind in found), 0)


def _kind(check: str, said: str) -> str:
    return check if said == FAILED else said
