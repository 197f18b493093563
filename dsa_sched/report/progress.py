"""Progress of long work: a spinner with the current step on a terminal, plain lines elsewhere.

All of it goes to standard error, so that standard output holds only results.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.status import Status


class ProgressSteps:
    """Shows the steps of long work: `with ProgressSteps() as steps: steps.say("lowering")`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status: Status | None = None

    def __enter__(self) -> ProgressSteps:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, step: str) -> None:
        """The step that starts now, or has just been done."""
        if self._status is not None:
            self._status.update(step)
        else:
            self._console.print(step, markup=False, highlight=False, soft_wrap=True)
