"""The folder for results that are computed once per machine: $XDG_CACHE_HOME/dsa-sched, or ~/.cache/dsa-sched."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """The folder, or None without a home directory. As the XDG specification says, a relative XDG_CACHE_HOME counts as
    unset."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "dsa-sched"
    except RuntimeError:  # no home directory
        return None
