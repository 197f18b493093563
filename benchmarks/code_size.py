"""Size of the machine code with and without loops, and what fetching it costs: `python benchmarks/code_size.py`.

Each network is compiled once (O3, scheduled, for one cluster), and its program emitted in both forms: straight, each
core its own instructions one after the other, and rolled, with loops and one text for all cores. Both must ask the same
of every engine of every core in the same order, or the benchmark ends.

Seconds are processor time. Keys of a row:

    network, batch, form                 `straight` or `rolled`
    text_bytes, elf_bytes                of the code of all cores together, of the whole executable
    scalar_instructions                  executed by all cores
    compile_s, emit_s                    from the model file to the program; from the program to the files
    trace_s                              the simulator's scalar cores run the code, engines only note what is asked
    run_s                                with --run: the whole simulation of one pass, null without
    lines_cold, lines_warm               lines of code that the instruction caches of all cores lack, in a first run
                                         and in one after an equal one
    cycles                               misses cost nothing
    cycles_cold, cycles_warm             a miss costs `miss_cycles`, so that cold straight-line code takes 18.5 cycles
                                         an instruction; lines load the DDR
    cold_loss                            share of the throughput that misses cost in a first run
    rolling_share                        what loops add to the time from the model file to the files, as a share of it
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import add_outputs, finish, keep, table
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.trace.trace import trace_elf
from codegen.riscv.elf import read_elf
from codegen.target import ClusterFiles
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.gc_pause import uncollected
from hw_models.chip import Chip
from hw_models.loading import load_chip
from hw_models.parts import ScalarEngine
from isched.program.timed_ops import IssueCost, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from partitioner.planners.levels import planner_or_auto

NETWORKS = ("squeezenet:4", "bert_base-mini:4", "unet:1", "resnet50:16", "densenet121:8")
MISS_CYCLES = 140.0
"""Eight instructions a line: (8 + 140) / 8 = 18.5 cycles each, between the 18 and 19 of the vendor's profile."""


@dataclass(frozen=True)
class Row:
    """Figures of one form of one network; see above."""

    network: str
    batch: int
    form: str
    text_bytes: int
    elf_bytes: int
    scalar_instructions: int
    compile_s: float
    emit_s: float
    trace_s: float
    run_s: float | None
    lines_cold: int
    lines_warm: int
    cycles: float
    cycles_cold: float
    cycles_warm: float
    cold_loss: float
    rolling_share: float | None = None


def with_misses(chip: Chip, miss_cycles: float) -> Chip:
    """The chip whose misses cost so much."""
    engines = []
    for engine in chip.engines:
        if isinstance(engine, ScalarEngine) and engine.instruction_cache is not None:
            cache = engine.instruction_cache.model_copy(update={"miss_cycles": miss_cycles})
            engine = engine.model_copy(update={"instruction_cache": cache})
        engines.append(engine)
    return chip.model_copy(update={"engines": tuple(engines)})


def asked(streams: Sequence[TimedStream]) -> Iterator[list[TimedOp]]:
    """What each core asks, without the scalar instructions that lead to it; equal ops once made stay one object."""
    known: dict[int, TimedOp] = {}
    for stream in streams:
        for op in stream.ops:
            if id(op) not in known:
                known[id(op)] = replace(op, issue=IssueCost(0, 0, op.issue.period))
        yield [known[id(op)] for op in stream.ops]


def measured(
    made: Compilation, network: str, form: str, chip: Chip, compile_s: float, run: bool
) -> tuple[Row, tuple[TimedStream, ...]]:
    """One form of a program, emitted, traced and timed."""
    emit = TARGET.emit if form == "straight" else TARGET.emit_rolled
    start = time.process_time()
    files = emit(made.program, made.model.graph, made.model.constants, chip)
    emit_s = time.process_time() - start
    elf = files.files[files.executable]
    start = time.process_time()
    cold = trace_elf(elf, files.cores, chip)
    trace_s = time.process_time() - start
    warm = trace_elf(elf, files.cores, chip, warm=True)
    costly = with_misses(chip, MISS_CYCLES)
    free, first, again = time_streams(cold, chip), time_streams(cold, costly), time_streams(warm, costly)
    text = sum(len(segment.data) for segment in read_elf(elf).segments if segment.executable)
    row = Row(
        network=network,
        batch=made.rows,
        form=form,
        text_bytes=text,
        elf_bytes=len(elf),
        scalar_instructions=sum(count for stream in cold for count in _scalar(stream)),
        compile_s=compile_s,
        emit_s=emit_s,
        trace_s=trace_s,
        run_s=_run_seconds(made, files) if run else None,
        lines_cold=sum(first.fetched_lines),
        lines_warm=sum(again.fetched_lines),
        cycles=free.cycles,
        cycles_cold=first.cycles,
        cycles_warm=again.cycles,
        cold_loss=1 - free.cycles / first.cycles,
    )
    return row, cold


