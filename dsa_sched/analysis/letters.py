"""Short names for things in an order: a to z, then aa, ab and so on."""

from __future__ import annotations

from string import ascii_lowercase


def letter(number: int) -> str:
    """The short name of the thing with that number, counted from 0."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(ascii_lowercase))
        text = ascii_lowercase[digit] + text
    return text
