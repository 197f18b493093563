"""What both runners do with a CUDA driver; each case in a process of its own, on the fake libcuda over the executor.

python -m tests.codegen.cutlass.runner.cuda_cases CASE FOLDER LIBRARY [RUNNER_LIBRARY]
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codegen.cutlass.measuring import GpuMeasurer
from codegen.cutlass.runner.runner import CudaDriver, GpuNetwork, RunnerError
from codegen.target import ClusterFiles
from hw_models.errors import TargetError
from tests.codegen.cutlass.runner.fake_device import DeviceTensor, FakeDevice
from tests.codegen.cutlass.runner.small_network import (
    COLUMNS,
    ROWS,
    SKIPPED_BYTES,
    example,
    expected,
    launch_list,
    write_lists,
)

SHAPE = (ROWS, COLUMNS)


def numbers_by_graph(folder: Path, device: FakeDevice) -> None:
    _numbers(folder, device, graph=True)
    calls = _calls()
    assert calls.count("cuGraphInstantiate") == 1
    assert calls.count("cuGraphLaunch") == 2
    assert calls.count("cuLaunchKernel") == 2


def numbers_without_graph(folder: Path, device: FakeDevice) -> None:
    _numbers(folder, device, graph=False)
    assert _calls().count("cuLaunchKernel") == 4


def _numbers(folder: Path, device: FakeDevice, *, graph: bool) -> None:
    with GpuNetwork(folder, graph=graph) as network:
        for factor in (1, 2):
            (y,) = network.run({"x/in": factor * example()}).values()
            np.testing.assert_array_equal(y, expected(factor * example()))
    assert device.live(contexts=1) == 0
    with pytest.raises(RunnerError, match="the network is closed"):
        network.run({})


def parameters_are_relocated_and_shared_memory_is_asked_for(folder: Path, device: FakeDevice) -> None:
    x, y = (device.allocate(example()) for _ in range(2))
    with GpuNetwork(folder, graph=False) as network:
        network.run_pointers(0, {"x/in": x, "y": y})
        network.run_pointers(0, {})
    calls = _calls()
    assert calls.index("attribute reverse 8 65536") < calls.index("cuLaunchKernel")
    assert not any(line.startswith("attribute scale_add") for line in calls)
    lines = [line.split() for line in calls if line.startswith("launch ")]
    assert [line[1] for line in lines] == ["scale_add", "reverse"] * 2
    first, second, third, fourth = (bytes.fromhex(line[-1]) for line in lines)
    arena = int.from_bytes(third[:8], "little")
    tensors = {tensor.name: arena + tensor.offset for tensor in launch_list().tensors}
    assert arena == tensors["x/in"]
    assert _words(first, 3) == [x, tensors["c"] + SKIPPED_BYTES, tensors["v"]]
    assert _words(second, 2) == [tensors["v"], y]
    assert _words(third, 3) == [tensors["x/in"], tensors["c"] + SKIPPED_BYTES, tensors["v"]]
    assert _words(fourth, 2) == [tensors["v"], tensors["y"]]
    given = bytes.fromhex(launch_list().launches[0].parameters)
    assert first[24:] == third[24:] == given[24:]
    assert " ".join(lines[1][2:8]) == "(3, 1, 1) (64, 1, 1)"


def _words(data: bytes, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}Q", data))


def tensors_by_dlpack_are_bound_without_copies(folder: Path, device: FakeDevice) -> None:
    x, y = example(), np.zeros(SHAPE, np.float16)
    start = device.allocate(np.concatenate([np.zeros(8, np.float16), x.reshape(-1)]))
    there = device.allocate(y)
    given = DeviceTensor(start, SHAPE, offset=16)
    with GpuNetwork(folder) as network:
        binding = network.bind_dlpack({"x/in": given, "y": DeviceTensor(there, SHAPE, strides=(COLUMNS, 1))})
        assert given.streams == [-1]
        before = len(_calls())
        binding.run(0)
        binding.run(0)
        assert not any("Memcpy" in line for line in _calls()[before:])
        assert _calls().count("cuGraphInstantiate") == 1
        np.testing.assert_array_equal(device.memory.load(there, np.float16, SHAPE), expected(x))
        binding.close()
        assert _calls()[-1] == "cuGraphExecDestroy"
        network.bind_dlpack({"x/in": start + 16}).run()
    assert device.live(contexts=1) == 0


def unfit_tensors_are_refused(folder: Path, device: FakeDevice) -> None:
    at = device.allocate(example())
    with GpuNetwork(folder) as network:
        for tensor, told in (
            (DeviceTensor(at, SHAPE, device=(2, 1)), r"x/in: needs device \(2, 0\) of DLPack, has \(2, 1\)"),
            (example(), r"x/in: needs device \(2, 0\) of DLPack, has \(1, 0\)"),
            (DeviceTensor(at, SHAPE, kind=(2, 32)), r"x/in: needs float16 \(3, 40\), has float32 \(3, 40\)"),
            (DeviceTensor(at, SHAPE, kind=(4, 16)), r"has bfloat16 \(3, 40\)"),
            (DeviceTensor(at, SHAPE[::-1]), r"x/in: needs float16 \(3, 40\), has float16 \(40, 3\)"),
            (DeviceTensor(at, SHAPE, strides=(1, ROWS)), "x/in: needs contiguous elements, last axis fastest"),
            (DeviceTensor(at, SHAPE, offset=8), "x/in: needs an address aligned to 16 bytes"),
            (DeviceTensor(0, SHAPE), "x/in: needs an address aligned to 16 bytes, has 0x0"),
            ("a word", "x/in: needs a tensor that supports DLPack, has str"),
        ):
            with pytest.raises(RunnerError, match=told):
                network.bind_dlpack({"x/in": tensor})
        with pytest.raises(RunnerError, match="z: no such input or output; there are x/in, y"):
            network.bind_dlpack({"z": at})
        with pytest.raises(RunnerError, match="z: no such input or output"):
            network.run_pointers(0, {"z": at})
        with pytest.raises(RunnerError, match=r"input x/in: needs float16 \(3, 40\), has float32 \(3, 40\)"):
            network.run({"x/in": example().astype(np.float32)})
        with pytest.raises(RunnerError, match="inputs: needs x/in, has none"):
            network.run({})


def times_are_those_of_events(folder: Path, device: FakeDevice) -> None:
    """The fake driver's time is half a millisecond a launch."""
    with GpuNetwork(folder) as network:
        assert network.time(4, warm_up=2) == (1.0,) * 4
        assert network.time(4, warm_up=1, inner=3, rotated_bytes=1000) == (1.0,) * 4
        assert network.time_launches(3, inner=5, flush_bytes=4096) == ((0.5,) * 3,) * 2
        assert _calls().count("cuMemsetD8Async") == 6
    with GpuNetwork(folder, graph=False) as network:
        assert network.time_launches(1) == ((0.5,),) * 2
    assert device.live(contexts=1) == 0


