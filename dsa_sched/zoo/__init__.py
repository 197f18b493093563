"""Networks by name: the topologies that the onnx wheel ships and those built here, with seeded weights.

The shipped weights are constants; here they get random weights with statistics that keep activations small and
outputs dependent on the input, so that a comparison of results means something. Same bytes in every process.
"""

from __future__ import annotations

from dsa_sched.zoo.cache import zoo_file, zoo_model
from dsa_sched.zoo.inputs import seeded_inputs
from dsa_sched.zoo.networks import zoo_names

__all__ = ["seeded_inputs", "zoo_file", "zoo_model", "zoo_names"]
