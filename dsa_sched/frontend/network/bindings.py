"""Inputs that the user makes constants: `--bind sr=16000` turns the input `sr` into an initializer of that value.

An input of integers or truth values often chooses what a network computes (a sampling rate, a length): as a constant it
is folded, and branches that depend on it are chosen. The compiled network does not have the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.network import Array
from dsa_sched.frontend.network.shapes import initializer_names
from hw_models.errors import ModelError

Bindings = Mapping[str, tuple[int | float, ...]]
"""The elements of an input by its name."""


def bind_inputs(model: onnx.ModelProto, bindings: Bindings) -> None:
    """Turn these inputs of `model` into initializers. Raises ModelError for a name that no input has, for elements that
    are not of its type, and where they are not as many as it has."""
    constants = initializer_names(model)
    inputs = {item.name: item for item in model.graph.input if item.name not in constants}
    for name, numbers in bindings.items():
        if name not in inputs:
            raise ModelError(
                f"--bind {name}", needs="the name of an input of the model", has=f"inputs {', '.join(inputs) or 'none'}"
            )
        tensor = inputs[name].type.tensor_type
        dims = tuple(int(dim.dim_value) if dim.dim_value > 0 else 0 for dim in tensor.shape.dim)
        array = _typed(name, numbers, tensor.elem_type)
        model.graph.initializer.append(numpy_helper.from_array(array.reshape(_shape(name, dims, array.size)), name))
    kept = [item for item in model.graph.input if item.name not in bindings]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _typed(name: str, numbers: tuple[int | float, ...], elem_type: int) -> Array:
    try:
        dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    except KeyError:
        dtype = np.dtype(object)
    said = f"--bind {name}={','.join(f'{number:g}' for number in numbers)}"
    if dtype.kind not in "biuf":
        raise ModelError(said, needs="an input of numbers or truth values", has=str(dtype))
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        wrong = [n for n in numbers if not float(n).is_integer() or not bounds.min <= n <= bounds.max]
    else:
        wrong = [n for n in numbers if dtype.kind == "b" and n not in (0, 1)]
    if wrong:
        raise ModelError(said, needs=f"elements of {dtype}, the type of the input", has=f"{wrong[0]:g}")
    return np.array([int(n) if dtype.kind in "iub" else n for n in numbers]).astype(dtype)


def _shape(name: str, dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The input's own, with the extent that is left where one is open."""
    fixed = prod(extent for extent in dims if extent)
    if dims.count(0) <= 1 and count % fixed == 0 and (0 in dims or count == fixed):
        return tuple(extent or count // fixed for extent in dims)
    shape = ", ".join(str(extent) if extent else "?" for extent in dims)
    plural = "s" if count > 1 else ""
    raise ModelError(f"--bind {name}", needs=f"the elements of [{shape}], in order", has=f"{count} element{plural}")
