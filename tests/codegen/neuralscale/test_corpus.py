"""Programs whose results came from the vendor's public simulator: ours must give the same bits and exit codes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.memory.memory import POISON_BYTE
from codegen.neuralscale.simulator.options import SimulationOptions, SimulationResult

CORPUS = Path(__file__).parents[2] / "corpus"

# Programs that read memory that nothing wrote, counting on zeros, which --poison must and does refuse.
READS_UNWRITTEN = frozenset(
    {
        *("veadd_mm_3", "veadd_mv_dim_h_3", "vesub_mm_3", "velkrelu_mf_3"),
        *("mov_l1_llb_1", "mov_l1_llb_2", "mov_l1_llb_3"),
        *("rv32_loadstore", "mc_counter_2", "mc_counter_8", "mc_sync_group_0", "mc_sync_group_1"),
        *("mc_icmov_len_0", "mc_icmov_len_1", "mc_icmov_len_4", "mc_icmov_all_to_one", "mc_icmov_zero"),
    }
)


@dataclass(frozen=True, slots=True)
class Dump:
    """A strict dump: what must lie where."""

    address: int
    expected: bytes


@dataclass(frozen=True, slots=True)
class Case:
    """One program."""

    name: str
    cores: int
    exit_code: int
    dumps: tuple[Dump, ...]

    @property
    def elf(self) -> bytes:
        return (CORPUS / "elf" / f"{self.name}.elf").read_bytes()


def _case(entry: dict[str, Any]) -> Case:
    blob = (CORPUS / entry["expected"]).read_bytes() if entry["dumps"] else b""
    dumps = tuple(
        Dump(int(dump["addr"], 16), blob[dump["offset"] : dump["offset"] + dump["length"]])
        for dump in entry["dumps"]
        if dump["strict"]
    )
    return Case(entry["name"], entry["cores"], entry["exit_code"], dumps)


CASES = tuple(_case(entry) for entry in json.loads((CORPUS / "manifest.json").read_text())["cases"])
SEVERAL_CORES = tuple(case for case in CASES if case.cores > 1)
TRANSFERS = tuple(case for case in CASES if case.cores == 1 and case.name.startswith(("dma_", "mov_", "conv", "fused")))


def _name(case: Case) -> str:
    return case.name


def _run(case: Case, *, seed: int = 0, poison: bool = False) -> SimulationResult:
    options = SimulationOptions(cores=case.cores, max_instructions=50_000_000, seed=seed, poison=poison)
    return simulate(case.elf, options)


def _compare(case: Case, result: SimulationResult) -> None:
    assert result.fault is None
    assert result.exit_code == case.exit_code
    for dump in case.dumps:
        assert result.read(dump.address, len(dump.expected)) == dump.expected, f"{dump.address:#x}"


def test_the_corpus_is_whole() -> None:
    assert len(CASES) == 274
    assert len(SEVERAL_CORES) >= 20
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_program(case: Case) -> None:
    _compare(case, _run(case))


@pytest.mark.parametrize("case", SEVERAL_CORES + TRANSFERS, ids=_name)
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_seed_changes_nothing(case: Case, seed: int) -> None:
    _compare(case, _run(case, seed=seed))


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_poison_changes_nothing_or_names_the_read(case: Case) -> None:
    result = _run(case, poison=True)
    if case.name in READS_UNWRITTEN:
        assert result.fault is not None
        assert result.fault.kind == "poison"
        assert result.exit_code == 126
        assert "which nothing has written" in result.fault.message
        return
    assert result.fault is None
    assert result.exit_code == case.exit_code
    for dump in case.dumps:
        pairs = zip(result.read(dump.address, len(dump.expected)), dump.expected, strict=True)
        assert all(got == want or (got == POISON_BYTE and want == 0) for got, want in pairs), f"{dump.address:#x}"
