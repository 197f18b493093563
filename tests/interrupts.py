"""Commands that can be interrupted, however the tests were started."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For `preexec_fn` of a command: a shell that starts the tests in the background lets its children ignore SIGINT,
    which they would hand on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
