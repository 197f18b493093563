"""A network while a rewrite changes it: nodes that others replace, and the values and constants that these bring.

    draft = Draft(network)    draft.put(chain), draft.exchange(node, *others)    draft.finished()  -->  Network

What was written can be looked up in `draft.network` like the rest of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Network, Node, Origin, Value
from dsa_sched.frontend.network.traced import TracedArray
from partitioner.ir.decisions import Decision


class Draft:
    """The replacements so far; `network` has the old nodes, with all values, constants, terms and origins."""

    def __init__(self, network: Network, tag: str = "") -> None:
        self._tag = tag
        self._replacements: dict[str, tuple[Node, ...]] = {}
        self._decisions = list(network.decisions)
        self._values, self._constants = dict(network.values), dict(network.constants)
        self._terms, self._origins = dict(network.terms), dict(network.origins)
        self.network = replace(
            network, values=self._values, constants=self._constants, terms=self._terms, origins=self._origins
        )

    def chain(self, node: Node, dtype: int | None = None) -> Chain:
        """An empty chain for the nodes that replace a node."""
        return Chain(self.network, node, tag=self._tag, dtype=dtype)

    def put(self, chain: Chain, *, apart: bool = False) -> None:
        """Replace a node by what its chain wrote. With `apart`, its nodes keep their names and results as they are."""
        self.exchange(chain.node, *(chain.nodes if apart else chain.finished()))
        self._values.update(chain.values)
        self._constants.update(chain.constants)
        self._terms.update(chain.terms)

    def decide(self, node: Node, verdict: str, reason: str) -> None:
        """Record what was decided about a node, for explanations."""
        self._decisions.append(Decision(node.name, verdict, reason))

    def exchange(self, node: Node, *others: Node) -> None:
        """Replace a node by others, or by none."""
        self._replacements[node.name] = others

    def value(self, name: str, value: Value, origin: Origin | None = None) -> str:
        """Add a value, which the file may not have; returns its name."""
        self._values[name] = value
        if origin is not None:
            self._origins[name] = origin
        return name

    def origin(self, name: str, origin: Origin) -> None:
        """Say how a value of the file follows from one of ours."""
        self._origins[name] = origin

    def store(self, name: str, constant: TracedArray) -> str:
        """Add a constant; returns its name."""
        self._constants[name], self._terms[name] = constant.array, constant.term
        return name

    def finished(self) -> Network:
        """The network as it was rewritten; nodes that nothing reads any more are left to be pruned."""
        nodes = tuple(new for node in self.network.nodes for new in self._replacements.get(node.name, (node,)))
        return replace(self.network, nodes=nodes, decisions=tuple(self._decisions))


def rewritten(
    network: Network, write: Callable[[Chain, Node], bool], tag: str = "", decided: tuple[str, str] | None = None
) -> Network:
    """The network with each node for which `write` returns true replaced by the nodes that it wrote. `decided` is the
    verdict on these, with its reason, for explanations."""
    draft = Draft(network, tag)
    for node in network.nodes:
        chain = draft.chain(node)
        if write(chain, node):
            draft.put(chain)
            if decided is not None:
                draft.decide(node, *decided)
    return draft.finished()
