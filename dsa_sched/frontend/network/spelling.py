"""Operators of a model file spelled out as others when it is read: by definition, both are the same.

    com.microsoft: SkipSimplifiedLayerNormalization(x, skip, gain)  -->  Add(x, skip), RMSNormalization(gain)

Everything after reads one spelling. Rules write standard ONNX; where that needs a newer operator set than the model's,
the model is brought to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper, version_converter

from dsa_sched.frontend.network.network import opset_of, replace_nodes

Attributes = dict[str, Any]

MICROSOFT = "com.microsoft"
UNCHANGED_SINCE = 18
"""Operator set from which on later ones only add operators and types, but for the operators of CHANGED."""
CHANGED = frozenset(["GroupNormalization"])


@dataclass
class Spelling:
    """The nodes that replace one; new names begin with the node's."""

    model: onnx.ModelProto
    node: onnx.NodeProto
    constants: Mapping[str, onnx.TensorProto]
    taken: set[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)

    def fresh(self, suffix: str) -> str:
        name, count = f"{self.node.name}_{suffix}", 1
        while name in self.taken:
            count += 1
            name = f"{self.node.name}_{suffix}{count}"
        self.taken.add(name)
        return name

    def input(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""

    def output(self, position: int) -> str:
        return self.node.output[position] if position < len(self.node.output) else ""

    def attributes(self, *dropped: str) -> Attributes:
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute if a.name not in dropped}

    def array(self, name: str) -> npt.NDArray[np.generic] | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def constant(self, array: npt.NDArray[np.generic], suffix: str = "constant") -> str:
        name = self.fresh(suffix)
        self.stored.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def integers(self, *numbers: int) -> str:
        """A constant vector."""
        return self.constant(np.array(numbers, np.int64))

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        attributes: Attributes | None = None,
        output: str = "",
        *,
        own: bool = False,
        further: Sequence[str] = (),
    ) -> str:
        """One more node; its first result. The node that is the operator's `own` work bears its name."""
        output = output or self.fresh(op_type.lower())
        name = self.node.name if own else self.fresh("node")
        outputs = [output, *further]
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, name=name, **(attributes or {})))
        return output


@dataclass(frozen=True, slots=True)
class Spelled:
    """How an operator is spelled out: `write` returns whether it could, the operator has at least so many inputs, and
    what is written needs an operator set."""

    write: Callable[[Spelling], bool]
    least_inputs: int = 1
    opset: int = 1


Rules = Mapping[tuple[str, str], Spelled]
"""By domain and operator type."""


def spell_out(model: onnx.ModelProto, rules: Rules) -> None:
    """Exchange the operators of the rules in `model`, whose nodes have names, wherever a rule can. An operator that has
    not all its operands and a result is left to be refused."""
    found = [rules.get((_domain(node), node.op_type)) for node in model.graph.node]
    wanted = max((rule.opset for rule in found if rule is not None), default=0)
    if not wanted:
        return
    if wanted > opset_of(model) and not _raised(model, wanted, [n for n, rule in enumerate(found) if rule is not None]):
        return
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants |= {node.output[0]: a.t for node in model.graph.node if node.op_type == "Constant"
                  for a in node.attribute if a.name == "value"}  # fmt: skip
    taken = {node.name for node in model.graph.node} | {name for node in model.graph.node for name in node.output}
    taken |= {item.name for item in (*model.graph.input, *model.graph.initializer)}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        rule, spelling = rules.get((_domain(node), node.op_type)), Spelling(model, node, constants, taken)
        complete = rule is not None and len(node.input) >= rule.least_inputs and node.output and node.output[0]
        if rule is not None and complete and rule.write(spelling):
            nodes += spelling.nodes
            model.graph.initializer.extend(spelling.stored)
        else:
            nodes.append(node)
    replace_nodes(model, nodes)
    _drop_unread_domain(model)


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _raised(model: onnx.ModelProto, opset: int, apart: Sequence[int]) -> bool:
    """Bring a model to an operator set; False where its operators cannot be. Nodes `apart` are no standard ones,
    whatever their domain says."""
    if opset_of(model) < UNCHANGED_SINCE or any(node.op_type in CHANGED for node in model.graph.node):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        if all(item.domain != MICROSOFT for item in other.opset_import):
            other.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
        for number in apart:
            other.graph.node[number].domain = MICROSOFT
        try:
            model.CopyFrom(version_converter.convert_version(other, opset))
        except Exception:  # the converter raises several unrelated classes; the operators are refused by name
            return False
    for item in model.opset_import:
        if item.domain in ("", "ai.onnx"):
            item.version = opset
    return True


def _drop_unread_domain(model: onnx.ModelProto) -> None:
    """A model without operators of onnxruntime's does not import their domain."""
    if all(node.domain != MICROSOFT for node in model.graph.node):
        imports = [helper.make_opsetid(i.domain, i.version) for i in model.opset_import if i.domain != MICROSOFT]
        del model.opset_import[:]
        model.opset_import.extend(imports)
