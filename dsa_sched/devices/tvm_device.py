"""Parts through TVM: imported to Relax, compiled for the host's processor, run by TVM's virtual machine.

    Part --from_onnx, relax.build--> module --VirtualMachine--> TvmPart

TVM is imported only here and inside functions: the import takes a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dsa_sched.devices.device import Array, CompiledPart, Refused, drawn_feeds, host_machine, shortest_ns
from dsa_sched.frontend.network.shapes import first_line
from dsa_sched.placement.model.from_onnx import TaskPart


@dataclass(frozen=True)
class TvmPart:
    part: TaskPart
    main: Any
    device: Any


@dataclass(frozen=True)
class TvmCpu:
    """`mcpu` is LLVM's name of a processor, the host's where not given. Code is compiled without tuning."""

    name: str
    mcpu: str | None = None
    simulated: bool = False
    launch_ns: int = 0
    own_thread: bool = True

    @cached_property
    def target(self) -> dict[str, str]:
        from tvm.target.codegen import llvm_get_system_cpu

        return {"kind": "llvm", "mcpu": self.mcpu or str(llvm_get_system_cpu())}

    @property
    def identity(self) -> str:
        from importlib.metadata import version

        return f"tvm {version('apache-tvm')} for {self.target['mcpu']} on {host_machine()}"

    @property
    def time_source(self) -> str:
        return "runs on this machine"

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        """Raises Refused for a part that TVM cannot compile."""
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the importer repeats remarks of the checker
                module = from_onnx(part.model)
                built = relax.build(module, tvm.target.Target(self.target))
            device = tvm.cpu()
            return TvmPart(part, relax.VirtualMachine(built, device)["main"], device)
        except Exception as error:  # TVM's importer and passes raise classes of every kind
            raise Refused(first_line(error)) from error

    def profile(self, compiled: CompiledPart) -> int:
        feeds = drawn_feeds(compiled.part)
        return shortest_ns(lambda: self.run(compiled, feeds), one_thread=True)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        import tvm

        assert isinstance(compiled, TvmPart)
        arrays = [np.ascontiguousarray(feeds[name]) for name in compiled.part.inputs]
        found = compiled.main(*(tvm.runtime.tensor(array, compiled.device) for array in arrays))
        several = found if len(compiled.part.outputs) > 1 else [found]
        return {name: item.numpy() for name, item in zip(compiled.part.outputs, several, strict=True)}
