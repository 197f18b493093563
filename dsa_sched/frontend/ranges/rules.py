"""Values that leave the range of fp16 between two that do not: the rules that keep them in it.

    in the file                              computed instead                          where
    ReduceSum(x) / n                         ReduceMean(x)                             mean_patterns.py
    ReduceMean(x^2) - ReduceMean(x)^2        ReduceMean((x - mean)^2)                  mean_patterns.py
    Exp(x) / ReduceSum(Exp(x))               Softmax(x), or less its maximum first     softmax_patterns.py
    1 / (1 + Exp(-x)), Log(1 + Exp(x)), ...  Sigmoid(x), Softplus(x), ...              exponential_patterns.py
    x * Clip(x + 3, 0, 6) / 6                HardSwish(x)                              curve_patterns.py
    roots and logarithms of sums of squares  on lines scaled by a power of two         scaled_sums.py
    x / Max(norm, e), x / (norm + e)         likewise                                  scaled_sums.py
    Log(x^2 + e), Log(Max(x, e)), ...        the function as a whole                   logarithms.py
    Sqrt(a^2 + b^2)                          what is squared over the larger of both   magnitudes.py
    y / (s + e) with e below 2^-14           the guard raised                          guards.py

The first five are exact for every type, and so are searches like those for other operators (`patterns/`); the others
are rules of this folder, for targets that store fp16. They run in this order: what one writes the next ones read.
Constants that a fold would take out of the range stay apart (`rewrites/simplify.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.ranges.guards import raise_guards
from dsa_sched.frontend.ranges.logarithms import whole_logarithms
from dsa_sched.frontend.ranges.magnitudes import scale_roots
from dsa_sched.frontend.ranges.scaled_sums import scale_sums

RULES: tuple[Callable[[Network], Network], ...] = (scale_sums, whole_logarithms, scale_roots, raise_guards)


def keep_ranges(network: Network) -> Network:
    """The network by all rules, one after another."""
    for rule in RULES:
        network = rule(network).pruned()
    return network
