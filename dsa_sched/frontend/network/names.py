"""Names of a file that a rewrite could make, too: `x::slice` beside `x`. All of ours begin with a name of the file
and `::`.

Inner values, constants and nodes of the file get other names; those of inputs and outputs are the user's to change.
"""

from __future__ import annotations

import onnx

from hw_models.errors import ModelError

__all__ = ["keep_names_apart"]

SEPARATOR = "::"


def keep_names_apart(model: onnx.ModelProto, who: str) -> None:
    """Rename, in `model`, what has such a name. Raises ModelError for inputs and outputs that have one."""
    graph = model.graph
    constants = dict.fromkeys(tensor.name for tensor in graph.initializer)
    fixed = dict.fromkeys(item.name for item in (*graph.input, *graph.output) if item.name not in constants)
    made = dict.fromkeys(name for node in graph.node for name in node.output if name not in fixed)
    nodes = dict.fromkeys(node.name for node in graph.node)
    taken = {*constants, *fixed, *made, *nodes}
    stems = _Stems(taken)
    for name in filter(stems.begin, fixed):
        raise ModelError(
            f"{who}: {name}",
            needs=f"a name of an input or output that does not begin with another name of the file and {SEPARATOR!r}",
            has="one that the compiler may give to a value of its own",
            change="rename it",
        )
    renamed = {name: _renamed(name, taken) for name in filter(stems.begin, {**constants, **made, **nodes})}
    if renamed:
        _rename(graph, renamed)


class _Stems:
    """Which names begin with another one and the separator: only prefixes as long as some name are looked at, so that
    a name of many separators takes no longer than others."""

    def __init__(self, names: set[str]) -> None:
        self.names = frozenset(names - {""})
        self.lengths = sorted({len(name) for name in self.names})

    def begin(self, name: str) -> bool:
        if SEPARATOR not in name:
            return False
        places = (length for length in self.lengths if name.startswith(SEPARATOR, length))
        return any(name[:length] in self.names for length in places)


def _renamed(name: str, taken: set[str]) -> str:
    """A free name without the separator, which is taken then."""
    other = name.replace(SEPARATOR, ":")
    while other in taken:
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
