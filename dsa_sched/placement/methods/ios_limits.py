"""How large the parts of a network may be that IOS searches."""

from __future__ import annotations

MOST_OPERATORS = 62
"""States of a part are masks of 64 bits."""

MOST_TRANSITIONS = 100_000_000
"""They take 8 bytes each, twice while they grow."""
