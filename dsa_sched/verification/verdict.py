"""Verdict of a verification: the measurements of layers, logits and constants, and the failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dsa_sched.analysis.figures import ProgramFigures
from dsa_sched.analysis.work import LayerWork
from dsa_sched.verification.tolerances import LAYER_BOUND, LogitsResult, Share

Verdict = Literal["passed", "failed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Steps:
    """Integers of a layer by itself against those of exact arithmetic, over all inputs: the `share` of `values` that
    differ, and by how many steps at `most`. `rounding` is the largest number of steps that rounding of the numbers on
    the way to them is expected to make; a `linked` layer does not stand alone, it reads what layers before it made."""

    values: int
    share: float
    most: int
    rounding: int
    linked: bool = False

    @property
    def allowed(self) -> int:
        """One step, because a number near the middle of two integers goes either way, and those of rounding; twice as
        many where the steps of several layers add up."""
        return (1 + self.rounding) * (2 if self.linked else 1)

    @property
    def passed(self) -> bool:
        return self.most <= self.allowed

    @property
    def text(self) -> str:
        return f"{self.most} step{'s' * (self.most != 1)}, {self.share:.2%}" if self.most else "0 steps"


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer. Errors are relative L2, the worst of all inputs; None where the reference has no such value. The error
    of the layer by itself may be up to `bound`; rounding alone is expected to make `floor`; `channel` is the worst
    channel. A layer that makes integers is judged by `steps` instead.
    """

    name: str
    operators: tuple[str, ...]
    output: str
    work: LayerWork
    isolated_error: float | None
    whole_error: float | None
    samples: int
    samples_wrong: int
    first_wrong: str
    bound: float = LAYER_BOUND
    floor: float = 0.0
    channel: Share | None = None
    steps: Steps | None = None

    @property
    def wrong_alone(self) -> bool:
        """Whether the layer by itself is beyond its bound."""
        if self.steps is not None:
            return not self.steps.passed
        beyond = self.isolated_error is not None and not self.isolated_error <= self.bound
        return beyond or (self.channel is not None and not self.channel.passed)


@dataclass(frozen=True, slots=True)
class LevelResult:
    """Values that a level other than O0 leaves in the main memory, compared with O0 bit for bit on every input: the
    number of values (inputs not counted), their bytes, and how many of them are outputs of the network.

    `different` has one entry per value and input that differ, in order of execution: (value, input, bytes that differ,
    the first of them).
    """

    level: str
    values: int
    bytes: int
    outputs: int
    different: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class BoundedLevelResult:
    """Like `LevelResult`, for a target that gives a bound: `samples` of these values were emulated from what the level
    stores; `wrong` has (value, samples beyond the bound, samples, the first in words), in order of execution.
    """

    level: str
    values: int
    bytes: int
    outputs: int
    samples: int
    wrong: tuple[tuple[str, int, int, str], ...]


@dataclass(frozen=True, slots=True)
class ShippedResult:
    """Outputs of the artifact, compared bit for bit with those of its twin, the same plan with all values kept, by
    which layers and outputs are judged: the number of outputs and their bytes. `is_twin` says whether the artifact is
    its own twin. `different` has one entry per output and input that differ: (output, input, bytes that differ, the
    first of them).
    """

    outputs: int
    bytes: int
    is_twin: bool
    different: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ConstantsResult:
    """Number of constants that are bit for bit the file's in another order; number of those made of several, to within
    rounding; those that no rewrite declares; and (constant, elements that differ, elements, the first in words) of all
    others.
    """

    copied: int
    computed: int
    undeclared: tuple[str, ...]
    different: tuple[tuple[str, int, int, str], ...]

    @property
    def sentences(self) -> Iterator[str]:
        for name, count, size, first in self.different:
            yield f"constant {name}: {count} of {size} elements are not what the file gives, {first}"


