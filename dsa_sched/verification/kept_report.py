"""The accuracy of an artifact's layers, as `verify --json` left it in a file.

    report.json --read_accuracy--> Accuracy --require_about--> of this artifact

The file may come from anywhere: its size is bounded, and only the keys that are used are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsa_sched.artifact.format import Artifact
from hw_models.errors import FileError
from hw_models.loading import read_text

MOST_BYTES = 64 << 20
FORMAT = "dsa-sched-verify/2"

Error = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["inf"] | None
"""A relative L2 error; None where the reference has no such value."""


class _Kept(BaseModel):
    """A part of the file; keys that are not named here are passed over."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class KeptChannel(_Kept):
    """The channel of a layer that is nearest to its bound."""

    channel: int
    error: Error
    bound: Error


class KeptSteps(_Kept):
    """Integers of a layer against those of exact arithmetic: the `share` that differs, and by how many steps at
    `most`."""

    share: Error
    most: int


class LayerAccuracy(_Kept):
    """A layer: its errors by itself and in the network, the bound of the first, what rounding alone is expected to
    make, its nearest channel, and its samples against the emulation."""

    name: str
    isolated_error: Error
    whole_error: Error
    bound: Error
    floor: Error
    samples: int
    samples_wrong: int
    channel: KeptChannel | None = None
    steps: KeptSteps | None = None


class Accuracy(_Kept):
    """What a verification found: its verdict with the reason, what was judged, also by its hash (`artifact`), and the
    layers in their order."""

    format: Literal["dsa-sched-verify/2"]
    verdict: Literal["passed", "failed", "inconclusive"]
    reason: str
    model: str
    chip: str
    level: str
    batch: int
    inputs: int
    artifact: str
    layers: tuple[LayerAccuracy, ...]


def read_accuracy(path: Path) -> Accuracy:
    """The accuracy in a report of `verify`. Raises FileError."""
    text = read_text(path, "report that verify --json wrote", FileError, most_bytes=MOST_BYTES)
    try:
        return Accuracy.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise FileError(
            str(path),
            needs=f"a report of one size in the format {FORMAT}",
            has=f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}",
            change=f"write it with: dsa-sched verify DIR --json {path}",
        ) from None


def require_about(accuracy: Accuracy, artifact: Artifact, path: Path) -> None:
    """Refuse a report about something else. Raises FileError."""
    plan = artifact.plan
    of_artifact = (artifact.graph.name, artifact.chip.name, plan.level, plan.batch_per_cluster)
    of_report = (accuracy.model, accuracy.chip, accuracy.level, accuracy.batch)
    if of_report != of_artifact:
        needs, has = (f"{m} on {c}, {level}, batch {n} per cluster" for m, c, level, n in (of_artifact, of_report))
        raise FileError(str(path), needs=f"a report about {needs}", has=f"one about {has}")
    if accuracy.artifact != artifact.hash:
        raise FileError(str(path), needs="a report about this artifact", has="one about another with the same names")
