"""Times of the kernels of a GPU artifact on a GPU, with the runner that is part of every artifact.

files --a folder of its own--> Network --each launch by itself, by events--> nanoseconds of each group
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from codegen.cutlass.emission.launch_list import OF_INTEGERS, read_launch_list, whole_name
from codegen.cutlass.emission.nvcc import NvccError, find_nvcc
from codegen.cutlass.runner.runner import CudaDriver, Driver, GpuNetwork, LaunchEntry, LaunchList, RunnerError
from codegen.target import ClusterFiles
from hw_models.errors import TargetError

REPEATS = 20
IN_A_ROW = 10
"""Number of runs of one launch in a row, by which their time is divided: this hides the cost of a start and of a cold
cache."""


def open_gpu() -> GpuMeasurer:
    """Open the first GPU. Raises TargetError where there is none, or no nvcc."""
    try:
        return GpuMeasurer(CudaDriver(), find_nvcc().version)
    except (RunnerError, NvccError) as error:
        raise TargetError("times of kernels", needs="an NVIDIA GPU", has=f"none that works: {error}") from error


@dataclass(frozen=True, slots=True)
class GpuMeasurer:
    """A `Measurer`. Launches for one layer, in all slices of a batch, belong to one group."""

    driver: Driver
    nvcc_version: str

    @property
    def identity(self) -> str:
        return f"{self.driver.identity}, nvcc {self.nvcc_version}"

    def parts(self, files: ClusterFiles) -> tuple[str, ...]:
        listed = read_launch_list(files.files[files.executable])
        found: dict[str, list[object]] = {}
        for launch in listed.launches:
            if launch.layer.startswith(OF_INTEGERS):
                continue
            found.setdefault(whole_name(launch.layer), []).append(_identified(launch, listed, files))
        return tuple(hashlib.sha256(json.dumps(parts).encode()).hexdigest() for parts in found.values())

    def times_ns(self, files: ClusterFiles) -> tuple[int, ...]:
        """Median times. Raises TargetError where the runner or CUDA refuse them."""
        with tempfile.TemporaryDirectory(prefix="dsa-sched-") as folder:
            for name, data in files.files.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_bytes(data)
            try:
                with GpuNetwork(folder, self.driver) as network:
                    times = network.time_launches(REPEATS, inner=IN_A_ROW)
                    layers = [launch.layer for launch in network.launches]
            except RunnerError as error:
                raise TargetError("times of kernels", needs="kernels that run on this GPU", has=str(error)) from error
        found: dict[str, float] = {}
        for name, each in zip(layers, times, strict=True):
            if name.startswith(OF_INTEGERS):
                continue
            layer = whole_name(name)
            found[layer] = found.get(layer, 0.0) + median(each)
        return tuple(round(1e6 * milliseconds) for milliseconds in found.values())

    def close(self) -> None:
        self.driver.close()


def _identified(launch: LaunchEntry, listed: LaunchList, files: ClusterFiles) -> object:
    """A launch without the addresses of its tensors."""
    source = hashlib.sha256(files.files[listed.modules[launch.module].source]).hexdigest()
    moved = [(relocation.at, relocation.plus) for relocation in launch.relocations]
    sizes = (*launch.grid, *launch.block, launch.shared_bytes)
    return [listed.architecture, source, launch.kernel, sizes, launch.parameters, moved]
