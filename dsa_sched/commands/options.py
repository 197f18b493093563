"""Options that several commands share: the chip, the level, the batch, shapes of inputs, another runner.

--shape x=1,3,224,224  -->  ("x", (1, 3, 224, 224))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from partitioner.planners.levels import (
    AUTO,
    DEFAULT_LEVEL,
    EFFORTS,
    LEVEL_CHOICES,
    NO_SPILLS,
    NORMAL_EFFORT,
    O3,
    SPILL_HELP,
    SPILLS,
    level_help,
    planner_or_auto,
)

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Shape = tuple[str, tuple[int, ...]]
Binding = tuple[str, tuple[int | float, ...]]
PerPass = int | Literal["auto"] | None

MOST_DIGITS = 9
LARGEST = 10**MOST_DIGITS - 1
"""Of an extent or a batch: beyond what any memory holds, and far from where 64 bits end."""
COUNT = rf"[1-9][0-9]{{0,{MOST_DIGITS - 1}}}"


class ChipName(click.ParamType[str]):
    """The name of a built-in chip or a chip file; what it must be is said by whoever loads it."""

    name = "CHIP"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        return str(value)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        from hw_models.loading import builtin_chips

        del param, ctx
        return f"There is no default chip. Built-in chips: {', '.join(builtin_chips())}; or give a chip file."


class ShapeOption(click.ParamType[Shape]):
    """One `--shape`: the name of an input, then its dimensions."""

    name = "NAME=N,C,H,W"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shape:
        if isinstance(value, tuple):
            return value
        name, equals, dims = str(value).rpartition("=")
        if not equals or not name or not re.fullmatch(f"{COUNT}(,{COUNT})*", dims):
            self.fail(f"{value!r} is not NAME=N,C,H,W, for example data=1,3,224,224", param, ctx)
        return name, tuple(int(dim) for dim in dims.split(","))


class BindOption(click.ParamType[Binding]):
    """One `--bind`: the name of an input, then its elements: numbers, `true`, `false`."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Binding:
        if isinstance(value, tuple):
            return value
        name, equals, listed = str(value).rpartition("=")
        elements = [_element(text) for text in listed.split(",")]
        known = [element for element in elements if element is not None]
        if not equals or not name or len(known) < len(elements):
            self.fail(f"{value!r} is not NAME=VALUE, for example sr=16000 or flag=true or size=2,3", param, ctx)
        return name, tuple(known)


