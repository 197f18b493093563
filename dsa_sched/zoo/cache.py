"""Finished networks in the user's cache directory: calibration takes seconds, reading a file does not.

    name  -->  $XDG_CACHE_HOME/dsa-sched/zoo-NAME-RECIPE.onnx (or ~/.cache/...)  -->  ModelProto

Weights that are only drawn, not calibrated, are drawn each time: that takes no longer than to read and check them, and
no disk holds a gigabyte of them.

The file is an ordinary ONNX model whose last bytes are one `metadata_props` entry with the SHA-256 of all before it
(protobuf allows a message to be continued by appending). A file that is absent, cut short or changed is made anew; a
directory that cannot be written costs the time of calibration and nothing else.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

import numpy as np
import onnx

from dsa_sched.zoo.networks import built_model, is_calibrated, topology_bytes
from hw_models.scratch import replace_file
from hw_models.user_cache import cache_directory

# A change of any of these modules changes the weights, as may a change of numpy's generator.
RECIPE = ("calibration.py", "evaluation.py", "inputs.py", "networks.py", "weights.py")


def zoo_model(name: str) -> onnx.ModelProto:
    """The network `name` with real initialisers.

    Takes seconds the first time (20 s for the largest), then comes from the cache; always the same bytes. The caller
    may change it. Raises ModelError for an unknown name.
    """
    return zoo_file(name)[0]


def zoo_file(name: str) -> tuple[onnx.ModelProto, str]:
    """Like `zoo_model`, with the SHA-256 of its deterministic serialisation, which the file in the cache holds."""
    file = cached_file(name)
    found = _read(file) if file else None
    if found is not None:
        data, digest = found
        model = onnx.ModelProto()
        model.ParseFromString(data)
        return model, digest
    model = built_model(name)
    data = model.SerializeToString(deterministic=True)
    digest = hashlib.sha256(data).hexdigest()
    if file:
        _write(file, data, digest, name)
    return model, digest


def cached_file(name: str) -> Path | None:
    """Path of the finished network in the cache, whether or not it exists; None without a home directory, and for a
    network that is drawn each time. Raises ModelError for an unknown name.
    """
    digest = hashlib.sha256(topology_bytes(name))
    if not is_calibrated(name):
        return None
    digest.update(np.__version__.encode())
    for module in RECIPE:
        digest.update((resources.files("dsa_sched.zoo") / module).read_bytes())
    directory = cache_directory()
    return directory and directory / f"zoo-{name}-{digest.hexdigest()[:16]}.onnx"


def _seal(digest: str) -> bytes:
    """The entry to append, of the same length for any digest."""
    entry = onnx.StringStringEntryProto(key="sha256", value=digest)
    return bytes(onnx.ModelProto(metadata_props=[entry]).SerializeToString(deterministic=True))


def _read(file: Path) -> tuple[bytes, str] | None:
    """The model's bytes and their SHA-256, or None when there is no file or it is not what was written."""
    try:
        sealed = file.read_bytes()
    except OSError:
        return None
    data = sealed[: -len(_seal("0" * 2 * hashlib.sha256().digest_size))]
    digest = hashlib.sha256(data).hexdigest()
    return (data, digest) if sealed.endswith(_seal(digest)) else None


def _write(file: Path, data: bytes, digest: str, name: str) -> None:
    """Write atomically, replacing the files of older recipes of the same network."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, lambda stream: stream.write(data + _seal(digest)))
        for older in file.parent.glob(f"zoo-{name}-*.onnx"):
            recipe = older.stem.removeprefix(f"zoo-{name}-")
            if older != file and "-" not in recipe:  # NAME-mini is a network of its own
                older.unlink(missing_ok=True)
    except OSError:
        return
