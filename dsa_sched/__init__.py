"""dsa-sched: compiles ONNX networks for accelerators described by a chip file, runs and checks the result."""
