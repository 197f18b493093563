"""Largest parts of a network that IOS searches."""

from __future__ import annotations

MOST_OPERATORS = 62
"""Largest number of operators of a part, because states are masks of 64 bits."""

MOST_TRANSITIONS = 100_000_000
"""Largest number of transitions. They take 8 bytes each, twice that while they grow."""