@dataclass(frozen=True, slots=True)
class ExtremeResult:
    """The outputs for inputs of an extreme size. `outcome` is `held`, `failed` or `not judged`; `line` is a clause
    about it for `label`.
    """

    label: str
    outcome: str
    line: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The verdict and what led to it: `failed` where `failures` has anything, else `inconclusive` where `doubts` has,
    else `passed`. `extremes` are the outputs for inputs of extreme sizes. `against_o0` is None at level O0; at other
    levels, errors and samples of `layers` come from the run at O0, which stores every value, and `work` is the level's.
    `against_file` compares the constants in memory with the file's initializers. `programs` are the compiled programs:
    the network as asked for; at other levels it follows the program at O0 without schedule. `exact` says whether the
    target was judged bit for bit, or by its bound. `artifact` is the hash of what was judged.
    """

    model: str
    chip: str
    level: str
    batch: int
    inputs: int
    layers: tuple[LayerResult, ...]
    logits: tuple[LogitsResult, ...]
    constants: int
    constant_bytes: int
    program_bytes: int
    total: LayerWork
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    seconds: tuple[tuple[str, float], ...]
    against_file: ConstantsResult
    programs: tuple[ProgramFigures, ...]
    against_o0: LevelResult | BoundedLevelResult | None = None
    exact: bool = True
    doubts: tuple[str, ...] = ()
    extremes: tuple[ExtremeResult, ...] = ()
    shipped: ShippedResult | None = None
    artifact: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.failures:
            return "failed"
        return "inconclusive" if self.all_doubts else "passed"

    @property
    def all_doubts(self) -> tuple[str, ...]:
        """The doubts, and a sentence about each output that may consist of rounding errors."""
        named = {result.tensor for result in self.logits if any(result.tensor in doubt for doubt in self.doubts)}
        silent = {result.tensor: result for result in self.logits if result.doubtful and result.tensor not in named}
        return (
            *self.doubts,
            *(
                f"{name} for input {result.input}: off by {result.error:.3g}, where the outputs of two inputs differ "
                f"by {result.distance:.3g} and rounding alone may make {result.floor:.3g}"
                for name, result in silent.items()
            ),
        )

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def reason(self) -> str:
        """Reason for the verdict: the first thing that does not hold or is in doubt, or what was held."""
        first = next(iter((*self.failures, *self.all_doubts)), "")
        if first:
            return first
        sizes = [result.label for result in self.extremes if result.outcome == "held"]
        judged = ((len(self.layers), "layer"), (len({result.tensor for result in self.logits}), "output"))
        what = " and ".join(f"{count} {word}" + "s" * (count != 1) for count, word in judged)
        said = f"{what} within their bounds for {self.inputs} input" + "s" * (self.inputs != 1)
        return f"{said}, the outputs also for {', '.join(sizes)}" if sizes else said

    @property
    def end_to_end(self) -> str:
        """Statement about the outputs: `failed`, `no statement` where none of them can be judged, else `passed`. Where
        all of them are integers, `failures` judges them.
        """
        if not self.logits:
            return "failed" if self.failures else "passed"
        if not all(result.passed for result in self.logits):
            return "failed"
        return "passed" if any(result.statement for result in self.logits) else "no statement"


def failures(layers: tuple[LayerResult, ...], logits: tuple[LogitsResult, ...], ends: bool = True) -> Iterator[str]:
    """Sentences about what failed. With `ends`, layers make the outputs, which the reference must then have too."""
    for layer in layers:
        error = layer.isolated_error
        if layer.steps is not None:
            if not layer.steps.passed:
                yield (
                    f"layer {layer.name}: integers by itself differ from those of exact arithmetic by "
                    f"{layer.steps.most} steps, at most {layer.steps.allowed} are allowed ({layer.steps.share:.2%} of "
                    f"{layer.steps.values:,} differ)"
                )
        elif error is not None and not error <= layer.bound:
            yield f"layer {layer.name}: relative error {error:.3g} by itself, at most {layer.bound:.3g} is allowed"
        elif layer.channel is not None and not layer.channel.passed:
            worst = layer.channel
            yield (
                f"layer {layer.name}: relative error {worst.error:.3g} of channel {worst.channel} by itself, at most "
                f"{worst.bound:.3g} is allowed"
            )
        if layer.samples_wrong:
            yield (
                f"layer {layer.name}: {layer.samples_wrong} of {layer.samples} samples differ from the emulation, "
                f"{layer.first_wrong}"
            )
    if not logits and ends:
        yield "no output of the network is a value that the reference has, so the outputs cannot be judged"
    for result in logits:
        where = f"{result.tensor} for input {result.input}"
        if result.statement and not result.error <= result.bound:
            yield (
                f"{where}: error {result.error:.4g} is {result.share:.3g} of the distance {result.distance:.4g} "
                f"between inputs, at most {result.bound / result.distance:.3g} is allowed"
            )
        if result.statement and result.top1_wrong:
            yield f"{where}: {result.top1_wrong} of {result.rows} rows have another top-1 although the margin is clear"


def shipped_failures(result: ShippedResult) -> Iterator[str]:
    """Sentences about outputs of the artifact that are not those of its twin."""
    for name, number, count, first in result.different:
        yield (
            f"{name} for input {number}: {count} bytes that the artifact computes are not those of the same plan with "
            f"all values kept, the first at byte {first}"
        )


def level_failures(result: LevelResult | BoundedLevelResult) -> Iterator[str]:
    """Sentences about the first value that differs for each input (later ones differ because of it), or about each
    value beyond a bound, because each is judged by what the level itself stored before it.
    """
    if isinstance(result, BoundedLevelResult):
        for name, wrong, samples, words in result.wrong:
            yield f"level {result.level}: {wrong} of {samples} samples of {name} are beyond the bound, {words}"
        return
    seen: set[int] = set()
    for name, number, count, first in result.different:
        if number not in seen:
            seen.add(number)
            yield (
                f"level {result.level}: {name} for input {number} is the first value in the main memory that is not as "
                f"at level O0, {count} bytes differ, first at {first}"
            )