def threads_may_change_between_runs(folder: Path, device: FakeDevice) -> None:
    """A new thread has no current context."""
    found = []
    with GpuNetwork(folder) as network:
        thread = threading.Thread(target=lambda: found.append(network.run({"x/in": example()})["y"]))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[0], expected(example()))
    del device


def errors_say_what_and_give_all_back(folder: Path, device: FakeDevice) -> None:
    with pytest.raises(RunnerError, match="device 1: needs one of 1, counted from 0"):
        CudaDriver(1)
    for capability, told in (("90", "sm_90"), ("75", "sm_75")):
        os.environ["FAKE_CUDA_SM"] = capability
        with pytest.raises(RunnerError, match=f"machine code for sm_80, device 0 is {told}"):
            GpuNetwork(folder)
    os.environ["FAKE_CUDA_SM"] = "86"  # machine code of 8.0 runs there
    text = (folder / "launches.json").read_text()
    for function, where in (
        ("cuMemAlloc", "cuMemAlloc"),
        ("cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync"),
        ("cuModuleLoadData", "layer Scale/1: kernel scale_add .*cuModuleLoadData"),
        ("cuFuncSetAttribute", "layer Reverse: kernel reverse .*65536 bytes of shared memory.*cuFuncSetAttribute"),
        ("cuStreamCreate", "cuStreamCreate"),
    ):
        os.environ["FAKE_CUDA_FAIL"] = function
        with pytest.raises(RunnerError, match=f"{where}: CUDA_ERROR_OUT_OF_MEMORY: out of memory"):
            GpuNetwork(folder)
        assert device.live(contexts=1) == 0, function
    del os.environ["FAKE_CUDA_FAIL"]
    with GpuNetwork(folder) as network:
        os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel"
        with pytest.raises(RunnerError, match=r"layer Scale/1: kernel scale_add .*cuLaunchKernel: .*out of memory"):
            network.run({"x/in": example()})
        del os.environ["FAKE_CUDA_FAIL"]
        np.testing.assert_array_equal(network.run({"x/in": example()})["y"], expected(example()))
    assert device.live(contexts=1) == 0
    (folder / "launches.json").write_text(text.replace('"scale_add"', '"absent"'))
    with pytest.raises(RunnerError, match=r"layer Scale/1: kernel absent .*cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"):
        GpuNetwork(folder)
    assert device.live(contexts=1) == 0