def _element(text: str) -> int | float | None:
    """A number or a truth value; None for other texts."""
    truths = {"true": 1, "false": 0}
    if text.strip().lower() in truths:
        return truths[text.strip().lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


class PerPassOption(click.ParamType[PerPass]):
    """`--per-pass`: a number, or `auto`."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PerPass:
        if value == "auto":
            return "auto"
        if not re.fullmatch(COUNT, str(value)):
            self.fail(f"{value!r} is neither a number from 1 on nor auto", param, ctx)
        return int(value)


def require_different(paths: Iterable[Path]) -> None:
    """Refuse outputs of which one would overwrite another. Raises click.UsageError."""
    for path, count in Counter(path.resolve() for path in paths).items():
        if count > 1:
            raise click.UsageError(f"{path.name} is named twice; each output needs a file of its own")


CHIP = click.option("--chip", type=ChipName(), required=True, help="The chip: a built-in name or a chip file.")

CHIP_OR_OWN = click.option(
    "--chip",
    type=ChipName(),
    help="The chip: a built-in name or a chip file. An artifact folder has its own, and is only checked against it.",
)

cache_option = click.option(
    "--cache/--no-cache",
    "use_cache",
    default=True,
    help="Take what was compiled before from the build cache, and keep it there (see: dsa-sched cache). Default: yes.",
)


def shape_options(command: AnyFunction) -> AnyFunction:
    """What the user says of inputs whose dimensions a model leaves open."""
    for option in (
        click.option(
            "--shape",
            "shapes",
            type=ShapeOption(),
            multiple=True,
            help="The shape of an input whose dimensions the model leaves open. May be repeated.",
        ),
        click.option("--batch", type=click.IntRange(1, LARGEST), help="Replace the leading dimension of every input."),
        click.option(
            "--bind",
            "bindings",
            type=BindOption(),
            multiple=True,
            help="Make an input a constant, such as a sampling rate: sr=16000; it is no input then. May be repeated.",
        ),
    ):
        command = option(command)
    return command


force_group_option = click.option(
    "--force-group",
    "force_groups",
    multiple=True,
    metavar="A,B,C[:FAMILY]",
    help="For GPUs: make these layers, named as `explain` does, or by operators, one kernel (of this template) even "
    "where the model of costs declines. May be repeated.",
)

host_option = click.option(
    "--host",
    is_flag=True,
    help="Let the host compute, by onnxruntime, the operators that the chip cannot; the rest is compiled in stages.",
)

tune_option = click.option(
    "--tune",
    is_flag=True,
    help="For GPUs, on a machine with one: time the three best kernels of each group, by their floors, and take the "
    "fastest. Times are kept in the user's cache folder.",
)


def compile_options(command: AnyFunction) -> AnyFunction:
    """The options of every command that compiles, with the chip."""
    return CHIP(planning_options(command))


def planning_options(command: AnyFunction) -> AnyFunction:
    """How a model is compiled, without the chip."""
    command = shape_options(command)
    for option in (
        click.option(
            "--level",
            type=click.Choice(LEVEL_CHOICES),
            default=DEFAULT_LEVEL,
            show_default=True,
            help=f"How much is optimised. {level_help()}.",
        ),
        click.option(
            "--spill",
            type=click.Choice(SPILLS),
            default=NO_SPILLS,
            show_default=True,
            help=f"At {O3.name}: {SPILL_HELP}",
        ),
        click.option(
            "--effort",
            type=click.Choice(tuple(EFFORTS)),
            default=NORMAL_EFFORT,
            show_default=True,
            help=f"At {AUTO}: how many plans become programs that are compared.",
        ),
        force_group_option,
        tune_option,
    ):
        command = option(command)
    return command


def gathered_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one value of `CompileOptions`, called `options`, in place of the arguments that are its fields.
    Raises ModelError for `--spill` at a level that has none."""

    @wraps(command)
    def run(*args: Any, level: str, spill: str, **said: Any) -> None:
        from dsa_sched.stages.compilation import CompileOptions  # what it imports takes a second

        named = [field.name for field in fields(CompileOptions) if field.name in said]
        options = CompileOptions(planner_or_auto(level, spill), **{name: said.pop(name) for name in named})
        command(*args, options=options, **said)

    return run


def feed_option(words: str) -> Callable[[AnyFunction], AnyFunction]:
    """`--feed FILE`, any number of times."""
    path = click.Path(path_type=Path)
    return click.option("--feed", "feeds", type=path, multiple=True, metavar="FILE", help=words)


trace_option = click.option(
    "-o",
    "--output",
    "trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write trace events (JSON) for ui.perfetto.dev or chrome://tracing.",
)

columns_option = click.option(
    "--columns", type=click.IntRange(10, 1000), default=80, show_default=True, help="Width of the chart."
)

schedule_option = click.option(
    "--schedule/--no-schedule",
    default=None,
    help="Order instructions so that engines work at the same time (weights come ahead, tiles overlap). Same values. "
    f"Level {AUTO} does unless told not to, the others do not unless told to.",
)

roll_option = click.option(
    "--roll/--unroll",
    default=None,
    help="Machine code with loops, one text for all cores: what is done when neither is said, where the target can. "
    "--unroll: one instruction after the other, for each core its own; many times larger, every engine asked the same "
    "in the same order.",
)


def division_options(command: AnyFunction) -> AnyFunction:
    """How a batch is divided: among clusters, and into passes."""
    for option in (
        click.option(
            "--per-pass",
            type=PerPassOption(),
            help="Items of a micro-batch; a cluster runs its share as one or more of them. auto: what the cost model "
            f"finds fastest. All at once when not said; at level {AUTO} what the cycle model finds fastest.",
        ),
        click.option(
            "--clusters",
            type=click.IntRange(1),
            default=1,
            metavar="N",
            help="Divide the batch among N clusters of the chip.",
        ),
    ):
        command = option(command)
    return command


def elf_options(command: AnyFunction) -> AnyFunction:
    """Where a program runs that comes without a manifest."""
    for option in (
        click.option(
            "--cluster",
            type=click.IntRange(0),
            help="Cluster that runs it. ELF only; when not said, the one that it was compiled for, else 0.",
        ),
        click.option(
            "--cores",
            type=click.IntRange(1),
            help="Cores that start. ELF only; when not said, those that it was compiled for, else all of a cluster.",
        ),
    ):
        command = option(command)
    return command


def require_elf(path: Path, cores: int | None, cluster: int | None) -> None:
    """Raises UsageError where `elf_options` are given for an artifact folder, whose manifest says them."""
    given = [name for name, value in (("--cores", cores), ("--cluster", cluster)) if value is not None]
    if given and path.is_dir():
        verb = "is" if len(given) == 1 else "are"
        raise click.UsageError(f"{' and '.join(given)} {verb} for an ELF; the manifest of a folder says where it runs.")


runner_option = click.option(
    "--runner",
    metavar="COMMAND",
    help="Run the machine code by this command instead of the built-in simulator: another simulator, an FPGA, a "
    "board. Words in braces are filled in: {elf} {cores} {cluster} {loads} {dumps} {out}; docs/runner.md says how.",
)
