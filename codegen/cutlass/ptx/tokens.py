"""PTX text in tokens, each with its line. No comments, no white space; everything else is a token or an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from codegen.cutlass.ptx.errors import PtxError

__all__ = ["Token", "tokens"]

PATTERN: Final = re.compile(
    r"""[ \t\r\f\v]*(?:
    (?P<word>[.]?[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
    |(?P<mark>[@!{}()\[\],;:|+\-<>=])
    |(?P<newline>\n)
    |(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})
    |(?P<decimal>\d+\.\d+(?:[eE][+-]?\d+)?)
    |(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"[^"\n]*")
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
"""White space, then one token. The frequent ones come first; the order of the numbers' three forms matters."""


class Token(NamedTuple):
    """`kind` is the pattern's group: string, float, decimal, number, word or mark."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """All tokens of `text`. Raises PtxError for a character that begins none."""
    line, position = 1, 0
    while position < len(text):
        found = PATTERN.match(text, position)
        if found is None:
            position += len(text[position:]) - len(text[position:].lstrip(" \t\r\f\v"))
            raise PtxError(f"{text[position]!r} begins nothing that PTX has", line=line)
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found[kind].count("\n")
        elif kind != "end":
            yield Token(kind, found[kind], line)
