"""What is found out about one case of a suite: whether it compiles, whether it is right, how long it takes.

Point --case_of--> CaseResult        (in a process of this machine, or of another one)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dsa_sched.suites.suite_file import Check
from dsa_sched.sweeping.fault import FAULT, error_text, fault_text
from dsa_sched.sweeping.point_result import compiled_point, figures_of
from dsa_sched.sweeping.points import Point
from hw_models.errors import UserError

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact

PASSED, FAILED, INCONCLUSIVE, SKIPPED = "passed", "failed", "inconclusive", "skipped"
"""What a check can say, besides `FAULT`; `SKIPPED` where there is nothing to check, because it was not compiled."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check, and its reason where it did not pass."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The checks of a case by name, and what was found: the hash of the artifact, its time per item (`estimated` where
    no machine code is timed), cycles of one pass and instructions."""

    checks: Mapping[str, CheckResult]
    artifact: str = ""
    planner: str = ""
    estimated: bool = False
    seconds_per_item: float | None = None
    cycles: float | None = None
    instructions: int | None = None

    @property
    def status(self) -> str:
        """The worst that a check says."""
        found = {check.status for check in self.checks.values()}
        return next(each for each in (FAULT, FAILED, INCONCLUSIVE, SKIPPED, PASSED) if each in found)


@dataclass(frozen=True, slots=True)
class CaseChecks:
    """The checks that are made of a case, and the inputs that `verify` draws."""

    names: tuple[Check, ...]
    inputs: int
    seed: int


def ended_case(reason: str) -> CaseResult:
    """The result of a case whose process ended."""
    return CaseResult({"compile": CheckResult(FAULT, reason)})


def case_of(point: Point, checks: CaseChecks, use_cache: bool) -> CaseResult:
    """Compile a point and check it, in this process. Raises KeyboardInterrupt where Ctrl-C ended a search."""
    others = tuple(str(name) for name in checks.names if name != "compile")
    skipped = {name: CheckResult(SKIPPED, "not compiled") for name in others}
    try:
        made = compiled_point(point, use_cache)
    except UserError as error:
        return CaseResult({"compile": CheckResult(FAILED, point.network.named(error_text(error))), **skipped})
    except Exception as error:  # a fault of the compiler, or too little memory: other cases go on
        return CaseResult({"compile": CheckResult(FAULT, point.network.named(fault_text(error))), **skipped})
    found = {"compile": CheckResult(PASSED)}
    if "verify" in others:
        verified = _verified(made.artifact, checks, use_cache)
        found["verify"] = replace(verified, reason=point.network.named(verified.reason))
    figures = figures_of(made.explanation, made.artifact.chip, point.options.clusters, made.instructions)
    timed = "time" in others
    if timed:
        found["time"] = CheckResult(PASSED)
    return CaseResult(
        found,
        artifact=made.artifact.hash,
        planner=figures.planner,
        estimated=figures.estimated,
        seconds_per_item=figures.seconds_per_item if timed else None,
        cycles=figures.cycles if timed else None,
        instructions=figures.instructions,
    )


def _verified(artifact: Artifact, checks: CaseChecks, use_cache: bool) -> CheckResult:
    from dsa_sched.builds.build_cache import user_cache
    from dsa_sched.builds.kept_figures import Figures
    from dsa_sched.verification.verify import VerifyOptions, verify_artifact

    timed = Figures(artifact, user_cache() if use_cache else None).work()
    try:
        report = verify_artifact(artifact, None, VerifyOptions(checks.inputs, checks.seed, workers=1), timed=timed)
    except UserError as error:
        return CheckResult(FAILED, error_text(error))
    except Exception as error:  # as above
        return CheckResult(FAULT, fault_text(error))
    return CheckResult(report.verdict, "" if report.passed else report.reason)
