"""Operators that a target looks up in a table: the table becomes a constant of the graph, the operator a `lookup`.

    log(x)  -->  lookup(x, table::log) {function=log}

Only the target knows which operators these are, and their entries (`Tabulates`). Equal tables are one constant. Its
term says that it comes from the target: the file has nothing to compare it with.
"""

from __future__ import annotations

from dataclasses import replace

from dsa_sched.frontend.graph.build import Built
from dsa_sched.frontend.network.refusals import TableFor
from dsa_sched.frontend.network.terms import of_the_target
from partitioner.ir.access import Access, Full
from partitioner.ir.graph import Op, Tensor, content_hash, verify_graph


def with_tables(built: Built, table_for: TableFor) -> Built:
    """The graph with lookups in place of the operators for which the target has a table."""
    tensors = {tensor.name: tensor for tensor in built.graph.tensors}
    store, terms = dict(built.constants), dict(built.terms)
    ops = []
    for op in built.graph.ops:
        table = table_for(built.graph, op)
        if table is None:
            ops.append(op)
            continue
        key = content_hash(table)
        name = _name(f"table::{op.kind}", key, tensors)
        tensors.setdefault(name, Tensor(name, table.shape, str(table.dtype), (), str(table.dtype), key))
        store[key], terms[name] = table, of_the_target(op.kind)
        ops.append(_looked_up(op, name))
    if len(tensors) == len(built.graph.tensors):
        return built
    graph = replace(built.graph, ops=tuple(ops), tensors=tuple(tensors.values()))
    verify_graph(graph)
    return replace(built, graph=graph, constants=store, terms=terms)


def _name(wanted: str, key: str, tensors: dict[str, Tensor]) -> str:
    """A name for each content."""
    name, count = wanted, 1
    while name in tensors and tensors[name].constant != key:
        count += 1
        name = f"{wanted}::{count}"
    return name


def _looked_up(op: Op, table: str) -> Op:
    (stage,) = op.stages
    read = Access(table, (Full(),))
    return replace(
        op,
        kind="lookup",
        inputs=(*op.inputs, table),
        attributes=(("function", op.kind), *op.attributes),
        stages=(replace(stage, reads=(*stage.reads, read)),),
    )