def faults_end_a_run(folder: Path, device: FakeDevice) -> None:
    path = folder / "launches.json"
    path.write_text(path.read_text().replace('"shared_bytes": 65536', '"shared_bytes": 65280'))
    with GpuNetwork(folder, check=True) as network, pytest.raises(RunnerError, match=r"layer Reverse: .*LAUNCH_FAILED"):
        network.run({"x/in": example()})
    (fault,) = device.faults
    assert "out of bounds" in fault
    assert device.live(contexts=1) == 0


def _run_and_refuse(folder: Path, refused: str) -> None:
    """A run, then a driver that refuses a function, as it does after a fault."""
    with GpuNetwork(folder, check=True) as network:
        try:
            network.run({"x/in": example()})
        finally:
            os.environ["FAKE_CUDA_FAIL"] = refused


def what_cuda_refuses_while_closing_hides_nothing_and_keeps_nothing(folder: Path, device: FakeDevice) -> None:
    with pytest.raises(RunnerError, match="cuModuleUnload: CUDA_ERROR_OUT_OF_MEMORY"):
        _run_and_refuse(folder, "cuModuleUnload")
    assert device.live(contexts=1) == 1  # the module alone
    del os.environ["FAKE_CUDA_FAIL"]
    path = folder / "launches.json"
    path.write_text(path.read_text().replace('"shared_bytes": 65536', '"shared_bytes": 65280'))
    with pytest.raises(RunnerError, match=r"layer Reverse: .*LAUNCH_FAILED"):
        _run_and_refuse(folder, "cuModuleUnload")
    assert device.live(contexts=1) == 2


def architecture_specific_code_runs_on_its_own(folder: Path, device: FakeDevice) -> None:
    path = folder / "launches.json"
    path.write_text(path.read_text().replace("sm_80", "sm_90a"))
    for capability, runs in (("90", True), ("100", False), ("91", False)):
        os.environ["FAKE_CUDA_SM"] = capability
        if runs:
            with GpuNetwork(folder) as network:
                np.testing.assert_array_equal(network.run({"x/in": example()})["y"], expected(example()))
        else:
            with pytest.raises(RunnerError, match=f"machine code for sm_90a, device 0 is sm_{capability}"):
                GpuNetwork(folder)
    del device


