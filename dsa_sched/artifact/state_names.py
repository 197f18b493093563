"""Which output of a network is an input's next value: said as {output: input}, or known from exporters' names.

present.0.key  -->  past.0.key or past_key_values.0.key
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from hw_models.errors import ModelError

PRESENT = re.compile(r"present(_key_values)?(?=[._\d]|$)")
PASTS = ("past", "past_key_values")


class NamedEnd(Protocol):
    """An input or an output."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class NamedEnds(Protocol):
    """What a network reads and makes."""

    @property
    def inputs(self) -> Sequence[NamedEnd]: ...
    @property
    def outputs(self) -> Sequence[NamedEnd]: ...


def state_of(ends: NamedEnds, given: Mapping[str, str]) -> dict[str, str]:
    """Inputs by the outputs that are their next values: those `given` as output=input, and those whose names say so.
    Raises ModelError for names that no output or input has, for an input that has two, and for another shape."""
    inputs, outputs = ({entry.name: entry for entry in each} for each in (ends.inputs, ends.outputs))
    for output, name in given.items():
        who = f"state {output}={name}"
        if output not in outputs:
            raise ModelError(who, needs=f"an output, one of {', '.join(outputs)}", has=output)
        if name not in inputs:
            raise ModelError(who, needs=f"an input, one of {', '.join(inputs)}", has=name)
        if outputs[output].shape != inputs[name].shape:
            shapes = [list(entry.shape) for entry in (inputs[name], outputs[output])]
            raise ModelError(who, needs=f"one shape, that of the input: {shapes[0]}", has=str(shapes[1]))
    pairs = dict(given)
    for output, entry in outputs.items():
        past = next((name for name in _pasts(output) if name in inputs), "")
        if output not in pairs and past and past not in pairs.values() and inputs[past].shape == entry.shape:
            pairs[output] = past
    twice = sorted(name for name in inputs if [*pairs.values()].count(name) > 1)
    if twice:
        raise ModelError(f"state of {twice[0]}", needs="one output that is its next value", has="two")
    return pairs


def _pasts(output: str) -> Iterator[str]:
    """Names under which exporters have the input of which this output is the next value."""
    found = PRESENT.search(output)
    if found is not None:
        yield from (output[: found.start()] + past + output[found.end() :] for past in PASTS)
