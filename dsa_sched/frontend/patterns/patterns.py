"""Operators that exporters take apart, found again: the searches in a row, and the count of what there is.

    what the file has  -->  Softmax, LayerNormalization, Gelu, RotaryEmbedding, Attention, ... each one node

Operators that a target does not want whole are taken apart again, by the same decomposition as a node of the file, so
that the form in the file does not matter. Each search is linear in the nodes: it looks at a bounded number around each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from dsa_sched.frontend.network.matching import Match, matches_of, replaced
from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.patterns.attention_patterns import ATTENTIONS
from dsa_sched.frontend.patterns.curve_patterns import curve_matches
from dsa_sched.frontend.patterns.exponential_patterns import EXPONENTIALS
from dsa_sched.frontend.patterns.found import recorded
from dsa_sched.frontend.patterns.layer_norm_patterns import NORMS
from dsa_sched.frontend.patterns.mean_patterns import VARIANCES, mean_matches
from dsa_sched.frontend.patterns.rotary_patterns import ROTARIES
from dsa_sched.frontend.patterns.softmax_patterns import SOFTMAXES

SEARCHES: tuple[Callable[[Network], Iterator[Match]], ...] = (
    partial(matches_of, SOFTMAXES),
    mean_matches,
    partial(matches_of, VARIANCES),
    partial(matches_of, NORMS),
    partial(matches_of, EXPONENTIALS),
    curve_matches,
    partial(matches_of, ROTARIES),
    partial(matches_of, ATTENTIONS),
)
"""An attention is around a softmax, a norm around means, an activation around a function of exponentials: each search
comes after those for the operators inside.
"""


def find_patterns(network: Network) -> Network:
    """The network with every operator that it spells out as one node, and the list of all there are."""
    spelled: set[str] = set()
    for search in SEARCHES:
        network, ends = replaced(network, search(network))
        spelled |= ends
    return replace(network, found=(*network.found, *recorded(network, spelled)))
