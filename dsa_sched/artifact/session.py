"""Runs of one artifact that follow each other: outputs that are an input's next value are kept between them.

    session = artifact.session()       session.run({"ids": ids, "length": length})  -->  outputs but the caches

Which output is which input's next value is said by name, or known from the spellings of exporters: `present.0.key` is
the next `past.0.key` or `past_key_values.0.key`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dsa_sched.artifact.state_names import state_of
from dsa_sched.artifact.tensors import TensorEntry
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]

MOST_STEPS = 1 << 16
"""Largest number of runs that one call makes."""


class Ends(Protocol):
    """What a network reads and makes, as a manifest says it."""

    @property
    def inputs(self) -> Sequence[TensorEntry]: ...
    @property
    def outputs(self) -> Sequence[TensorEntry]: ...


class Runs(Protocol):
    """An artifact that can run."""

    def run(self, inputs: Mapping[str, Array], runner: str | None = None, seed: int = 0) -> dict[str, Array]:
        """Outputs of one run."""


def kept_state(ends: Ends, given: Mapping[str, str]) -> dict[str, str]:
    """Inputs by the outputs that are their next values: those written in their places, those `given` as output=input,
    and those whose names say so. Raises ModelError for pairs that do not go together."""
    in_place = {entry.name: entry.state_of for entry in ends.outputs if entry.state_of}
    return state_of(ends, {**in_place, **given})


class Session:
    """An artifact and the values that it keeps between runs, by the names of the inputs; zeros at first. An input may
    have other extents in each run along the dimensions that `varies` names."""

    def __init__(
        self,
        artifact: Runs,
        ends: Ends,
        state: Mapping[str, str],
        varies: Mapping[str, frozenset[int]] = MappingProxyType({}),
    ) -> None:
        self.pairs, self._varies = kept_state(ends, state), varies
        self._artifact, self._inputs = artifact, {entry.name: entry for entry in ends.inputs}
        self.state: dict[str, Array] = {}
        self.reset()

    def reset(self) -> None:
        """Zeros again."""
        for name in self.pairs.values():
            entry = self._inputs[name]
            self.state[name] = np.zeros(entry.shape, entry.dtype)

    def run(self, inputs: Mapping[str, Array], runner: str | None = None, seed: int = 0) -> dict[str, Array]:
        """One run: its outputs but those that are kept. An input among the kept ones that is given counts. Raises
        ModelError and TargetError as `Artifact.run`."""
        outputs = self._artifact.run({**self.state, **inputs}, runner, seed)
        self.state |= {name: outputs[output] for output, name in self.pairs.items()}
        return {name: array for name, array in outputs.items() if name not in self.pairs}

    def steps(
        self,
        inputs: Mapping[str, Array],
        count: int,
        runner: str | None = None,
        seed: int = 0,
        progress: Callable[[str], None] = lambda _step: None,
    ) -> dict[str, Array]:
        """`count` runs: outputs of all of them along a new first axis, and what is kept after the last, by the names of
        its outputs. An input with such an axis in front has one value per run. Raises ModelError for other shapes,
        before anything runs."""
        if not 1 <= count <= MOST_STEPS:
            raise ModelError("steps", needs=f"1 to {MOST_STEPS:,}", has=str(count))
        by_step = {name for name, array in inputs.items() if self._has_steps(name, array, count)}
        self.state |= {name: array for name, array in inputs.items() if name in self.state and name not in by_step}
        always = {name: array for name, array in inputs.items() if name not in by_step | self.state.keys()}
        found: list[dict[str, Array]] = []
        for step in range(count):
            progress(f"step {step + 1} of {count}")
            found.append(self.run({**always, **{name: inputs[name][step] for name in by_step}}, runner, seed))
        kept = {output: self.state[name] for output, name in self.pairs.items()}
        return {name: np.stack([outputs[name] for outputs in found]) for name in found[0]} | kept

    def _has_steps(self, name: str, array: Array, count: int) -> bool:
        """Whether an input has one value per run. Raises ModelError for another shape."""
        shape = self._inputs[name].shape if name in self._inputs else array.shape
        varies = self._varies.get(name, frozenset())
        for own in (shape, (count, *shape)):
            before = len(own) - len(shape)
            if len(own) == array.ndim and all(
                extent == size or dim - before in varies
                for dim, (extent, size) in enumerate(zip(own, array.shape, strict=True))
            ):
                return before > 0
        needs = f"{list(shape)}, or {[count, *shape]} for one value per step"
        raise ModelError(f"input {name}", needs=needs, has=str(list(array.shape)))
