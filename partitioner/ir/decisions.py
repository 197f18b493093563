"""Decisions about parts of the user's network, with the numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `subject` is an operator, layer or tensor by the user's name; `verdict` a few words; `reason` the
    numbers."""

    subject: str
    verdict: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.verdict}: {self.reason}"