def the_runner_in_c_gives_the_numbers(folder: Path, device: FakeDevice) -> None:
    x, y = example(), np.zeros(SHAPE, np.float16)
    here, there = device.allocate(x), device.allocate(y)
    runner, network = _opened(folder)
    pointers = (ctypes.c_void_p * 2)(here, there)
    before = len(_calls())
    assert runner.dsa_run(network, None, pointers) == 0
    assert [line for line in _calls()[before:] if not line.startswith("launch ")] == ["cuLaunchKernel"] * 2
    np.testing.assert_array_equal(device.memory.load(there, np.float16, SHAPE), expected(x))
    two = (2 * x).copy()
    assert runner.dsa_set_input(network, ctypes.c_size_t(0), two.ctypes.data_as(ctypes.c_void_p)) == 0
    assert runner.dsa_run(network, None, None) == 0
    assert runner.dsa_get_output(network, ctypes.c_size_t(0), y.ctypes.data_as(ctypes.c_void_p)) == 0
    np.testing.assert_array_equal(y, expected(two))
    assert runner.dsa_run(network, None, (ctypes.c_void_p * 2)(here + 8, there)) == 1
    assert runner.dsa_set_input(network, ctypes.c_size_t(1), y.ctypes.data_as(ctypes.c_void_p)) == 1
    assert runner.dsa_error_text(network, 1) == b"invalid argument"
    runner.dsa_destroy(network)
    assert device.live() == 0


def shared_memory_of_tensors_is_not_bound_in_place(folder: Path, device: FakeDevice) -> None:
    """The output lies where the value before it lies, which the kernel of a row does not mind."""
    path = folder / "launches.json"
    value = json.loads(path.read_text())
    value["tensors"][1]["offset"] = value["tensors"][2]["offset"]
    write_lists(folder, value)
    at = device.allocate(example())
    with GpuNetwork(folder) as network:
        np.testing.assert_array_equal(network.run({"x/in": example()})["y"], expected(example()))
        network.run_pointers(0, {"x/in": at})
        with pytest.raises(RunnerError, match="y: shares memory with v: copy it, it cannot be bound in place"):
            network.run_pointers(0, {"y": at})
    runner, opened = _opened(folder)
    assert runner.dsa_run(opened, None, (ctypes.c_void_p * 2)(at, None)) == 0
    assert runner.dsa_run(opened, None, (ctypes.c_void_p * 2)(None, at)) == 1
    runner.dsa_destroy(opened)
    value["launches"].pop()
    write_lists(folder, value)
    with GpuNetwork(folder) as network, pytest.raises(RunnerError, match="y: shares memory with v"):
        network.bind_dlpack({"y": at})
    value["launches"].pop()
    write_lists(folder, value)
    with GpuNetwork(folder) as network, pytest.raises(RunnerError, match="y: shares memory with what is loaded"):
        network.bind_dlpack({"y": at})
    runner, opened = _opened(folder)
    assert runner.dsa_run(opened, None, (ctypes.c_void_p * 2)(None, at)) == 1
    runner.dsa_destroy(opened)


