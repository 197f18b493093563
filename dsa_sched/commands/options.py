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
Sizes = tuple[str, tuple[int, ...]]
Binding = tuple[str, tuple[int | float, ...]]
PerPass = int | Literal["auto"] | None

MOST_DIGITS = 9
LARGEST = 10**MOST_DIGITS - 1
"""Largest extent or batch: more than any memory holds, and far below the limit of 64 bits."""
COUNT = rf"[1-9][0-9]{{0,{MOST_DIGITS - 1}}}"


class ChipName(click.ParamType[str]):
    """The name of a built-in chip, or a chip file; `load_chip` checks it."""

    name = "CHIP"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        return str(value)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        from hw_models.loading import builtin_chips

        del param, ctx
        return f"There is no default chip. Built-in chips: {', '.join(builtin_chips())}; or give a chip file."


class ShapeOption(click.ParamType[Shape]):
    """One `--shape`: the name of an input and its dimensions."""

    name = "NAME=N,C,H,W"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shape:
        if isinstance(value, tuple):
            return value
        name, equals, dims = str(value).rpartition("=")
        if not equals or not name or not re.fullmatch(f"{COUNT}(,{COUNT})*", dims):
            self.fail(f"{value!r} is not NAME=N,C,H,W, for example data=1,3,224,224", param, ctx)
        return name, tuple(int(dim) for dim in dims.split(","))


class BindOption(click.ParamType[Binding]):
    """One `--bind`: the name of an input and its elements: numbers, `true`, `false`."""

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


class StateOption(click.ParamType[tuple[str, str]]):
    """One `--state`: an output and the input whose next value it is."""

    name = "OUTPUT=INPUT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        output, _, name = str(value).rpartition("=")
        if not output or not name:
            self.fail(f"{value!r} is not OUTPUT=INPUT, for example present_key=past_key", param, ctx)
        return output, name


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


class SizesOption(click.ParamType[Sizes]):
    """One `--sizes`: the name of an axis and its sizes."""

    name = "AXIS=N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sizes:
        if isinstance(value, tuple):
            return value
        name, equals, sizes = str(value).rpartition("=")
        if not equals or not name or not re.fullmatch(f"{COUNT}(,{COUNT})*", sizes):
            self.fail(f"{value!r} is not AXIS=N,N, for example sequence=1,64 or batch=1,8", param, ctx)
        return name, tuple(int(size) for size in sizes.split(","))


