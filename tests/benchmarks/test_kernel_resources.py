"""What fused kernels take: predictions held to ptxas's report, and what fits on a core."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import kernel_resources
from benchmarks.kernel_resources import asked_of, blocks_of_a_core, complaints, measured
from benchmarks.lab.assembly_report import Taken
from benchmarks.lab.machine_code import Code, disassembled, read_code
from codegen.cutlass.emission.nvcc import NvccError, find_nvcc
from codegen.cutlass.families.registry import FAMILIES
from hw_models.loading import load_chip
from partitioner.ir.kernels import read_kernel
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save

NETWORKS = ("mobilenet_v2-mini", "small_tail")
LISTING = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;                        /* 0x00000a00ff017b82 */
                                                                                 /* 0x000e220000000800 */
        /*0010*/              @!P0 HGMMA.64x64x16.F32 R24, gdesc[UR4], R24 ;     /* 0x00e00000041879f0 */
        /*0020*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;               /* 0x000080000000791c */
        /*0030*/               @P1 STG.E.128 desc[UR8][R2.64], R4 ;              /* 0x0000000402001986 */
        /*0040*/                   STG.E desc[UR8][R2.64+0x20], R4 ;             /* 0x0000000402001986 */
        /*0050*/                   STG.E.U16 desc[UR8][R2.64+0x40], R4 ;         /* 0x0000000402001986 */
        /*0060*/                   STL.64 [R1], R4 ;                             /* 0x0000000402001986 */
"""
PREDICTED = {"registers": 64, "shared_bytes": 1000, "threads": 128}


@pytest.mark.parametrize(
    ("taken", "threads", "shared_bytes", "blocks", "said"),
    [
        (Taken(64, 0, 0, 0), 128, 1000, 1, []),
        (Taken(60, 8, 8, 0), 128, 1000, 1, ["8 bytes are spilled"]),
        (Taken(65, 0, 0, 0), 128, 1000, 1, ["65 registers, 64 were predicted"]),
        (Taken(64, 0, 0, 0), 128, 1004, 1, ["1004 shared_bytes, 1000 were predicted"]),
        (Taken(64, 0, 0, 0), 256, 1000, 1, ["256 threads, 128 were predicted"]),
        (Taken(64, 0, 0, 0), 128, 1000, 0, ["not one block fits on a core"]),
    ],
)
def test_what_is_not_as_predicted(taken: Taken, threads: int, shared_bytes: int, blocks: int, said: list[str]) -> None:
    assert complaints(PREDICTED, taken, threads, shared_bytes, blocks) == said


def test_machine_code_is_counted_from_a_listing() -> None:
    assert read_code(LISTING) == Code(7, 1, ((2, 1), (4, 1), (16, 1)), 1)
    with pytest.raises(NvccError, match="lists no instruction"):
        read_code("no code")
    with pytest.raises(NvccError, match="no-such-disassembler"):
        disassembled(b"", Path("no-such-disassembler"))


def test_what_was_not_predicted() -> None:
    found = complaints({"threads": 128}, Taken(40, 0, 0, 0), 128, 0, 1)
    assert found == ["registers were not predicted, it takes 40", "shared_bytes were not predicted, it takes 0"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks"),
    [
        (256, 64, 60_960, 3),  # shared memory: 233,472 / 61,984
        (256, 65, 0, 3),  # registers: 72 of each of 256 threads
        (256, 32, 0, 8),  # threads: 2,048
        (32, 16, 0, 32),  # blocks
        (1024, 65, 0, 0),  # 73,728 registers
        (128, 32, 232_449, 0),  # more than a block may have
        (1056, 16, 0, 0),
    ],
)
def test_blocks_that_a_core_of_the_h200_holds(threads: int, registers: int, shared_bytes: int, blocks: int) -> None:
    assert blocks_of_a_core(load_chip("h200"), threads, registers, shared_bytes) == blocks


@pytest.mark.parametrize("chip", ["h200", pytest.param("a100", marks=pytest.mark.slow)])
def test_fused_kernels_take_what_their_family_predicts(request: pytest.FixtureRequest, chip: str) -> None:
    """One offer of each template; the script has all of them."""
    assert request.config.cache is not None
    compiler = find_nvcc(Path(request.config.cache.mkdir("nvcc")))
    asked = [each for network in NETWORKS for each in asked_of(network, 2, load_chip(chip), candidates=1)]
    first = {read_kernel(each.kernel)[0]: each for each in reversed(asked)}
    assert {"inverted_residual", "depthwise"} | ({"wgmma_layer"} if chip == "h200" else set()) <= first.keys()
    said: list[str] = []
    rows = measured(list(first.values()), compiler, said.append)
    assert len(rows) == len(said) == len(first)
    for row in rows:
        assert read_kernel(row["kernel"])[0] in FAMILIES
        assert row["blocks"] >= 1
        assert row["complaints"] == []


def test_equal_kernels_are_compiled_once(request: pytest.FixtureRequest) -> None:
    assert request.config.cache is not None
    compiler = find_nvcc(Path(request.config.cache.mkdir("nvcc")))
    one = next(asked_of("mobilenet_v2-mini", 1, load_chip("h200")))
    again = next(asked_of("mobilenet_v2-mini", 2, load_chip("h200")))
    assert len(measured([one, again], compiler, lambda _said: None)) == 1


def test_the_script_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network of which no kernel is looked at, a network that is not there, and a chip that is no GPU."""
    net = Network([("x", (1, 3, 9, 9))])
    net.conv("x", 3, 3)
    file = str(save(net.model(), tmp_path / "net.onnx"))
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py", "--network", file, "--chip", "h200"])
    assert kernel_resources.main() == 1
    assert "there is no kernel to judge" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py", "--network", str(tmp_path / "none.onnx")])
    assert kernel_resources.main() == 1
    assert "none.onnx" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py", "--network", file, "--chip", "stcp920"])
    assert kernel_resources.main() == 1
    assert "needs a GPU; has a chip of kind cores" in capsys.readouterr().err
