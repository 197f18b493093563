"""One node test through the compiler and the simulator: what came of it, in one word and a reason.

    NodeCase --bind, compile for stcp920, run poisoned--> values --compare--> Outcome(status, reason)

An output agrees when its L2 error is at most 1.5e-2 of the L2 norm of what is expected, or 2e-3 a value (the square
mean), whichever is larger; infinite and undefined values must stand in the same places. Expected values beyond fp16
count as infinite. Integers and truth values agree where all are the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from dsa_sched.frontend.network.refusals import Unsupported
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, UserError, place_text
from partitioner.planners.levels import O0
from tests.onnx_backend.node_cases import NodeCase, bind, parameters

__all__ = ["RANKS", "Outcome", "Status", "judge"]

Array = npt.NDArray[np.generic]
Status = Literal["pass", "refused", "not applicable", "mismatch", "crash"]
RANKS: Mapping[str, int] = {"pass": 4, "refused": 2, "not applicable": 2, "mismatch": 1, "crash": 0}
"""What is better than what. To refuse is no worse than to be outside of what this compiler is for."""

RELATIVE, ABSOLUTE, FP16_LARGEST = 1.5e-2, 2e-3, 65504.0
FLOATS = ("float16", "float32", "float64")
RESULTS = (*FLOATS, "bool", "int32", "int64")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason` is a short text without numbers that depend on the machine; of a pass, the inputs bound as constants."""

    status: Status
    reason: str = ""


def judge(case: NodeCase, chip: Chip, folder: Path) -> Outcome:
    """The outcome of one case; never raises for what the compiler does."""
    if reason := _foreign(case):
        return Outcome("not applicable", reason)
    first = _attempt(case, parameters(case, every=False), chip, folder)
    everything = parameters(case, every=True)
    if first.status != "refused" or everything == parameters(case, every=False):
        return first
    second = _attempt(case, everything, chip, folder)
    return first if second.status == "refused" else second


def _foreign(case: NodeCase) -> str:
    """Why a case is not for a compiler of floating-point networks, or nothing."""
    domains = {item.domain for item in case.model.opset_import} - {"", "ai.onnx"}
    if domains:
        return f"domain {min(domains)}"
    if any(value is None for value in (*case.inputs.values(), *case.expected.values())):
        return "values that are no arrays of numbers"
    dtypes = {str(value.dtype) for value in case.expected.values() if value is not None}
    if other := dtypes - set(RESULTS):
        return f"{min(other)} results"
    floating = [name for name, value in case.inputs.items() if value is not None and value.dtype.kind not in "biu"]
    if not floating:
        return "no floating-point input"
    for name in floating:
        value = case.inputs[name]
        if value is not None and str(value.dtype) not in FLOATS:
            return f"{value.dtype} input"
    if any(value is not None and value.size == 0 for value in (*case.inputs.values(), *case.expected.values())):
        return "empty tensors"
    return ""


def _attempt(case: NodeCase, constants: tuple[str, ...], chip: Chip, folder: Path) -> Outcome:
    path = folder / "model.onnx"
    try:
        model = bind(case, constants)
        path.write_bytes(model.SerializeToString())
        shapes = tuple((item.name, case.inputs[item.name]) for item in _open(model))
        options = CompileOptions(O0(), shapes=tuple((name, value.shape) for name, value in shapes if value is not None))
        artifact = compile_model(path, chip, options).artifact
    except UserError as error:
        return Outcome("refused", _reason(error))
    except Exception as error:
        return Outcome("crash", _crash(error))
    inputs = {name: value for name, value in case.inputs.items() if name not in constants and value is not None}
    try:
        results = artifact.run(inputs)
    except Exception as error:
        return Outcome("crash", _crash(error))
    wrong = _all_wrong(case.expected, results)
    if wrong and _beyond_half(case):
        return Outcome("not applicable", "means something else when its inputs are rounded to fp16")
    if wrong:
        return Outcome("mismatch", wrong[0])
    return Outcome("pass", f"constant {' '.join(constants)}" if constants else "")


def _all_wrong(expected: Mapping[str, Array | None], results: Mapping[str, Array]) -> list[str]:
    return [text for name, value in expected.items() if value is not None for text in _wrong(results[name], value)]


def _beyond_half(case: NodeCase) -> bool:
    """Whether ONNX's own reference, given the inputs rounded to fp16, gives something else as well."""
    exact = {name: value for name, value in case.inputs.items() if value is not None}
    return bool(_all_wrong(_reference(case, exact), _reference(case, {n: _halved(v) for n, v in exact.items()})))


def _reference(case: NodeCase, inputs: Mapping[str, Array]) -> dict[str, Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(case.model).run(None, dict(inputs))
    assert isinstance(results, list)
    return {name: np.asarray(value) for name, value in zip(case.expected, results, strict=True)}


def _halved(value: Array) -> Array:
    return value.astype(np.float16).astype(value.dtype) if value.dtype.kind == "f" else value


def _open(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs whose dimensions the case leaves open."""
    return [
        item
        for item in model.graph.input
        if not all(dim.HasField("dim_value") for dim in item.type.tensor_type.shape.dim)
    ]


def _wrong(got: Array, wanted: Array) -> list[str]:
    """Nothing, or how a result differs."""
    if got.shape != wanted.shape:
        return [f"shape {got.shape} instead of {wanted.shape}"]
    if wanted.dtype.kind != "f":
        same = got.dtype == wanted.dtype and np.array_equal(got, wanted)
        return [] if same else [f"other {wanted.dtype} values"]
    expected, result = wanted.astype(np.float64), got.astype(np.float64)
    expected = np.where(np.abs(expected) > FP16_LARGEST, np.copysign(np.inf, expected), expected)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(result)) or not np.array_equal(
        expected[~finite], result[~finite], equal_nan=True
    ):
        return ["other infinite or undefined values"]
    error = float(np.linalg.norm(result[finite] - expected[finite]))
    bound = max(RELATIVE * float(np.linalg.norm(expected[finite])), ABSOLUTE * float(np.sqrt(finite.sum())))
    return [] if error <= bound else [f"error {error / max(float(np.linalg.norm(expected[finite])), 1e-9):.2g}"]


def _reason(error: UserError) -> str:
    """The first refused operator and why; what varies from case to case is left out."""
    if isinstance(error, DoesNotFit):
        return f"does not fit: {place_text(error.infeasible)}"
    if isinstance(error, Unsupported):
        return _shortened("; ".join(sorted({f"{node.op_type}: {node.reason}" for node in error.refused})[:2]))
    return _shortened(" / ".join(part for part in (error.needs, error.has) if part) or str(error).splitlines()[0])


def _shortened(text: str) -> str:
    return text.replace("\n", " ")[:110]


def _crash(error: Exception) -> str:
    return _shortened(f"{type(error).__name__}: {error}")