class PerPassOption(click.ParamType[PerPass]):
    """`--per-pass`: a number, or `auto`."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PerPass:
        if value == "auto":
            return "auto"
        if not re.fullmatch(COUNT, str(value)):
            self.fail(f"{value!r} is neither auto nor a number that is at least 1", param, ctx)
        return int(value)


def require_different(paths: Iterable[Path]) -> None:
    """Refuse outputs of which one would overwrite another. Raises click.UsageError."""
    for path, count in Counter(path.resolve() for path in paths).items():
        if count > 1:
            raise click.UsageError(f"{path.name} is named twice; each output needs a file of its own.")


CHIP = click.option("--chip", type=ChipName(), required=True, help="The chip: a built-in name or a chip file.")

CHIP_OR_OWN = click.option(
    "--chip",
    type=ChipName(),
    help="The chip: a built-in name or a chip file. An artifact folder has its own, which is compared with this one.",
)

cache_option = click.option(
    "--cache/--no-cache",
    "use_cache",
    default=True,
    help="Use the build cache (see: dsa-sched cache): what was compiled before is taken from it. Default: --cache.",
)


def shape_options(command: AnyFunction) -> AnyFunction:
    """The options for inputs whose dimensions a model leaves open."""
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
            help="Make an input a constant, such as a sampling rate: sr=16000. It is then no input. May be repeated.",
        ),
    ):
        command = option(command)
    return command


force_group_option = click.option(
    "--force-group",
    "force_groups",
    multiple=True,
    metavar="A,B,C[:FAMILY]",
    help="For GPUs: make these layers (by their names in `explain`, or by their operators) one kernel, of this "
    "template if one is given, even where the cost model is against it. May be repeated.",
)

slices_option = click.option(
    "--slices",
    type=click.IntRange(1),
    metavar="N",
    help="For GPUs: run kernels in a row for one of N slices of the batch after the other, so that what they exchange "
    "stays in the cache, even where the cost model is against it. 1: never. Default: where it is fastest, at O3 and "
    "auto.",
)

host_option = click.option(
    "--host",
    is_flag=True,
    help="Let the host compute, by onnxruntime, the operators that the chip cannot; the rest is compiled in stages.",
)

tune_option = click.option(
    "--tune",
    is_flag=True,
    help="For GPUs, on a machine with one: time the three kernels of each group that have the lowest floors, and take "
    "the fastest. Times are kept in the user's cache folder.",
)


def sizes_options(command: AnyFunction) -> AnyFunction:
    """The options for several sizes of one model, as the arguments `sizes` and `exact`."""
    for option in (
        click.option(
            "--exact",
            is_flag=True,
            help="With --sizes: the artifact runs at these sizes alone. Operators that padding would change are then "
            "not refused.",
        ),
        click.option(
            "--sizes",
            type=SizesOption(),
            multiple=True,
            help="Sizes of a symbolic dimension of the model, or of the batch: a program for each combination, and "
            "weights once for all. May be repeated for further axes.",
        ),
    ):
        command = option(command)
    return command


def axis_sizes(sizes: tuple[Sizes, ...], exact: bool) -> dict[str, tuple[int, ...]]:
    """The sizes by axis. Raises click.UsageError for an axis that is named twice, and for --exact without sizes."""
    found = dict(sizes)
    if len(found) < len(sizes):
        raise click.UsageError("--sizes names an axis twice; give all of its sizes at once: AXIS=N,N.")
    if exact and not sizes:
        raise click.UsageError("--exact is about the sizes of --sizes.")
    return found


def compile_options(command: AnyFunction) -> AnyFunction:
    """The options of every command that compiles, with the chip."""
    return CHIP(planning_options(command))


def planning_options(command: AnyFunction) -> AnyFunction:
    """The options of how a model is compiled, without the chip."""
    command = shape_options(command)
    for option in (
        click.option(
            "--level",
            type=click.Choice(LEVEL_CHOICES),
            default=DEFAULT_LEVEL,
            show_default=True,
            help=f"How the plan is made. {level_help()}.",
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
            help=f"At {AUTO}: the largest number of plans, per size of a pass, that become programs and are timed: "
            f"{', '.join(f'{name} {most}' for name, most in EFFORTS.items())}.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help=f"At {AUTO}: how many processes work at once. The result is the same for every number. Default: one "
            "per core of this machine, or as many as the environment variable DSA_SCHED_JOBS says.",
        ),
        click.option(
            "--state",
            type=StateOption(),
            multiple=True,
            help="An output that is an input's next value, which may then be written in its place. Pairs like "
            "present.0.key=past.0.key are found. May be repeated.",
        ),
        force_group_option,
        slices_option,
        tune_option,
    ):
        command = option(command)
    return command


def gathered_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one value of `CompileOptions`, called `options`, in place of the arguments that are its fields.
    Raises ModelError for `--spill` at a level that has none."""

    @wraps(command)
    def run(*args: Any, level: str, spill: str, **said: Any) -> None:
        from dsa_sched.stages.compile_options import CompileOptions

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
    help="Order instructions so that engines work at the same time (weights come early, tiles overlap). The values "
    f"stay the same. Default: --schedule at level {AUTO}, --no-schedule at the others.",
)

roll_option = click.option(
    "--roll/--unroll",
    default=None,
    help="--roll: machine code with loops, one text for all cores; the default where the target has it. --unroll: "
    "code without loops, each core with its own; many times larger, and each engine gets the same work in the same "
    "order.",
)


def division_options(command: AnyFunction) -> AnyFunction:
    """The options of how a batch is divided: among clusters, and into passes."""
    for option in (
        click.option(
            "--per-pass",
            type=PerPassOption(),
            help="Items of a micro-batch; a cluster runs its share of the batch as one or more of them. auto: the "
            f"number that the cost model finds fastest. Default: the whole share, and at level {AUTO} the number that "
            "the cycle model finds fastest.",
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
    """The options of where a program without a manifest runs."""
    for option in (
        click.option(
            "--cluster",
            type=click.IntRange(0),
            help="For an ELF: the cluster that runs it. Default: the one that it was compiled for, or 0.",
        ),
        click.option(
            "--cores",
            type=click.IntRange(1),
            help="For an ELF: the cores that start. Default: those that it was compiled for, or all of a cluster.",
        ),
    ):
        command = option(command)
    return command


def require_elf(path: Path, cores: int | None, cluster: int | None) -> None:
    """Refuse `elf_options` for an artifact folder, whose manifest says where it runs. Raises UsageError."""
    given = [name for name, value in (("--cores", cores), ("--cluster", cluster)) if value is not None]
    if given and path.is_dir():
        verb = "is" if len(given) == 1 else "are"
        raise click.UsageError(f"{' and '.join(given)} {verb} for an ELF; the manifest of a folder says where it runs.")


runner_option = click.option(
    "--runner",
    metavar="COMMAND",
    help="Run the machine code by this command instead of the built-in simulator: another simulator, an FPGA, a "
    "board. Words in braces are replaced: {elf} {cores} {cluster} {loads} {dumps} {out}; docs/runner.md explains them.",
)
