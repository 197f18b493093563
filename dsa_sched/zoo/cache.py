"""Finished networks in the user's cache folder: calibration takes seconds, reading a file does not.

    name  -->  $XDG_CACHE_HOME/dsa-sched/zoo/NAME-RECIPE (or ~/.cache/...)  -->  ModelProto

Weights that are only drawn, not calibrated, are drawn each time: that takes no longer than to read and check them, and
no disk holds a gigabyte of them.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import onnx

from dsa_sched.zoo.networks import built_model, is_calibrated, topology_bytes
from hw_models.cache import Cache

# A change of any of these modules changes the weights, as may a change of numpy's generator.
RECIPE = ("calibration.py", "evaluation.py", "inputs.py", "networks.py", "weights.py")


def zoo_model(name: str) -> onnx.ModelProto:
    """The network `name` with real initialisers.

    Takes seconds the first time (20 s for the largest), then comes from the cache; always the same bytes. The caller
    may change it. Raises ModelError for an unknown name.
    """
    return zoo_file(name)[0]


def zoo_file(name: str) -> tuple[onnx.ModelProto, str]:
    """Like `zoo_model`, with the SHA-256 of its deterministic serialisation."""
    key, cache = zoo_key(name), Cache.of_user("zoo")
    data = cache.find(key) if is_calibrated(name) else None
    if data is not None:
        model = onnx.ModelProto()
        model.ParseFromString(data)
    else:
        model = built_model(name)
        data = model.SerializeToString(deterministic=True)
        if is_calibrated(name):
            cache.keep(key, data)
    return model, hashlib.sha256(data).hexdigest()


def zoo_key(name: str) -> str:
    """The key of the finished network in the cache. Raises ModelError for an unknown name."""
    digest = hashlib.sha256(topology_bytes(name))
    digest.update(np.__version__.encode())
    for module in RECIPE:
        digest.update((resources.files("dsa_sched.zoo") / module).read_bytes())
    return f"{name}-{digest.hexdigest()[:16]}"
