"""Inputs of another type than the model's or beyond the device's type, and outputs that are no numbers, as sentences.

inputs of an artifact + arrays in the file's type  -->  "input x: 3 of 192 values are beyond ..."
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dsa_sched.artifact.tensors import TensorEntry

Array = npt.NDArray[np.generic]


def type_warnings(inputs: Mapping[str, npt.DTypeLike], arrays: Mapping[str, Array]) -> tuple[str, ...]:
    """A sentence per array whose type holds numbers that the model's type for this input, in `inputs`, does not hold.

    Arrays that are missing or hold no numbers are refused elsewhere.
    """
    return tuple(
        f"input {name}: the array is {array.dtype}, the model's input {np.dtype(wanted)}, to which it is converted"
        for name, wanted in inputs.items()
        if (array := arrays.get(name)) is not None
        and array.dtype.kind in "fiu"
        and not np.can_cast(array.dtype, wanted, "safe")
    )


def range_warnings(inputs: Sequence[TensorEntry], feeds: Sequence[Mapping[str, Array]]) -> tuple[str, ...]:
    """At most one sentence per way in which an input loses values, over all `feeds` together.

    Infinite values and NaN stay as they are on the device; arrays that are missing or hold no numbers are refused
    elsewhere.
    """
    found: list[str] = []
    for entry in inputs:
        arrays = [np.asarray(feed[entry.name]).reshape(-1) for feed in feeds if entry.name in feed]
        if arrays and all(array.dtype.kind in "fiu" for array in arrays):
            found += _lost(entry, np.concatenate(arrays))
    return tuple(found)


def not_finite(outputs: Mapping[str, Array]) -> tuple[str, ...]:
    """A sentence for each output that has elements which are NaN or infinite."""
    found: list[str] = []
    for name, array in outputs.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        counts = ((int(np.isnan(array).sum()), "NaN"), (int(np.isinf(array).sum()), "infinite"))
        said = ", ".join(f"{count} of {array.size} elements are {what}" for count, what in counts if count)
        found.append(f"output {name}: {said}")
    return tuple(found)


def _lost(entry: TensorEntry, values: Array) -> Iterator[str]:
    device = np.dtype(entry.device_dtype)
    if device.kind == "f":
        yield from _lost_floats(entry.name, values.astype(np.float64), device)
    elif device.kind in "iu":
        limits = np.iinfo(device)
        finite = values[np.isfinite(values)]
        beyond = finite[np.less(finite, limits.min) | np.greater(finite, limits.max)]
        if beyond.size:
            yield _beyond(
                entry.name, beyond, values.size, f"{limits.min} to {limits.max} of {device}", "wrapped around"
            )


def _lost_floats(name: str, values: npt.NDArray[np.float64], device: np.dtype[np.generic]) -> Iterator[str]:
    with np.errstate(over="ignore", under="ignore"):
        stored = values.astype(device)
    beyond = values[np.isfinite(values) & ~np.isfinite(stored)]
    if beyond.size:
        largest = float(np.finfo(np.float16 if device == np.float16 else np.float32).max)
        yield _beyond(name, beyond, values.size, f"{largest:g} of {device}", "taken as infinite")
    nonzero = values[values != 0]
    if nonzero.size and not stored.any():
        count, most = nonzero.size, float(np.abs(nonzero).max())
        yield f"input {name}: all {count} values that are not zero become 0 in {device}, the largest of {most:g}"


def _beyond(name: str, beyond: Array, count: int, limit: str, what: str) -> str:
    largest = beyond[np.argmax(np.abs(beyond.astype(np.float64)))]
    verb = "is" if beyond.size == 1 else "are"
    return f"input {name}: {beyond.size} of {count} values {verb} beyond {limit} and {what}, the largest {largest:g}"
