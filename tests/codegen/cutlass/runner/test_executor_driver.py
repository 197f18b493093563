"""`runner.py` on the executor of PTX: numbers, binding in place, graphs, and an environment that has only NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codegen.cutlass.runner.executor_driver import ExecutorDriver
from codegen.cutlass.runner.runner import GpuNetwork, RunnerError, main
from tests.codegen.cutlass.runner.small_network import example, expected, save_input

ROOT = Path(__file__).parents[4]

ONLY_NUMPY = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "codegen"):
            raise ImportError(f"{name} is not to be imported")
sys.meta_path.insert(0, Refuse())
from codegen.cutlass.runner.executor_driver import ExecutorDriver
from codegen.cutlass.runner.runner import main
code = main(sys.argv[1:], ExecutorDriver())
try:
    import codegen.cutlass.emission.launch_list
except ImportError as error:
    assert "hw_models is not to be imported" in str(error)
    raise SystemExit(code)
"""


@pytest.mark.parametrize("graph", [True, False])
def test_two_launches_give_the_numbers_again_and_again(folder: Path, graph: bool) -> None:
    x = example()
    with GpuNetwork(folder, ExecutorDriver(), graph=graph) as network:
        assert list(network.inputs) == ["x/in"]
        assert network.outputs["y"].layout == (0, 1)
        for factor in (1, 3):
            (y,) = network.run({"x/in": factor * x}).values()
            np.testing.assert_array_equal(y, expected(factor * x))
            assert y.dtype == np.float16


def test_inputs_and_outputs_in_place_at_addresses(folder: Path) -> None:
    driver = ExecutorDriver()
    x = example()
    here, there = (driver.allocate(x.nbytes) for _ in range(2))
    driver.copy_in(here, x.reshape(-1).view(np.uint8), 0)
    with GpuNetwork(folder, driver) as network:
        network.run_pointers(0, {"x/in": here, "y": there})
        y = np.empty_like(x)
        driver.copy_out(y.reshape(-1).view(np.uint8), there, 0)
        np.testing.assert_array_equal(y, expected(x))
        network.poison()
        network.run_pointers(0, {"x/in": here, "y": there})
        binding = network.bind_dlpack({"x/in": here, "y": here})
        for _ in range(2):
            before = np.empty_like(x)
            driver.copy_out(before.reshape(-1).view(np.uint8), here, 0)
            binding.run()
            driver.copy_out(y.reshape(-1).view(np.uint8), here, 0)
            np.testing.assert_array_equal(y, expected(before))
        binding.close()


def test_poison_is_seen_where_nothing_is_written(folder: Path) -> None:
    with GpuNetwork(folder, ExecutorDriver()) as network:
        network.poison()
        network.run_pointers(0, {})
        (y,) = network.run({"x/in": example()}).values()
        np.testing.assert_array_equal(y, expected(example()))


def test_times_are_of_each_run_and_each_launch(folder: Path) -> None:
    with GpuNetwork(folder, ExecutorDriver()) as network:
        assert len(network.time(5, warm_up=1)) == 5
        network.run({"x/in": example()})
        assert len(network.time(2, inner=3, rotated_bytes=1 << 12)) == 2
        (y,) = network.run({"x/in": example()}).values()
        np.testing.assert_array_equal(y, expected(example()))
        times = network.time_launches(2, inner=2, flush_bytes=1000)
    assert [len(one) for one in times] == [2, 2]
    assert min(min(one) for one in times) > 0


def test_a_fault_names_the_layer(folder: Path) -> None:
    path = folder / "launches.json"
    path.write_text(path.read_text().replace('"shared_bytes": 65536', '"shared_bytes": 65280'))
    with GpuNetwork(folder, ExecutorDriver()) as network, pytest.raises(RunnerError, match="out of bounds"):
        network.run({"x/in": example()})
    with (
        GpuNetwork(folder, ExecutorDriver(), check=True) as network,
        pytest.raises(RunnerError, match=r"layer Reverse: kernel reverse .*65280 bytes of shared.*out of bounds"),
    ):
        network.run({"x/in": example()})


def test_more_shared_memory_than_asked_for_is_refused(folder: Path) -> None:
    driver = ExecutorDriver()
    module = driver.load((folder / "kernels" / "two.ptx").read_bytes())
    function = driver.function(module, "reverse", 100)
    with pytest.raises(RunnerError, match="101 bytes of dynamic shared memory, 100 were asked for"):
        driver.launch(function, (1, 1, 1), (1, 1, 1), 101, bytes(24), 0)
    with pytest.raises(RunnerError, match="no kernel forward"):
        driver.function(module, "forward", 0)


def test_it_runs_where_there_is_only_numpy(folder: Path, tmp_path: Path) -> None:
    save_input(tmp_path / "x.npz")
    files = ["--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")]
    done = subprocess.run(
        [sys.executable, "-c", ONLY_NUMPY, str(folder), *files],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(tmp_path / "y.npz") as file:
        np.testing.assert_array_equal(file["y"], expected(example()))


def test_the_command_line_lists_runs_and_times(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder)], ExecutorDriver()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "input  x/in: float16 (3, 40), axes of the model's tensor (0, 1)",
        "output y: float16 (3, 40), axes of the model's tensor (0, 1)",
    ]
    arguments = [str(folder), "--output", str(tmp_path / "y.npz"), "--time", "2", "--launches", "--seed", "3"]
    assert main(arguments, ExecutorDriver()) == 0
    told = capsys.readouterr().out
    assert "2 launches, 2 runs: median " in told
    assert "  Reverse (reverse): median " in told
    x = np.random.default_rng(3).standard_normal((3, 40), np.float32).astype(np.float16)
    with np.load(tmp_path / "y.npz") as file:
        np.testing.assert_array_equal(file["y"], expected(x))


def test_the_command_line_tells_what_is_wrong(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", x=example())
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    for arguments, told in (
        (["--input", str(tmp_path / "x.npz"), "--time", "1"], "inputs: needs x/in, has x"),
        (["--input", str(tmp_path / "broken.npz"), "--time", "1"], "is not a file of arrays"),
        (["--input", str(tmp_path / "none.npz"), "--time", "1"], "none.npz"),
        (["--time", "0"], "--time: needs at least 1"),
        (["--output", str(tmp_path / "missing" / "y.npz")], "missing"),
    ):
        assert main([str(folder), *arguments], ExecutorDriver()) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert told in error
