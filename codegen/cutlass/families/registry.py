"""All families of kernels, and which of them computes what.

layers --every family--> candidates     a plan's kernel --its template--> family --> launches
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from codegen.cutlass.families.concat import CONCAT
from codegen.cutlass.families.convolution import CONVOLUTION
from codegen.cutlass.families.direct_convolution import DIRECT_CONVOLUTION
from codegen.cutlass.families.expressions import BINARY, UNARY
from codegen.cutlass.families.fallback_products import FALLBACK_PRODUCT
from codegen.cutlass.families.family import Family
from codegen.cutlass.families.gemm import GEMM
from codegen.cutlass.families.inverted_residual import INVERTED_RESIDUAL
from codegen.cutlass.families.lines import LINE_FAMILY
from codegen.cutlass.families.lrn import LRN
from codegen.cutlass.families.maps import MapFamily, no_anchor
from codegen.cutlass.families.movement import MOVEMENT
from codegen.cutlass.families.resize import LINEAR_RESIZE
from codegen.cutlass.families.transposes import TRANSPOSE
from codegen.cutlass.families.windows import WINDOWS, taps, window_bytes

__all__ = ["FAMILIES"]

ELEMENTWISE = dict.fromkeys((*UNARY, *BINARY, "scale_shift"), no_anchor)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            CONVOLUTION,
            INVERTED_RESIDUAL,
            GEMM,
            FALLBACK_PRODUCT,
            LINE_FAMILY,
            MapFamily("pointwise", ELEMENTWISE, elementwise=True),
            MapFamily("window", WINDOWS, moved=window_bytes, operations=taps),
            DIRECT_CONVOLUTION,
            LRN,
            CONCAT,
            TRANSPOSE,
            MOVEMENT,
            LINEAR_RESIZE,
        )
    }
)
"""By template."""
