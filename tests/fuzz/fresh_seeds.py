"""Seeds for one night: each commit has its own, so that the nights together try ever more models.

commit  -->  a range of seeds beyond those that every night tries
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

FIRST = 100_000
"""Seeds below are tried every night."""
STRETCHES = 1 << 20


@cache
def commit_number() -> int:
    """A number that depends on the commit that is checked out; 0 where there is none."""
    done = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(done.stdout.strip()[:12] or "0", 16) if done.returncode == 0 else 0


def fresh_seeds(count: int) -> tuple[int, int]:
    """The first of `count` seeds of this commit, and the one behind them."""
    start = FIRST + commit_number() % STRETCHES * count
    return start, start + count
