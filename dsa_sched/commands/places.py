"""Options of where many points are worked on: processes of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--jobs` or `--cluster`. Raises UsageError for both."""

    @wraps(command)
    def run(*args: Any, jobs: int | None, cluster: str | None, **said: Any) -> None:
        if cluster is not None and jobs is not None:
            raise click.UsageError("--jobs is for processes of this machine; a cluster has its own workers.")
        command(*args, jobs=jobs, cluster=cluster, **said)

    for option in (
        click.option(
            "--cluster",
            metavar="ADDRESS",
            help="Work on the workers of the Dask cluster whose scheduler has this address, like tcp://host:8786. "
            "Workers have one thread each, this version of dsa-sched, and the same files under the same paths.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help="How many processes work at once. The results are the same for every number. Default: one per core "
            "of this machine, or as many as the environment variable DSA_SCHED_JOBS says.",
        ),
    ):
        run = option(run)
    return run
