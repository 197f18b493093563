"""Results of layers in exact arithmetic, and the allowed distance of a GPU's stored fp16 values: the target's
judgement.

The reference shares nothing with the kernels: operators are evaluated from their attributes, in float64.
"""

from codegen.cutlass.reference.evaluated import Evaluated
from codegen.cutlass.reference.layer import KINDS, REFERENCE, LayerReference

__all__ = ["JUDGEMENT", "KINDS", "REFERENCE", "Evaluated", "LayerReference", "emulate", "evaluate"]

JUDGEMENT = REFERENCE.judgement
evaluate, emulate = REFERENCE.evaluate, REFERENCE.emulate
