"""A network that is rewritten node by node: what was written so far can be looked up like the rest of it.

draft = Draft(network)    draft.put(chain of a node, label), draft.keep(node)    draft.finished()  -->  Network
"""

from __future__ import annotations

from dataclasses import replace

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Found, Network, Node


class Draft:
    """The nodes that were written, and the network with all values and constants that they bring."""

    def __init__(self, network: Network) -> None:
        self._values, self._constants, self._terms = dict(network.values), dict(network.constants), dict(network.terms)
        self._nodes: list[Node] = []
        self._found: list[Found] = []
        self.network = replace(network, values=self._values, constants=self._constants, terms=self._terms)

    def chain(self, node: Node) -> Chain:
        """An empty chain for the nodes that replace a node."""
        return Chain(self.network, node, tag="ranged")

    def keep(self, node: Node) -> None:
        """The node as it is."""
        self._nodes.append(node)

    def put(self, chain: Chain, label: str = "") -> None:
        """Put what a chain wrote in place of a node; its last node takes the name and the output of that node. With a
        label, one of `RANGED` (`patterns/found.py`), explanations mention it.
        """
        if label:
            self._found.append(Found(chain.node.name, label, spelled=True))
        self._nodes += chain.finished()
        self._values.update(chain.values)
        self._constants.update(chain.constants)
        self._terms.update(chain.terms)

    def finished(self) -> Network:
        """The network as it was rewritten; nodes that nothing reads any more are left to be pruned."""
        return replace(self.network, nodes=tuple(self._nodes), found=(*self.network.found, *self._found))
