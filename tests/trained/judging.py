"""A trained network on the simulated chip beside onnxruntime: decisions, errors, and the errors of fp16 storage alone.

    Network, folder of packages --compile--> artifact --run on each feed--> our outputs     \\
                                --onnxruntime-->                            exact outputs     > Judged
                                --onnxruntime, every value rounded-->       stored outputs  /
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

import dsa_sched
from tests.trained.network import Arrays, Network
from tests.trained.rounded_run import RangeLeft, RoundedRun

__all__ = ["Errors", "Judged", "judge", "operators"]

CHIP = "stcp920"
Runs = Callable[[Arrays], Arrays]
Lists = dict[str, list[npt.NDArray[Any]]]
Errors = Mapping[str, float]
"""Relative L2 errors by output, over all feeds together."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`stored` are the errors of fp16 storage with exact functions, `summed` of storage and the matrix engine's sums,
    where they are asked for. With `range_left`, values stored in fp16 become infinite on the way, and both are errors
    of numbers with as many bits and the range of float32."""

    decision: Any
    our_decision: Any
    equal: bool
    errors: Errors
    stored: Errors
    summed: Errors = field(default_factory=dict)
    range_left: bool = False
    compile_seconds: float = 0.0
    run_seconds: float = 0.0

    @property
    def worst(self) -> str:
        """The output whose error is largest beside that of storage; one that is not finite before all."""
        return max(self.errors, key=lambda name: (not np.isfinite(self.errors[name]), self.ratio(name)))

    def ratio(self, name: str) -> float:
        return self.errors[name] / max(self.stored[name], 1e-12)


def judge(network: Network, folder: Path, level: str = "O0", sums: bool = False) -> Judged:
    """Compile for the stcp920 and run on all feeds. With `sums`, the errors of its sums too, which take minutes for
    large networks. Raises UserError where the file is refused."""
    feeds = network.all_feeds(folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = network.prepared(folder, Path(scratch))
        began = time.process_time()
        artifact = dsa_sched.compile(path, CHIP, level=level, shape=network.shapes(feeds[0]))
        compiled = time.process_time()
        ours = _outputs(lambda feed: dict(artifact.run(_without(feed, network.constants))), feeds, network.state)
        ran = time.process_time()
        exact = _outputs(_exact(path), feeds, network.state)
        model = onnx.load(path)
    stored, range_left = _stored(model, feeds, network.state)
    summed = _outputs(RoundedRun(model, range_left, fp16_sums=True), feeds, network.state) if sums else {}
    with np.errstate(invalid="ignore"):  # outputs may be no numbers
        decision, our_decision = (network.decide(outputs, folder) for outputs in (exact, ours))
        errors = _errors(ours, exact, network.state)
    return Judged(
        decision=decision,
        our_decision=our_decision,
        equal=network.agree(our_decision, decision),
        errors=errors,
        stored=_errors(stored, exact, network.state),
        summed=_errors(summed, exact, network.state),
        range_left=range_left,
        compile_seconds=compiled - began,
        run_seconds=ran - compiled,
    )


def operators(model: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each operator there are, those of branches too."""

    def of(graph: onnx.GraphProto) -> Counter[str]:
        found = Counter(node.op_type for node in graph.node if node.op_type != "Constant")
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    found += of(attribute.g)
        return found

    return of(model.graph)


def _without(feed: Arrays, names: Mapping[str, int]) -> Arrays:
    return {name: array for name, array in feed.items() if name not in names}


def _outputs(run: Runs, feeds: Sequence[Arrays], state: Mapping[str, str]) -> Lists:
    """The outputs of all feeds, in a list by name, those of state fed back."""
    found: Lists = {}
    fed_back: Arrays = {}
    for feed in feeds:
        outputs = run({**feed, **fed_back})
        for name, array in outputs.items():
            found.setdefault(name, []).append(np.asarray(array))
        fed_back = {inner: np.asarray(outputs[outer]) for outer, inner in state.items()}
    return found


def _exact(path: Path) -> Runs:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    read = [item.name for item in session.get_inputs()]
    return lambda feed: dict(zip(names, session.run(names, {name: feed[name] for name in read}), strict=True))


def _stored(model: onnx.ModelProto, feeds: Sequence[Arrays], state: Mapping[str, str]) -> tuple[Lists, bool]:
    """The outputs where values are stored in fp16, and whether that was possible in its range alone."""
    try:
        return _outputs(RoundedRun(model), feeds, state), False
    except RangeLeft:
        return _outputs(RoundedRun(model, range_kept=True), feeds, state), True


def _errors(found: Lists, exact: Lists, state: Mapping[str, str]) -> Errors:
    return {name: _error(found[name], exact[name]) for name in exact if name not in state and name in found}


def _error(ours: Sequence[npt.NDArray[Any]], exact: Sequence[npt.NDArray[Any]]) -> float:
    one, other = (np.concatenate([each.ravel().astype(np.float64) for each in arrays]) for arrays in (ours, exact))
    return float(np.linalg.norm(one - other) / max(float(np.linalg.norm(other)), 1e-30))
