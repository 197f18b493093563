"""Random small groups of layers for property tests: windows, residuals, concats, resizes, softmaxes, products."""

from __future__ import annotations

from hypothesis import strategies as st

from partitioner.ir.access import Access, Index, Linear, Scaled
from partitioner.ir.graph import Axis, Graph
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.regions import Box, box_size, input_boxes, join
from tests.small_graphs import GraphBuilder

__all__ = ["Builder", "chained_boxes", "groups", "needed_layers"]


class Builder(GraphBuilder):
    """With a resize that reads a window around the scaled row and column."""

    def resize(self, x: str, numerator: int, denominator: int, reach: int = 0) -> str:
        """Output extent i * denominator // numerator (at least 1): a coordinate times numerator / denominator."""
        n, height, width, c = self.shape(x)
        extents = (n, max(1, height * denominator // numerator), max(1, width * denominator // numerator), c)
        domain = tuple(Axis(f"i{k}", extent) for k, extent in enumerate(extents))
        spatial: tuple[Index, ...] = tuple(Scaled(f"i{k}", numerator, denominator, 0, reach) for k in (1, 2))
        indices = (Linear((("i0", 1),)), *spatial, Linear((("i3", 1),)))
        return self._op(f"resize{len(self.ops)}", "resize", [x], domain, domain, [Access(x, indices)])


def needed_layers(graph: Graph, output: str) -> tuple[Layer, ...]:
    """The layers of a graph that `output` needs, its own one last."""
    layers = {layer.output: layer for layer in group_layers(graph)[0]}
    needed, queue = {output}, [output]
    while queue:
        for name in layers[queue.pop()].inputs(graph):
            if name in layers and name not in needed:
                needed.add(name)
                queue.append(name)
    return tuple(layer for layer in layers.values() if layer.output in needed)


def chained_boxes(graph: Graph, layers: tuple[Layer, ...], box: Box) -> dict[str, Box]:
    """What a box of the group's output needs of every value, operator by operator; the slow way."""
    boxes: dict[str, Box] = {layers[-1].output: box}
    for layer in reversed(layers):
        for name in reversed(layer.ops):
            op = graph.op_by_name[name]
            for read, needed in input_boxes(graph, op, {o: boxes[o] for o in op.outputs if o in boxes}).items():
                boxes[read] = join(boxes[read], needed) if read in boxes else needed
    empty = {name: tuple((0, 0) for _ in b) for name, b in boxes.items()}
    return {name: b if box_size(b) else empty[name] for name, b in boxes.items()}


@st.composite
def groups(draw: st.DrawFn, most_ops: int = 8) -> tuple[Graph, tuple[Layer, ...]]:
    """A graph and all layers that its output needs."""
    builder = Builder("random", seed=draw(st.integers(0, 3)))
    small = st.integers(1, 3)
    values = [builder.input("x", draw(small), draw(st.integers(4, 9)), draw(st.integers(4, 9)), draw(small))]
    if draw(st.booleans()):
        values.append(builder.input("y", *builder.shape("x")))
    for _ in range(draw(st.integers(2, most_ops))):
        kind = draw(st.sampled_from(["conv", "pool", "relu", "add", "concat", "resize", "softmax", "conv"]))
        x = draw(st.sampled_from(values[-3:]))
        shape = builder.shape(x)
        same = [value for value in values if builder.shape(value) == shape]
        match kind:
            case "conv" | "pool":
                kernel, stride, dilation = (draw(small), draw(small)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
                pads = (draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(small))
                if any(shape[k + 1] + pads[k] + pads[k + 2] <= dilation * (kernel[k] - 1) for k in (0, 1)):
                    continue
                if kind == "conv":
                    values.append(builder.conv(x, draw(small), kernel, stride, pads, dilation=dilation))
                else:
                    values.append(builder.pool("max_pool", x, kernel, stride, pads, dilation=dilation))
            case "relu":
                values.append(builder.elementwise("relu", x))
            case "add":
                values.append(builder.elementwise("add", x, draw(st.sampled_from(same))))
            case "concat":
                values.append(builder.concat(draw(st.integers(0, 3)), x, draw(st.sampled_from(same))))
            case "resize":
                values.append(
                    builder.resize(x, *draw(st.sampled_from([(1, 2), (2, 1), (2, 3)])), draw(st.integers(0, 1)))
                )
            case "softmax":
                values.append(builder.softmax(x, draw(st.integers(0, 3))))
    if len(values[-1:]) == 0 or values[-1] in builder.inputs:
        values.append(builder.elementwise("relu", values[-1]))
    graph, _ = builder.build(values[-1])
    return graph, needed_layers(graph, values[-1])
