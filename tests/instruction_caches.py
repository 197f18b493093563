"""The stcp920 with other instruction caches."""

from __future__ import annotations

from hw_models.chip import Chip
from hw_models.parts import InstructionCache, ScalarEngine

__all__ = ["cached", "uncached"]


def cached(chip: Chip, **values: float) -> Chip:
    """The chip with other numbers of its instruction cache."""
    cache = chip.instruction_cache
    assert cache is not None
    return _with(chip, InstructionCache.model_validate({**cache.model_dump(), **values}))


def uncached(chip: Chip) -> Chip:
    """The chip as a file describes it that says nothing of fetching code."""
    return _with(chip, None)


def _with(chip: Chip, cache: InstructionCache | None) -> Chip:
    engines = tuple(
        engine.model_copy(update={"instruction_cache": cache}) if isinstance(engine, ScalarEngine) else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})
