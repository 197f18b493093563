"""The target as planner and lowering see it: the template of each operator, and the movement of data.

`TEMPLATES` has one row per operator kind; a template is one file under `templates/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import cleandoc
from math import lcm, prod

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.instructions.arithmetic import FP16, INT8, TRANSFER_UNIT_BYTES, arithmetic_of
from codegen.neuralscale.instructions.depthwise_forms import is_depthwise
from codegen.neuralscale.instructions.reductions import reduction_runs
from codegen.neuralscale.kernels.integer_types import has_integers, types_problem
from codegen.neuralscale.kernels.preparation import looked_up_rows, preparation_instructions, refused_preparation
from codegen.neuralscale.kernels.tables import CURVED, TABLED, no_table, pays, table_of
from codegen.neuralscale.kernels.transfers import copy_instructions
from codegen.neuralscale.kernels.weight_packing import weight_packing
from codegen.neuralscale.templates.attention import WIDEST_HEAD, AttentionTemplate
from codegen.neuralscale.templates.attention_shape import PIXELS
from codegen.neuralscale.templates.broadcast import same_shape
from codegen.neuralscale.templates.convolution import MAX_FIELD, ConvolutionTemplate
from codegen.neuralscale.templates.curves import CURVES
from codegen.neuralscale.templates.depthwise import DepthwiseTemplate
from codegen.neuralscale.templates.elementwise import BINARY, CONVERTING, UNARY
from codegen.neuralscale.templates.lrn import LrnTemplate
from codegen.neuralscale.templates.matmul import MatmulTemplate
from codegen.neuralscale.templates.normalise import NormaliseTemplate
from codegen.neuralscale.templates.pooling import PoolingTemplate
from codegen.neuralscale.templates.rearrange import ConcatTemplate, RearrangeTemplate
from codegen.neuralscale.templates.reduction import ReductionTemplate, ScalingTemplate
from codegen.neuralscale.templates.resize import ResizeTemplate
from codegen.neuralscale.templates.softmax import SoftmaxTemplate
from codegen.neuralscale.templates.template import PointwiseTemplate, Template
from codegen.neuralscale.templates.tile import Tile
from hw_models.chip import Chip
from isched.program.program import Instr
from isched.program.target import DENSE
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import TileWork, WeightPacking, WeightUse
from partitioner.ir.wants import Wants, floats_as

TEMPLATES: Mapping[str, Template] = {
    "conv": ConvolutionTemplate(),
    "matmul": MatmulTemplate(),
    "max_pool": PoolingTemplate(),
    "average_pool": PoolingTemplate(),
    "softmax": SoftmaxTemplate(),
    "attend": AttentionTemplate(),
    "normalise": NormaliseTemplate(),
    "concat": ConcatTemplate(),
    **{kind: RearrangeTemplate() for kind in ("transpose", "slice", "pad", "take")},
    **{kind: ReductionTemplate() for kind in ("reduce_sum", "reduce_mean", "reduce_max")},
    **{kind: ScalingTemplate() for kind in ("reduce_nearest", "reduce_power")},
    "lrn": LrnTemplate(),
    "resize": ResizeTemplate(),
    **{kind: PointwiseTemplate() for kind in sorted({*UNARY, *CURVES, *BINARY, *CONVERTING, "lookup", "scale_shift"})},
}

WANTS = Wants(
    floats_as(FP16.dtype),
    "channels_last",
    frozenset({"Gelu", "Mish", "Swish", "Elu", "Selu", "Celu"}),
    windows="images",
    words=True,
    in_place=True,
    norms_of_lines=True,
    attention_width=WIDEST_HEAD,
    attention_rows=PIXELS,
    full_operand=True,
    longest_window=MAX_FIELD,
    int8=True,
)
"""Forms of operators that the templates want: fp16, along channels, windows over images. Norms other than along lines
are composed of other operators."""

NO_TEMPLATE = {
    "gather": "rows are looked up before all layers: by constants, or by what is computed of integer inputs alone"
}
"""Reasons why there is no template, by the kind of operator."""

DEPTHWISE = DepthwiseTemplate()


def template_of(graph: Graph, op: Op) -> Template:
    """The template that computes an operator."""
    return DEPTHWISE if is_depthwise(graph, op) else TEMPLATES[op.kind]


@dataclass(frozen=True, slots=True)
class NeuralScaleKernels:
    """Planning and lowering for the NeuralScale NPU v1, with the protocols of partitioner and isched."""

    name: str = "neuralscale-v1"
    barrier: str = "sync"
    wants: Wants = WANTS

    copy = staticmethod(copy_instructions)
    prepare = staticmethod(preparation_instructions)
    look_up = staticmethod(looked_up_rows)
    refuses_prepared = staticmethod(refused_preparation)

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        """None, or the sentence that the user reads next to the operator's name."""
        del constants
        if op.is_view:
            return None
        if op.kind in TABLED:
            return f"{op.kind} needs {no_table(chip)}"
        if op.kind not in TEMPLATES:
            return NO_TEMPLATE.get(op.kind, f"no template computes {op.kind} on {self.name}")
        return types_problem(graph, op, chip) or template_of(graph, op).accepts(graph, op, chip)

    def table_for(self, graph: Graph, op: Op, chip: Chip) -> npt.NDArray[np.generic] | None:
        """The table of the operator's function, one entry per fp16 number, where the chip looks it up: for functions
        without a formula, and for those that take fewer cycles that way for an item of this size."""
        if op.kind not in TABLED and op.kind not in CURVED:
            return None
        elements = prod(graph.by_name[op.outputs[0]].shape[1:])
        return table_of(op) if not no_table(chip) and pays(op, elements, chip) else None

    def product_runs(self, graph: Graph, op: Op) -> tuple[tuple[int, int], ...]:
        """Runs of a product's reduction, as the template cuts them."""
        return reduction_runs(graph.by_name[op.inputs[0]].shape[-1], 1, arithmetic_of(graph, op).exact)

    def packs_weights(self, use: WeightUse, chip: Chip) -> WeightPacking:
        return weight_packing(use, chip)

    def operators(self) -> tuple[tuple[str, str], ...]:
        """Each kind with its template's description of itself."""
        return tuple(
            (kind, cleandoc(template.__doc__ or "").replace("\n", " ")) for kind, template in TEMPLATES.items()
        )

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        """Epilogues run in place on the tile, so `operand` must be the one of full shape. Next to a table there is half
        the room for weights, which two blocks of a depthwise convolution may need; two tables leave none."""
        if not same_shape(graph, operand, op.outputs[0]):
            return f"{operand} is broadcast by {op.name}"
        if graph.by_name[operand].dtype == INT8.operands:
            return f"{operand} is {INT8.operands}, in which no layer goes on"
        if op.kind == "lookup" and any(other.kind == "lookup" for other in layer):
            return f"{layer[0].name} has a table already, and a second one leaves no room for weights"
        if op.kind == "lookup" and is_depthwise(graph, layer[0]):
            return f"a table next to the weights of {layer[0].name} leaves them too little room"
        return None

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        """That of the anchor's template. Layers that read or write int8 are cut where 16-bit units begin."""
        anchor = layer.anchor(graph)
        units = template_of(graph, anchor).granularity(graph, anchor)
        if not units or not has_integers(graph, layer):
            return units
        return (*units[:-1], lcm(units[-1], TRANSFER_UNIT_BYTES))

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        anchor = layer.anchor(graph)
        return template_of(graph, anchor).whole_axes(graph, anchor)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        template = template_of(graph, layer.anchor(graph))
        return template.work(graph, layer, box, chip)

    def lower(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        template = template_of(graph, layer.anchor(graph))
        return template.lower(Tile(graph, constants, layer, box, work, offsets_bytes, chip, pitches_bytes))

    def broadcast(self, instr: Instr, cores: tuple[int, ...]) -> Instr:
        """`pld` for `mov.l1.llb`: the cores of its map meet, then one read of the LLB serves all of them."""
        if instr.opcode != "mov.l1.llb":
            return instr
        core_map = sum(1 << core for core in cores)
        return replace(instr, opcode="pld", operands=(*instr.operands, ("mte_coremap", core_map)), meets=core_map)

    def synchronise(self, source: str) -> Instr:
        return Instr("sync", "sync", source=source)
