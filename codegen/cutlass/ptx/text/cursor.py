"""PTX text as tokens, each with its line, and a cursor that takes tokens from a list.

Comments and white space are not tokens; everything else is a token or an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from codegen.cutlass.ptx.text.errors import PtxError

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
"""Pattern of white space and one token. The frequent ones come first; the order of the numbers' three forms matters."""


class Token(NamedTuple):
    """A token. `kind` is the pattern's group: string, float, decimal, number, word or mark."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """All tokens of `text`. Raises PtxError for a character that starts no token."""
    line, position = 1, 0
    while position < len(text):
        found = PATTERN.match(text, position)
        if found is None:
            position += len(text[position:]) - len(text[position:].lstrip(" \t\r\f\v"))
            raise PtxError(f"{text[position]!r} does not begin a token of PTX", line=line)
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found[kind].count("\n")
        elif kind != "end":
            yield Token(kind, found[kind], line)


MOST_DIGITS: Final = 80


class Cursor:
    """A reader of tokens from the first to the last. Raises PtxError, with the line, for a token that is not there."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = (*found, Token("", "", found[-1].line if found else 0))  # the end, which nothing takes
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether all tokens are taken."""
        return self._at == len(self._tokens) - 1

    @property
    def line(self) -> int:
        """The line of the next token, or of the last one."""
        return self._tokens[self._at].line

    def peek(self) -> str:
        """The text of the next token, empty at the end."""
        return self._tokens[self._at].text

    def kind(self) -> str:
        """The kind of the next token, empty at the end."""
        return self._tokens[self._at].kind

    def next(self) -> Token:
        """Take a token."""
        token = self._tokens[self._at]
        if not token.kind:
            raise PtxError("the text ends in the middle of a statement", line=token.line)
        self._at += 1
        return token

    def back(self) -> None:
        """Give the last token back."""
        self._at -= 1

    def expect(self, text: str) -> Token:
        """Take this token."""
        token = self.next()
        if token.text != text:
            raise PtxError(f"{text!r} is missing before {token.text!r}", line=token.line)
        return token

    def take(self, text: str) -> bool:
        """Take this token if it is the next one; return whether it was."""
        if self._tokens[self._at].text != text:
            return False
        self._at += 1
        return True

    def integer(self) -> int:
        """Take a whole number with its sign."""
        negative = self.take("-")
        token = self.next()
        if token.kind != "number":
            raise PtxError(f"{token.text!r} is not a whole number", line=token.line)
        return -number(token.text) if negative else number(token.text)

    def skip_line(self, line: int) -> None:
        """Skip the rest of a line."""
        while not self.done and self._tokens[self._at].line == line:
            self._at += 1

    def skip_statement(self) -> None:
        """Skip to after the next semicolon."""
        while self.next().text != ";":
            pass

    def skip_braces(self) -> None:
        """Skip the next pair of braces with its contents."""
        while self.peek() != "{":
            self.next()
        depth = 0
        while True:
            text = self.next().text
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return


def number(text: str) -> int:
    """The value of a literal: decimal, octal after a zero, 0x, 0b. Raises PtxError."""
    digits = text.rstrip("U")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    if len(digits) > MOST_DIGITS or (octal and not set(digits) <= set("01234567")):
        raise PtxError(f"{text[:MOST_DIGITS]} is not a number")
    return int(digits, 8 if octal else 0)
