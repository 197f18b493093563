"""Progress of long work: one changing line with the current step on a terminal, few lines elsewhere.

All of it goes to standard error, so that standard output holds only results.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

QUIET_SECONDS = 10.0
"""Seconds for which steps of one phase are not printed after another one of it, where there is no terminal."""


class ProgressSteps:
    """Shows the steps of long work: `with ProgressSteps() as steps: steps.say("lowering")`.

    Steps whose words are the same up to a comma or a number are one phase.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._live: Live | None = None
        self._said = ("", 0.0)

    def __enter__(self) -> ProgressSteps:
        if self._console.is_terminal:
            # Redrawn by `say` alone: without a thread for that, processes can be forked meanwhile.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, step: str) -> None:
        """The step that starts now, or has just been done."""
        if self._live is not None:
            self._live.update(Text(step, no_wrap=True, overflow="ellipsis"), refresh=True)
            return
        phase, now = re.split(r"[,\d]", step)[0], self._clock()
        last, moment = self._said
        if phase != last or now - moment >= QUIET_SECONDS:
            self._said = phase, now
            self._console.print(step, markup=False, highlight=False, soft_wrap=True)
