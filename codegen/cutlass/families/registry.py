"""All families of kernels, and the family of each template.

layers --every family--> candidates     a plan's kernel --its template--> family --> launches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from codegen.cutlass.families.attention.attention import ATTENTION
from codegen.cutlass.families.fused.convolution_chain import CONVOLUTION_CHAIN
from codegen.cutlass.families.fused.convolution_pair import CONVOLUTION_PAIR
from codegen.cutlass.families.fused.inverted_residual import INVERTED_RESIDUAL
from codegen.cutlass.families.fused.product_pair import PRODUCT_PAIR
from codegen.cutlass.families.lines.lines import LINE_FAMILY
from codegen.cutlass.families.maps.concat import CONCAT
from codegen.cutlass.families.maps.depthwise import DEPTHWISE
from codegen.cutlass.families.maps.direct_convolution import DIRECT_CONVOLUTION
from codegen.cutlass.families.maps.gather import GATHER
from codegen.cutlass.families.maps.lrn import LRN
from codegen.cutlass.families.maps.maps import MapFamily, no_anchor
from codegen.cutlass.families.maps.movement import MOVEMENT
from codegen.cutlass.families.maps.resize import LINEAR_RESIZE
from codegen.cutlass.families.maps.transposes import TRANSPOSE
from codegen.cutlass.families.maps.windows import WINDOWS
from codegen.cutlass.families.matrix.convolution import CONVOLUTION
from codegen.cutlass.families.matrix.fallback_products import FALLBACK_PRODUCT
from codegen.cutlass.families.matrix.gemm import GEMM
from codegen.cutlass.families.wgmma.first_convolution import FIRST_CONVOLUTION
from codegen.cutlass.families.wgmma.norm_product import NORM_PRODUCT
from codegen.cutlass.families.wgmma.split_layer import SPLIT_LAYER
from codegen.cutlass.families.wgmma.wgmma_layer import WGMMA_LAYER
from codegen.cutlass.kernel.expressions import BINARY, UNARY
from codegen.cutlass.kernel.family import Family, KernelWork
from codegen.cutlass.kernel.floors import taps, value_bytes, window_bytes, with_cache_traffic
from hw_models.chip import Chip
from partitioner.ir.kernels import Kernel, with_speed

ELEMENTWISE = dict.fromkeys((*UNARY, *BINARY, "scale_shift"), no_anchor)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            CONVOLUTION,
            CONVOLUTION_CHAIN,
            INVERTED_RESIDUAL,
            CONVOLUTION_PAIR,
            PRODUCT_PAIR,
            GEMM,
            WGMMA_LAYER,
            SPLIT_LAYER,
            NORM_PRODUCT,
            FIRST_CONVOLUTION,
            FALLBACK_PRODUCT,
            ATTENTION,
            LINE_FAMILY,
            MapFamily("pointwise", ELEMENTWISE, elementwise=True),
            MapFamily("window", WINDOWS, moved=window_bytes, operations=taps),
            DEPTHWISE,
            DIRECT_CONVOLUTION,
            LRN,
            CONCAT,
            GATHER,
            TRANSPOSE,
            MOVEMENT,
            LINEAR_RESIZE,
        )
    }
)
"""Families by template."""


def offered(work: KernelWork) -> tuple[Kernel, ...]:
    """All kernels that the families offer for these layers and that fit a block of the chip, with the bytes of each
    value that the main memory gives and takes, and the rates that the chip file has."""
    fitting = (kernel for family in FAMILIES.values() for kernel in family.offers(work) if _fits(kernel, work.chip))
    return tuple(_complete(kernel, work) for kernel in fitting)


def _complete(kernel: Kernel, work: KernelWork) -> Kernel:
    values = value_bytes(work, kernel.floors)
    floors = with_cache_traffic(kernel.floors, work, sum(size for _, size in values))
    return with_speed(replace(kernel, values=values, floors=floors), work.chip)


def _fits(kernel: Kernel, chip: Chip) -> bool:
    occupied = dict(kernel.resources)
    threads, shared = occupied["threads"], occupied.get("shared_bytes", 0)
    return threads <= chip.simt.threads_per_block and shared <= chip.simt.shared_bytes_per_block
