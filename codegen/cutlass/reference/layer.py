"""A layer at sampled positions: its anchor, then its epilogue in order, with no rounding to a stored type in between.

Sampled  -->  numbers [S] in exact arithmetic, error [S] of a GPU's fp32 values before it stores them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from codegen.cutlass.reference.attention import attend
from codegen.cutlass.reference.elementwise import ELEMENTWISE
from codegen.cutlass.reference.evaluated import Evaluated
from codegen.cutlass.reference.lines import layer_norm, rms_norm, softmax
from codegen.cutlass.reference.movement import concat, gather, moved, pad, slice_, take, transpose, view
from codegen.cutlass.reference.operands import Rule, RuleInputs
from codegen.cutlass.reference.reductions import average_pool, convolution, lrn, matrix_product, max_pool, reduction
from codegen.cutlass.reference.resize import resize
from codegen.judgement import Array, Bound, Doubles, Sampled, rounded_sum_error
from hw_models.errors import TargetError

RULES: Mapping[str, Rule] = {
    **ELEMENTWISE,
    "conv": convolution,
    "matmul": matrix_product,
    "max_pool": max_pool,
    "average_pool": average_pool,
    "lrn": lrn,
    "softmax": softmax,
    "attend": attend,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_nearest", "reduce_power"), reduction),
    "resize": resize,
    "transpose": moved(transpose),
    "slice": moved(slice_),
    "take": moved(take),
    "gather": moved(gather),
    "pad": pad,
    "view": view,
    "concat": concat,
}

KINDS = frozenset(RULES)
"""Kinds of operators that the reference evaluates."""


@dataclass(frozen=True, slots=True)
class LayerReference:
    """Reference of layers whose feature maps have their channels last. `outputs_first` says that weights of
    convolutions are (Cout, kernel..., Cin) or, grouped, (G, Cout / G, kernel..., Cin / G); otherwise Cout is the last
    axis."""

    outputs_first: bool = True

    def evaluate(self, sampled: Sampled) -> Evaluated:
        """Evaluate a layer at sampled positions. Raises TargetError for an operator of a kind that is not in KINDS."""
        running: tuple[str, Evaluated] | None = None
        for name in sampled.layer.ops:
            op = sampled.graph.op_by_name[name]
            if op.kind not in RULES:
                raise TargetError(f"operator {name}", needs="a kind that the GPU's reference evaluates", has=op.kind)
            with np.errstate(all="ignore"):
                running = (op.outputs[0], RULES[op.kind](RuleInputs(sampled, op, running, self.outputs_first)))
        assert running is not None  # a layer has an anchor
        return running[1]

    def allowed(self, sampled: Sampled) -> Doubles:
        """Largest distance of a stored fp16 value from the number: the error before it is stored, and half a step of
        fp16 at the largest possible magnitude. Infinities and NaN must be stored as such where they are certain."""
        found = self.evaluate(sampled)
        stored = rounded_sum_error(found.sizes, np.zeros(len(found.sizes)), 0, stored="float16", summed="float32")
        return np.where(np.isfinite(found.numbers), stored + found.error, found.error)

    @property
    def judgement(self) -> Bound:
        return Bound(self.allowed)

    def emulate(self, sampled: Sampled) -> Array:
        """The numbers, as `codegen.target.AnyTarget.emulate` wants them. Raises TargetError as `evaluate` does."""

        def exact(name: str) -> Doubles:
            return np.broadcast_to(0.0, sampled.graph.by_name[name].shape)

        return self.evaluate(replace(sampled, errors=exact)).numbers


REFERENCE = LayerReference()
"""Reference for the layout of weights that kernels of this target read."""
