"""Parts on an NVIDIA GPU, through onnxruntime's CUDA provider.

    Part --InferenceSession on CUDA--> GpuPart --feeds to the GPU, run or graph replay, outputs back--> values

Values are on the host between parts, so the time of a part includes its own copies to and from the GPU. With
`graphs`, inputs and outputs have fixed places on the GPU; the provider captures a part in its first run as a CUDA
graph, and replays it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx import helper

from dsa_sched.devices.device import Array, CompiledPart, Refused, drawn_feeds, shortest_ns
from dsa_sched.devices.onnxruntime_device import SessionPart, open_session, run_session
from dsa_sched.placement.model.from_onnx import TaskPart
from hw_models.errors import PlacementError

PROVIDER = "CUDAExecutionProvider"


@dataclass(frozen=True)
class BoundPart:
    """A session whose inputs and outputs have fixed places. One run at a time."""

    part: TaskPart
    session: Any
    binding: Any
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        for name, place in self.inputs.items():
            place.update_inplace(feeds[name])
        self.session.run_with_iobinding(self.binding)
        return {name: place.numpy().copy() for name, place in self.outputs.items()}

    def again(self) -> None:
        """Run on the inputs that are in their places, and leave the outputs in theirs: nothing is copied."""
        self.session.run_with_iobinding(self.binding)


def bound(compiled: SessionPart, kind: str, index: int) -> BoundPart:
    """The session with places on a device, by onnxruntime's name of its kind."""
    import onnxruntime

    binding, inputs, outputs = compiled.session.io_binding(), {}, {}
    for name, array in drawn_feeds(compiled.part).items():
        inputs[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, index)
        binding.bind_ortvalue_input(name, inputs[name])
    for item in compiled.part.model.graph.output:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        outputs[item.name] = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype, kind, index)
        binding.bind_ortvalue_output(item.name, outputs[item.name])
    return BoundPart(compiled.part, compiled.session, binding, inputs, outputs)


@dataclass(frozen=True)
class CudaGpu:
    """Raises PlacementError where onnxruntime has no CUDA provider."""

    name: str
    index: int = 0
    graphs: bool = False
    simulated: bool = False
    launch_ns: int = 0
    own_thread: bool = False

    def __post_init__(self) -> None:
        import onnxruntime

        known = onnxruntime.get_available_providers()
        if PROVIDER not in known:
            raise PlacementError(
                f"device {self.name}",
                needs=f"onnxruntime with its {PROVIDER}",
                has=", ".join(known),
                change="install the package onnxruntime-gpu on a machine with an NVIDIA GPU, or leave the device out",
            )

    @property
    def identity(self) -> str:
        import onnxruntime

        return f"onnxruntime {onnxruntime.__version__} on CUDA device {self.index}, graphs {self.graphs}"

    @property
    def time_source(self) -> str:
        return "runs on this machine"

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        """Raises Refused for a part that the device cannot run."""
        settings = {"device_id": str(self.index), "enable_cuda_graph": "1" if self.graphs else "0"}
        compiled = open_session(part, 1, True, [(PROVIDER, settings), "CPUExecutionProvider"])
        if compiled.session.get_providers()[:1] != [PROVIDER]:
            raise Refused("the CUDA provider did not start, see its own messages")
        return bound(compiled, "cuda", self.index) if self.graphs else compiled

    def profile(self, compiled: CompiledPart) -> int:
        feeds = drawn_feeds(compiled.part)
        return shortest_ns(lambda: self.run(compiled, feeds))

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if isinstance(compiled, BoundPart):
            return compiled.run(feeds)
        assert isinstance(compiled, SessionPart)
        return run_session(compiled, feeds)
