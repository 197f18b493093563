"""One network on a big and a little core: which of several methods places it best, and its schedule as a chart.

python samples/03_place.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dsa_sched

SCENARIO = Path(__file__).parent / "scenarios" / "big_little.yaml"
METHODS = ("single", "heft", "duet", "sphinx", "exact")
SIDE, CHANNELS, BRANCHES = 28, 64, 4


def network() -> bytes:
    """Branches of convolutions that read one image and are joined: what can run side by side."""
    rng = np.random.default_rng(0)
    nodes, weights, ends = [], [], []
    for branch in range(BRANCHES):
        name = "image"
        for depth in range(branch + 1):
            label = f"{branch}_{depth}"
            kernel = rng.normal(0, 0.05, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
            weights.append(numpy_helper.from_array(kernel, f"w{label}"))
            nodes.append(helper.make_node("Conv", [name, f"w{label}"], [f"c{label}"], f"conv{label}", pads=[1] * 4))
            nodes.append(helper.make_node("Relu", [f"c{label}"], [f"r{label}"], f"relu{label}"))
            name = f"r{label}"
        ends.append(name)
    nodes.append(helper.make_node("Concat", ends, ["joined"], "concat", axis=1))
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE])],
        [helper.make_tensor_value_info("joined", TensorProto.FLOAT, [1, BRANCHES * CHANNELS, SIDE, SIDE])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main() -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "branches.onnx")
        file.write_bytes(network())
        print(dsa_sched.place(file, SCENARIO, method=METHODS, estimate=True, evaluations=2000))


if __name__ == "__main__":
    main()
