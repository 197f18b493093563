"""Options of compilation as keyword arguments, named as on the command line, and errors that name them so.

--per-pass 4  ==  per_pass=4        "--per-pass: needs a --batch"  -->  "per_pass: needs a batch"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypedDict

from hw_models.errors import UserError
from partitioner.planners.levels import DEFAULT_LEVEL, NO_SPILLS, NORMAL_EFFORT, planner_or_auto

if TYPE_CHECKING:
    from dsa_sched.stages.compile_options import CompileOptions

Progress = Callable[[str], None]


class Options(TypedDict, total=False):
    """How a model is compiled. All may be left out.

    `level` is the name of a planner ("O0" to "O3", "streamed", "astitch") or "auto" (default), which keeps the fastest
    program by the cycle model; `effort` ("fast", "normal", "high") says how much auto tries, `spill` chooses values
    that leave the cores at O3. `batch` replaces the leading dimension of every input, `shape` the shapes of inputs by
    name; inputs in `bind` become constants, and `state` names outputs with the inputs whose next values they are (pairs
    like present.0.key and past.0.key are found). `clusters` divide the batch, and each runs its share in passes of
    `per_pass` items (a number, or "auto"). With `schedule`, instructions are ordered so that engines work at the same
    time; with `roll`, machine code has loops (None for both: where it is best). With `keep_values`, every value that
    reaches the main memory keeps a place of its own. For GPUs, `force_group` names layers that become one kernel,
    `slices` is the number of slices of the batch in which some kernels run (None: where that is fastest, 1: none), and
    `tune` times kernels on the device. At level auto up to `jobs` processes work at once (None: one per core), which
    changes nothing but the time that compiling takes. `cache` is False to neither read nor fill the build cache;
    `progress` is called with each step.
    """

    level: str
    spill: str
    effort: str
    batch: int | None
    shape: Mapping[str, tuple[int, ...]]
    bind: Mapping[str, tuple[int | float, ...]]
    state: Mapping[str, str]
    clusters: int
    per_pass: int | Literal["auto"] | None
    schedule: bool | None
    roll: bool | None
    keep_values: bool
    force_group: Sequence[str]
    slices: int | None
    tune: bool
    jobs: int | None
    cache: bool
    progress: Progress


def compile_options(options: Options) -> CompileOptions:
    """The options as the compiler takes them. Raises ModelError for unknown levels, policies and efforts, TypeError for
    an option that there is not."""
    from dsa_sched.stages.compile_options import CompileOptions  # a plain import of the package stays fast

    if unknown := sorted(set(options) - set(Options.__annotations__)):
        raise TypeError(f"no option is called {', '.join(unknown)}; there are {', '.join(Options.__annotations__)}")
    return CompileOptions(
        planner=planner_or_auto(options.get("level", DEFAULT_LEVEL), options.get("spill", NO_SPILLS)),
        batch=options.get("batch"),
        shapes=tuple((name, tuple(shape)) for name, shape in options.get("shape", {}).items()),
        clusters=options.get("clusters", 1),
        per_pass=options.get("per_pass"),
        schedule=options.get("schedule"),
        keep_values=options.get("keep_values", False),
        effort=options.get("effort", NORMAL_EFFORT),
        force_groups=tuple(options.get("force_group", ())),
        slices=options.get("slices"),
        tune=options.get("tune", False),
        roll=options.get("roll"),
        bindings=tuple((name, tuple(values)) for name, values in options.get("bind", {}).items()),
        jobs=options.get("jobs"),
        state=tuple(options.get("state", {}).items()),
    )


def progress_of(options: Options) -> Progress:
    return options.get("progress", lambda _step: None)


@contextmanager
def python_names() -> Iterator[None]:
    """Have errors name options as Python does: `per_pass`, not `--per-pass`."""
    try:
        yield
    except UserError as error:
        error.who, error.needs, error.has, error.change = map(
            _python_names, (error.who, error.needs, error.has, error.change)
        )
        raise


def _python_names(text: str) -> str:
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda found: found.group(1).replace("-", "_"), text)