def _scalar(stream: TimedStream) -> Iterator[int]:
    """Scalar instructions on the way to each op, and behind the last."""
    yield from (op.issue.before + op.issue.after for op in stream.ops)
    yield stream.end


def _run_seconds(made: Compilation, files: ClusterFiles) -> float:
    """One pass on the simulator, all inputs zero."""
    inputs = [placement for placement in made.program.placements if placement.kind == "input"]
    loads = {TARGET.address("DDR", place.offset_bytes): bytes(place.size_bytes) for place in inputs}
    start = time.process_time()
    TARGET.run(files, loads, (), 0)
    return time.process_time() - start


@uncollected()
def both_forms(network: str, batch: int, level: str, run: bool) -> tuple[Row, Row]:
    """Raises SystemExit where the two forms ask different things."""
    chip = load_chip("stcp920")
    start = time.process_time()
    made = compile_model(network, chip, CompileOptions(planner_or_auto(level), batch, schedule=True, effort="fast"))
    compile_s = time.process_time() - start
    straight, ours = measured(made, network, "straight", chip, compile_s, run)
    rolled, theirs = measured(made, network, "rolled", chip, compile_s, run)
    for number, (one, other) in enumerate(zip(asked(ours), asked(theirs), strict=True)):
        if one != other:
            raise SystemExit(f"{network}: core {number} is asked something else by the rolled form")
    share = (rolled.emit_s - straight.emit_s) / (compile_s + straight.emit_s)
    return straight, replace(rolled, rolling_share=share)


def markdown(rows: Sequence[Row]) -> str:
    """The figures as two tables."""
    sizes = table(
        ("network", "batch", "form", "text KB", "ELF MB", "scalar", "compile s", "emit s", "loops add",
         "trace s", "run s"),
        [
            (r.network, str(r.batch), r.form, f"{r.text_bytes / 1e3:,.1f}", f"{r.elf_bytes / 1e6:.2f}",
             f"{r.scalar_instructions:,}", f"{r.compile_s:.1f}", f"{r.emit_s:.2f}",
             "" if r.rolling_share is None else f"{r.rolling_share:.1%}", f"{r.trace_s:.1f}",
             "" if r.run_s is None else f"{r.run_s:.1f}")
            for r in rows
        ],
    )  # fmt: skip
    costs = table(
        ("network", "batch", "form", "lines cold", "warm", "cycles", "cold", "warm", "throughput lost cold"),
        [
            (r.network, str(r.batch), r.form, f"{r.lines_cold:,}", f"{r.lines_warm:,}", f"{r.cycles:,.0f}",
             f"{r.cycles_cold:,.0f}", f"{r.cycles_warm:,.0f}", f"{r.cold_loss:.2%}")
            for r in rows
        ],
    )  # fmt: skip
    return (
        "# Size of the machine code, and what fetching it costs\n\n"
        "By `python benchmarks/code_size.py`, where the columns are explained. One cluster; text of all cores\n"
        f"together, seconds of processor time.\n\n{sizes}\n\n"
        f"Cycles where misses cost nothing, and with {MISS_CYCLES:g} cycles a line of 32 bytes, in a first run (cold)\n"
        f"and in one after an equal one (warm):\n\n{costs}\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="NETWORK:BATCH, commas between")
    parser.add_argument("--level", default="O3")
    parser.add_argument("--run", action="store_true", help="simulate each form whole, which takes minutes")
    add_outputs(parser)
    options = parser.parse_args(arguments)
    rows: list[Row] = []

    def figures() -> dict[str, object]:
        return {"miss_cycles": MISS_CYCLES, "rows": [asdict(row) for row in rows]}

    for network, _, batch in (item.partition(":") for item in options.networks.split(",")):
        rows += both_forms(network, int(batch or 1), options.level, options.run)
        keep(options, figures())
    finish(options, figures(), markdown(rows))


if __name__ == "__main__":
    main()
