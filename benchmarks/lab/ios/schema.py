"""Reading networks of the IOS repository's schema: JSON that may come from anywhere.

    JSON bytes --pydantic--> fields of the right kind and size --network_of--> Network, whose shapes agree

A value is [node, first channel, channel behind the last]; a term is a list of values that are added; the inputs of a
node are terms that are concatenated along the channels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from benchmarks.lab.ios.network import Kernel, Network, Operator, Slice, verify_network
from hw_models.errors import ModelError

__all__ = ["MAX_FILE_BYTES", "builtin_networks", "load_network", "parse_networks", "read_networks"]

FOLDER = Path(__file__).parent / "networks"

MAX_FILE_BYTES = 16 << 20

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./:-]{1,200}$")]
Size = Annotated[int, Field(ge=1, le=1 << 16)]
Rest = Annotated[int, Field(ge=0, le=1 << 16)]
Pair = tuple[Size, Size]
Shape = tuple[Size, Size, Size]
Term = Annotated[list[tuple[Name, Rest, Rest]], Field(min_length=1, max_length=256)]
Terms = Annotated[list[Term], Field(min_length=1, max_length=1024)]


class _Fields(BaseModel):
    """Fields that are not named here say nothing about the computation: names for people, schedules."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


class _Placeholder(_Fields):
    type: Literal["placeholder"]
    name: Name
    output_shape: Shape


class _Conv(_Fields):
    type: Literal["conv"]
    name: Name
    inputs: Terms
    out_channels: Size
    kernel: Pair
    stride: Pair
    padding: tuple[Rest, Rest]
    groups: Size
    act: Literal["relu", "identity"]
    output_shape: Shape


class _Pool(_Fields):
    type: Literal["pool"]
    name: Name
    inputs: Terms
    pool_type: Literal["max", "avg", "global_max", "global_avg"]
    kernel: Pair
    stride: Pair
    padding: tuple[Rest, Rest]
    output_shape: Shape


class _Plain(_Fields):
    type: Literal["identity", "relu"]
    name: Name
    inputs: Terms
    output_shape: Shape


_Single = Annotated[_Conv | _Pool | _Plain, Field(discriminator="type")]


class _Sequential(_Fields):
    type: Literal["sequential"]
    name: Name
    nodes: Annotated[list[_Single], Field(min_length=1, max_length=64)]
    output_shape: Shape


_Node = Annotated[_Conv | _Pool | _Plain | _Sequential, Field(discriminator="type")]


class _Block(_Fields):
    inner_nodes: Annotated[list[_Node], Field(max_length=10_000)]
    exit_node: _Node
    parts: Annotated[list[list[Name]], Field(max_length=10_000)] | None = None


class _Graph(_Fields):
    name: Name
    input: _Placeholder
    blocks: Annotated[list[_Block], Field(min_length=1, max_length=1000)]


_ONE = TypeAdapter(_Graph)
_SEVERAL = TypeAdapter(Annotated[dict[Name, _Graph], Field(max_length=100)])


def builtin_networks() -> tuple[str, ...]:
    """Names of the paper's networks."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


def load_network(name: str) -> Network:
    """One of the paper's networks. Raises ModelError."""
    if name not in builtin_networks():
        raise ModelError(f"network {name}", needs=f"one of {', '.join(builtin_networks())}")
    return next(iter(read_networks(FOLDER / f"{name}.json").values()))


def read_networks(path: Path) -> dict[str, Network]:
    """The networks of a file by name: one graph, or an object of graphs. Raises ModelError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(str(path), needs="a file that can be read", has=(error.strerror or "").lower()) from None
    return parse_networks(data, str(path))


def parse_networks(data: bytes, who: str) -> dict[str, Network]:
    """The same of the bytes of a file, `who` in errors. Raises ModelError."""
    if len(data) > MAX_FILE_BYTES:
        raise ModelError(who, needs=f"at most {MAX_FILE_BYTES} bytes", has="more")
    try:
        graphs = {graph.name: graph for graph in [_ONE.validate_json(data)]}
    except ValidationError as first:
        try:
            graphs = _SEVERAL.validate_json(data)
        except ValidationError as second:
            raise _error(who, min(first, second, key=ValidationError.error_count)) from None
    return {name: network_of(graph) for name, graph in graphs.items()}


def _error(who: str, error: ValidationError) -> ModelError:
    """The first thing that is wrong, and how many more are."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    field = ".".join(str(part)[:80] for part in details[0]["loc"]) or "the file"
    more = f" (and {len(details) - 1} more findings)" if len(details) > 1 else ""
    return ModelError(who, needs="a network of the IOS schema", has=f"{field}: {details[0]['msg'].lower()}{more}")


def network_of(graph: _Graph) -> Network:
    """Blocks as operators one after the other; `parts` are the hand-made parts, and else the blocks. Raises ModelError
    where names, shapes or parts do not fit together."""
    operators: list[Operator] = []
    parts: list[tuple[int, ...]] = []
    for block in graph.blocks:
        nodes = [*block.inner_nodes, block.exit_node]
        number = {node.name: len(operators) + place for place, node in enumerate(nodes)}
        operators += map(_operator, nodes)
        if unknown := [name for part in block.parts or () for name in part if name not in number]:
            raise ModelError(f"parts of {graph.name}", needs="nodes of their block", has=unknown[0])
        parts += [tuple(number[name] for name in part) for part in block.parts or [list(number)]]
    network = Network(graph.name, graph.input.name, graph.input.output_shape, tuple(operators), tuple(parts))
    verify_network(network)
    return network


def _operator(node: _Conv | _Pool | _Plain | _Sequential) -> Operator:
    inner = node.nodes if isinstance(node, _Sequential) else [node]
    return Operator(node.name, tuple(map(_kernel, inner)), node.output_shape)


def _kernel(node: _Conv | _Pool | _Plain) -> Kernel:
    terms = tuple(tuple(Slice(*value) for value in term) for term in node.inputs)
    match node:
        case _Conv():
            window = node.kernel, node.stride, node.padding
            return Kernel(node.name, "conv", terms, node.output_shape, *window, node.groups, node.act == "relu")
        case _Pool():
            return Kernel(node.name, node.pool_type, terms, node.output_shape, node.kernel, node.stride, node.padding)
        case _:
            return Kernel(node.name, node.type, terms, node.output_shape)
