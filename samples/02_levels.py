"""One network at several levels: the same bits, fewer bytes to DDR, less time by the cycle model.

python samples/02_levels.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dsa_sched

BATCH, SIDE, CHANNELS = 8, 28, 32


def network(layers: int = 4) -> bytes:
    """A chain of convolutions with ReLUs: what one writes, the next reads."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "image"
    for number in range(layers):
        kernel = rng.normal(0, 0.08, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        nodes.append(helper.make_node("Conv", [name, f"w{number}"], [f"c{number}"], name=f"conv{number}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], name=f"relu{number}"))
        name = f"r{number}"
    shape = [BATCH, CHANNELS, SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main() -> None:
    image = np.random.default_rng(1).normal(size=(BATCH, CHANNELS, SIDE, SIDE)).astype(np.float32)
    first = None
    with TemporaryDirectory() as folder:
        file = Path(folder, "chain.onnx")
        file.write_bytes(network())
        for level in ("O0", "O1", "O2", "O3"):
            artifact = dsa_sched.compile(file, chip="stcp920", level=level)
            (result,) = artifact.run({"image": image}).values()
            first = result if first is None else first
            milliseconds = 1e3 * dsa_sched.time(artifact).seconds
            print(f"{level}: {milliseconds:.3f} ms, the bits of O0: {np.array_equal(result, first)}")


if __name__ == "__main__":
    main()
