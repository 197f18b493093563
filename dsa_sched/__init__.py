"""dsa-sched: compiles ONNX networks for accelerators described by a chip file, runs and checks the result.

artifact = dsa_sched.compile("resnet50.onnx", "stcp920")
outputs = artifact.run({"x": array})
print(dsa_sched.time(artifact).cycles, dsa_sched.explain(artifact), dsa_sched.verify(artifact).verdict)
"""

from __future__ import annotations

from importlib.metadata import version

from dsa_sched.api.functions import (
    chips,
    compile,
    diff,
    explain,
    fit_chip,
    load,
    load_chip,
    load_sizes,
    models,
    ops,
    place,
    plan,
    quantize,
    suite,
    sweep,
    time,
    timeline,
    verify,
    verify_sizes,
    write_benchmarks,
    write_report,
)
from dsa_sched.api.options import Options

__version__ = version("dsa-sched")

__all__ = [
    "Options",
    "__version__",
    "chips",
    "compile",
    "diff",
    "explain",
    "fit_chip",
    "load",
    "load_chip",
    "load_sizes",
    "models",
    "ops",
    "place",
    "plan",
    "quantize",
    "suite",
    "sweep",
    "time",
    "timeline",
    "verify",
    "verify_sizes",
    "write_benchmarks",
    "write_report",
]
