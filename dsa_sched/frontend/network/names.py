"""Names of a file that a rewrite could also make: `x::slice` next to `x`. All of ours begin with a file's name and
`::`.

Inner values, constants and nodes of the file get other names. Inputs and outputs keep theirs: the value whose name they
begin with is renamed, unless it is an input or output itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from dsa_sched.frontend.network.network import graphs_of
from hw_models.errors import ModelError

SEPARATOR = "::"


def keep_names_apart(model: onnx.ModelProto, who: str) -> None:
    """Rename values of `model` that have such a name. Raises ModelError if an input or output begins with another."""
    graph = model.graph
    constants = dict.fromkeys(tensor.name for tensor in graph.initializer)
    open_inputs = (item.name for item in graph.input if item.name not in constants)
    fixed = dict.fromkeys([*open_inputs, *(item.name for item in graph.output)])
    made = dict.fromkeys(name for node in graph.node for name in node.output)
    nodes = dict.fromkeys(node.name for node in graph.node)
    taken = {*constants, *fixed, *made, *nodes}
    stems = _Stems(taken)
    inner = {**constants, **made, **nodes}
    changed = dict.fromkeys(name for name in inner if name not in fixed and stems.of(name))
    for name in fixed:
        for stem in stems.of(name):
            if stem in fixed:
                raise ModelError(
                    f"{who}: {name}",
                    needs=f"inputs and outputs of which none has the name of another one, {SEPARATOR!r} and more",
                    has=f"one named {stem}; the compiler may give the longer name to a value of its own",
                    change="rename one of them",
                )
            changed[stem] = None
    if changed:
        _rename(graph, {name: _renamed(name, taken) for name in changed})


class _Stems:
    """Names that others begin with, with the separator after them. Only prefixes as long as some name are looked
    at, so that a name of many separators takes no longer than others.
    """

    def __init__(self, names: set[str]) -> None:
        self.names = frozenset(names - {""})
        self.lengths = sorted({len(name) for name in self.names})

    def of(self, name: str) -> list[str]:
        if SEPARATOR not in name:
            return []
        places = (length for length in self.lengths if name.startswith(SEPARATOR, length))
        return [name[:length] for length in places if name[:length] in self.names]


def _renamed(name: str, taken: set[str]) -> str:
    """A free name without the separator, which is taken then."""
    other = name.replace(SEPARATOR, ":")
    while other in taken:  # as it is where it has none: those that begin with it are taken as inputs or outputs
        other += "_"
    taken.add(other)
    return other


def _rename(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    for item in (*graph.input, *graph.initializer, *graph.value_info):
        item.name = renamed.get(item.name, item.name)
    for node in graph.node:
        node.name = renamed.get(node.name, node.name)
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name in renamed:
                    names[place] = renamed[name]
        for inner in graphs_of(node):
            rename_captured(inner, renamed)


def rename_captured(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    """Rename the values that a graph inside a node reads from the graphs around it. A value that it gives out unchanged
    comes from a node of its own.
    """
    own = {name for node in graph.node for name in node.output}
    own |= {item.name for item in (*graph.input, *graph.initializer)}
    around = {old: new for old, new in renamed.items() if old not in own}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = around.get(name, name)
        for inner in graphs_of(node):
            rename_captured(inner, around)
    for name in sorted({item.name for item in graph.output} & {*around}):
        graph.node.append(helper.make_node("Identity", [around[name]], [name], name=f"{name}::copy"))
