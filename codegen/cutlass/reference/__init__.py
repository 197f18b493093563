"""What layers compute in exact arithmetic, and how far a GPU's stored halves may be from it: the target's judgement.

Shares nothing with kernels: operators are evaluated from their attributes, in float64.
"""

from codegen.cutlass.reference.evaluated import Evaluated
from codegen.cutlass.reference.layer import KINDS, REFERENCE, LayerReference

__all__ = ["JUDGEMENT", "KINDS", "REFERENCE", "Evaluated", "LayerReference", "emulate", "evaluate"]

JUDGEMENT = REFERENCE.judgement
evaluate, emulate = REFERENCE.evaluate, REFERENCE.emulate
