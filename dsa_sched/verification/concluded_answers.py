"""Results that the file makes of numbers that a run left: integers and truth values that leave the network.

stored logits --the file's nodes after them, in onnxruntime--> next words
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend import Model
from dsa_sched.frontend.network.refusals import node_reads
from dsa_sched.verification.evidence import Dump, Feed
from dsa_sched.verification.onnx_reference import OnnxReference

Array = npt.NDArray[np.generic]


def answers_of_stored(model: Model, dump: Dump, feed: Feed) -> dict[str, Array]:
    """Answers by the name of the concluded output. `feed` has the inputs of the network."""
    graph = model.graph
    answers = [name for op in graph.concluded for name in op.outputs if name in graph.answers]
    if not answers:
        return {}
    numbers: dict[str, Array] = {}
    for op in graph.concluded:
        for own, value in op.attributes:
            if own == "of":
                tensor = graph.by_name[op.inputs[0]]
                stored = np.frombuffer(dump[op.inputs[0]], tensor.dtype).reshape(tensor.source_shape)
                numbers[str(value)] = stored.astype(tensor.source_dtype)
    part = _behind(model.source, numbers, answers)
    given = {item.name: np.asarray(numbers.get(item.name, feed.get(item.name))) for item in part.graph.input}
    found = OnnxReference(part).values(given)
    return {name: found[name] for name in answers}


def _behind(source: onnx.ModelProto, numbers: Feed, answers: list[str]) -> onnx.ModelProto:
    """The nodes from these numbers, and from inputs, to these outputs."""
    needed, kept = set(answers), []
    for node in reversed(source.graph.node):
        if needed.intersection(node.output) and not numbers.keys() & set(node.output):
            needed.update(node_reads(node))
            kept.append(node)
    part = onnx.ModelProto()
    part.CopyFrom(source)
    for field in (part.graph.node, part.graph.output, part.graph.input):
        del field[:]
    part.graph.node.extend(reversed(kept))
    part.graph.output.extend(item for item in source.graph.output if item.name in answers)
    part.graph.input.extend(item for item in source.graph.input if item.name in needed and item.name not in numbers)
    part.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in numbers.items()
    )
    return part
