"""Sources as trees: many rules read all of them, and each is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache

__all__ = ["parsed"]


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a source, which is shared: nobody may change it. Raises SyntaxError."""
    return ast.parse(source)
