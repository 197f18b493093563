"""Tensors of a network in the main memory: their entries in a manifest, and their arrays as bytes.

    TensorEntry, ONNX array --to_device--> bytes        bytes --from_device--> ONNX array

Integers are refused here where no machine may see them: beyond 32 bits, or outside the tables that they index.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from dsa_sched.artifact.whole_folder import Entry
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]
Dtype = Literal["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"]


Extent = Annotated[int, Field(ge=1, lt=1 << 40)]


class IndexBounds(Entry):
    """Bounds of elements that choose rows of a table: `count` elements, `step` apart, from linear place `first` on, are
    from `least` to `most`. Negative ones count from the end."""

    least: int
    most: int
    first: int = Field(ge=0)
    step: int = Field(ge=1)
    count: int = Field(ge=1)


class TensorEntry(Entry):
    """A tensor in the main memory. `shape` and `dtype` are those of the ONNX file; `layout[i]` is the ONNX axis that
    device axis i holds; the device array is dense and row-major in that order, `device_dtype`, at `address`."""

    name: str
    kind: Literal["input", "output", "constant", "value", "alias", "state", "probe"]
    shape: tuple[Extent, ...]
    dtype: Dtype
    layout: tuple[int, ...]
    device_dtype: Dtype
    address: int = Field(ge=0, lt=1 << 40)
    bytes: int = Field(ge=0, lt=1 << 40)
    state_of: str = ""
    """Of a `state`, the input whose next value it is and in whose place it lies: nobody has to copy it."""
    indices: tuple[IndexBounds, ...] = ()
    """Bounds of an input's elements that choose rows of tables."""

    @model_validator(mode="after")
    def _indices_inside(self) -> TensorEntry:
        if any(bounds.first + (bounds.count - 1) * bounds.step >= prod(self.shape) for bounds in self.indices):
            raise ValueError("indices must be elements of the tensor")
        return self

    @property
    def device_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.layout)


def to_device(entry: TensorEntry, array: Array) -> bytes:
    """One ONNX array as the bytes that the device expects. Raises ModelError for another shape or kind of numbers."""
    array = np.asarray(array)
    if tuple(array.shape) != entry.shape:
        raise ModelError(f"input {entry.name}", needs=f"shape {list(entry.shape)}", has=str(list(array.shape)))
    if array.dtype.kind not in "fiub":
        raise ModelError(f"input {entry.name}", needs=f"numbers ({entry.dtype})", has=str(array.dtype))
    if entry.device_dtype in ("int32", "int64"):
        _require_integers(entry, array)
    with np.errstate(over="ignore"):
        device = np.transpose(array, entry.layout).astype(entry.device_dtype)
    return np.ascontiguousarray(device).tobytes()


def _require_integers(entry: TensorEntry, array: Array) -> None:
    """Integers of the device's type, inside the tables where they choose rows. Raises ModelError for the first that
    is not."""
    who = f"input {entry.name}"
    if array.dtype.kind not in "iub":
        raise ModelError(who, needs=f"integers ({entry.dtype})", has=str(array.dtype))
    limits = np.iinfo(entry.device_dtype)
    flat = array.reshape(-1).astype(object if array.dtype == np.uint64 else np.int64)
    whole = ((limits.min, limits.max, slice(None), "integers"),)
    chosen = tuple(
        (b.least, b.most, slice(b.first, b.first + b.step * b.count, b.step), "indices") for b in entry.indices
    )
    for least, most, places, what in (*whole, *chosen):
        outside = (flat[places] < least) | (flat[places] > most)
        if not outside.any():
            continue
        place = np.arange(flat.size)[places][int(np.argmax(outside))]
        at = [int(i) for i in np.unravel_index(place, array.shape)]
        raise ModelError(
            who,
            needs=f"{what} from {least} to {most}",
            has=f"{flat[place]} at {at}",
            change="give indices of rows of the table; negative ones count from its end" if what == "indices" else "",
        )


def from_device(entry: TensorEntry, data: bytes) -> Array:
    """Device bytes as an array in ONNX layout and dtype."""
    device = np.frombuffer(data, entry.device_dtype).reshape(entry.device_shape)
    inverse = tuple(int(i) for i in np.argsort(entry.layout)) if entry.layout else ()
    return np.transpose(device, inverse).astype(entry.dtype, order="C")