def _opened(folder: Path) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The runner in C, and the network of a folder."""
    runner = ctypes.CDLL(sys.argv[4])
    runner.dsa_create.restype = ctypes.c_void_p
    runner.dsa_error_text.restype = ctypes.c_char_p
    error = ctypes.create_string_buffer(500)
    network = ctypes.c_void_p(runner.dsa_create(str(folder).encode(), error, ctypes.c_size_t(500)))
    assert network, error.value
    return runner, network


def long_files_of_constants_lie_where_they_should(folder: Path, device: FakeDevice) -> None:
    """Longer than what the runner in C copies at once; the constant that counts is at their end."""
    data = folder / "data" / "c.bin"
    value = json.loads((folder / "launches.json").read_text())
    before = 8 << 20
    start = value["arena_bytes"]
    value["arena_bytes"] = start + before + 4096
    value["tensors"][3]["offset"] = start + before
    value["data"][0] |= {"offset": start, "bytes": before + data.stat().st_size}
    write_lists(folder, value)
    data.write_bytes(bytes(before) + data.read_bytes())
    with GpuNetwork(folder) as network:
        np.testing.assert_array_equal(network.run({"x/in": example()})["y"], expected(example()))
    runner, opened = _opened(folder)
    x, y = device.allocate(example()), device.allocate(np.zeros(SHAPE, np.float16))
    assert runner.dsa_run(opened, None, (ctypes.c_void_p * 2)(x, y)) == 0
    np.testing.assert_array_equal(device.memory.load(y, np.float16, SHAPE), expected(example()))
    runner.dsa_destroy(opened)


def the_runner_in_c_takes_the_callers_context(folder: Path, device: FakeDevice) -> None:
    driver = CudaDriver()
    runner, network = _opened(folder)
    assert _calls().count("cuDevicePrimaryCtxRetain") == 1
    runner.dsa_destroy(network)
    driver.close()
    assert device.live(contexts=1) == 0


def groups_are_timed_and_the_device_says_what_it_is(folder: Path, device: FakeDevice) -> None:
    """By the driver of the runner; times of the fake device are half a millisecond a launch."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    opened = GpuMeasurer(CudaDriver(), "13.0.1")
    assert opened.identity == "Fake GPU, CUDA driver 13000, nvcc 13.0.1"
    emitted = ClusterFiles(0, "launches.json", files)
    assert opened.times_ns(emitted) == (500_000, 500_000)
    parts = opened.parts(emitted)
    moved = json.loads(files["launches.json"])
    moved["tensors"][2]["offset"] = moved["tensors"][3]["offset"] + 256
    assert opened.parts(_changed(emitted, "launches.json", json.dumps(moved).encode())) == parts
    moved["launches"][1]["grid"] = [2, 1, 1]
    other = opened.parts(_changed(emitted, "launches.json", json.dumps(moved).encode()))
    assert (other[0] == parts[0], other[1] == parts[1]) == (True, False)
    assert set(opened.parts(_changed(emitted, "kernels/two.cu", b"// else"))).isdisjoint(parts)
    moved["launches"][1]["kernel"] = "absent"
    with pytest.raises(TargetError, match="times of kernels: needs kernels that run on this GPU; has layer Reverse"):
        opened.times_ns(_changed(emitted, "launches.json", json.dumps(moved).encode()))
    opened.close()
    assert device.live(contexts=1) == 0


def _changed(files: ClusterFiles, name: str, data: bytes) -> ClusterFiles:
    return ClusterFiles(files.cores, files.executable, {**files.files, name: data})


def _calls() -> list[str]:
    return Path(os.environ["FAKE_CUDA_LOG"]).read_text().splitlines()


CASES: tuple[Callable[[Path, FakeDevice], None], ...] = (
    numbers_by_graph,
    numbers_without_graph,
    parameters_are_relocated_and_shared_memory_is_asked_for,
    tensors_by_dlpack_are_bound_without_copies,
    unfit_tensors_are_refused,
    times_are_those_of_events,
    threads_may_change_between_runs,
    errors_say_what_and_give_all_back,
    faults_end_a_run,
    what_cuda_refuses_while_closing_hides_nothing_and_keeps_nothing,
    architecture_specific_code_runs_on_its_own,
    the_runner_in_c_gives_the_numbers,
    the_runner_in_c_takes_the_callers_context,
    shared_memory_of_tensors_is_not_bound_in_place,
    long_files_of_constants_lie_where_they_should,
    groups_are_timed_and_the_device_says_what_it_is,
)


if __name__ == "__main__":
    place = Path(sys.argv[2])
    ptx = (place / "kernels" / "two.ptx").read_text()
    {case.__name__: case for case in CASES}[sys.argv[1]](place, FakeDevice(Path(sys.argv[3]), ptx))
