"""The command line. `dsa-sched --help` is the manual.

In: arguments. Out: text, files and an exit code. Commands live in `dsa_sched.commands`; here they are put together, and
errors that a user can cause become one message and exit code 1, Ctrl-C one word and 130.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import IO, Any

import click

from dsa_sched.commands.cache import cache
from dsa_sched.commands.calibrate import calibrate
from dsa_sched.commands.chips import chip, chips
from dsa_sched.commands.compile import compile_command
from dsa_sched.commands.diff import diff
from dsa_sched.commands.disasm import disasm
from dsa_sched.commands.explain import explain
from dsa_sched.commands.iss import iss
from dsa_sched.commands.models import models
from dsa_sched.commands.ops import ops
from dsa_sched.commands.place import place
from dsa_sched.commands.quantize import quantize
from dsa_sched.commands.report import report
from dsa_sched.commands.run import run
from dsa_sched.commands.suite import suite
from dsa_sched.commands.sweep import sweep
from dsa_sched.commands.time import time
from dsa_sched.commands.timeline import timeline
from dsa_sched.commands.verify import verify
from dsa_sched.stages.gc_pause import uncollected_at_exit
from hw_models.errors import UserError

STANDARD_OUTPUT = 1
INTERRUPTED = 130
"""Exit code that shells report for a command ended by Ctrl-C: 128 plus the number of the signal."""


class Failure(click.ClickException):
    """A user's error on its way out: the message on standard error, exit code 1, no traceback."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"dsa-sched: error: {self.message}", file=file, err=file is None)


class Manual(click.Group):
    """The top group: lists the commands in the order of use and turns user errors into failures. Ctrl-C has an exit
    code of its own: click's is that of a failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what a user can cause is raised as Failure, which click prints without a traceback."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise Failure(str(error)) from error
        except KeyboardInterrupt:
            click.echo("dsa-sched: interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Manual,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: dsa-sched COMMAND --help.",
)
@click.version_option(package_name="dsa-sched", prog_name="dsa-sched")
def cli() -> None:
    """Compile ONNX networks for accelerators that a chip file describes; run and check the machine code.

    \b
    model.onnx -> graph -> plan -> program -> artifact (machine code) -> results
                             ^       ^
                             chip file (memories, engines, links)

    A CHIP is the name of a built-in chip (see: dsa-sched chips) or the path of a chip file. There is no
    default chip.

    \b
    Exit codes
      0  done
      1  compile error: model, chip or plan cannot be used; the message says why
      2  usage: a wrong option or argument
      3  mismatch: the results of a run are not those of the reference
      4  inconclusive: rounding alone may make the results wrong
      5  slower: `diff` or `suite` found more time than --tolerance allows
    130  interrupted by Ctrl-C

    `iss` exits with the code of the program it runs; 125 means the limit or a deadlock ended the run,
    126 that the program read unwritten bytes or trapped without a handler.
    """


for command in (
    compile_command,
    run,
    verify,
    explain,
    time,
    timeline,
    report,
    diff,
    sweep,
    suite,
    place,
    quantize,
    models,
    ops,
    chips,
    chip,
    calibrate,
    cache,
    disasm,
    iss,
):
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script. Output that the system refuses to write, as on a full disk, ends with one line
    and exit code 1; a reader of the output that leaves early, with exit code 1 alone.
    """
    uncollected_at_exit()
    try:
        try:
            cli(prog_name="dsa-sched")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # The interpreter would try to write the rest at its end, and fail again with its own message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_OUTPUT)
        if error.errno != errno.EPIPE:
            Failure(f"{error.filename or 'output'}: {(error.strerror or str(error)).lower()}").show()
        sys.exit(Failure.exit_code)
