"""Runs on a GPU what a pack has: `python benchmarks/gpu/steps.py PACK [--out FOLDER] [--only STEP,...]`.

    right      every network, every group, within its bound of float64
    rates      bandwidths and products that this GPU reaches, for the chip file
    case-study blocks and networks by a kernel a layer, by pairs, by fused kernels and by PyTorch
    networks   whole networks as one CUDA graph, beside PyTorch where it is there
    kernels    each group's time beside its floor
    order      candidates of single groups: do floors order them as times do
    fit        floors of networks by the rates that were measured, beside what they took; rates of kinds of kernels
    streams    stages of kernels side by side on several streams
    together   a processor and the GPU at the same time, on independent paths of a network
    sanitizer  small networks under compute-sanitizer where it is there

Python, NumPy and cuda-bindings are needed; PyTorch and compute-sanitizer are used where they are. `--rehearse` runs the
same on the executor of PTX, with a pack that has PTX, and keeps no times.

Every step writes one file, gpu_STEP.json, row by row. What a file has of the same pack is not done again, so a run that
was stopped goes on where it was. Steps come in the order of their worth; all of them take 20 minutes at most, and
`--seconds` ends earlier, between two rows. `--rows REGEX` makes some of a step's rows, as its printed keys have them.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for packages that are not installed

import numpy as np

from benchmarks.gpu import (
    candidate_order,
    case_times,
    fit,
    kernel_times,
    network_times,
    rates,
    right,
    sanitizer,
    streams,
    together,
)
from benchmarks.gpu.bench import Bench, Item, Results, Row, Step, left
from benchmarks.gpu.clocks import sm_clock_mhz
from benchmarks.gpu.store import Pack, checkout_hash, read_pack
from codegen.cutlass.runner.runner import CudaDriver, RunnerError
from hw_models.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
STEPS = (
    Step("right", 150, right.items, right.lines, right.wrong),
    Step("rates", 30, rates.items, rates.lines),
    Step("case-study", 270, case_times.items, case_times.lines, case_times.wrong),
    Step("networks", 210, network_times.items, network_times.lines),
    Step("kernels", 160, kernel_times.items, kernel_times.lines, kernel_times.wrong),
    Step("order", 120, candidate_order.items, candidate_order.lines),
    Step("fit", 10, fit.items, fit.lines, keeps=False),
    Step("streams", 70, streams.items, streams.lines, streams.wrong),
    Step("together", 50, together.items, together.lines, together.wrong),
    Step("sanitizer", 40, sanitizer.items, sanitizer.lines),
)
MOST_SECONDS = 480
"""Of a step."""
START_AGAIN = 75
"""Exit code of a process whose GPU can no longer be used: the step goes on in a new one."""
MOST_STARTS = 40
LONGEST_ROW_SECONDS = 120
"""That a row which was begun in time may go on after it."""


def run_step(step: Step, bench: Bench, results: Results, seconds: float) -> bool:
    """Rows that are missing, until time is up. True when an error may have spoilt the GPU for this process."""
    deadline = time.monotonic() + seconds
    known = results.keys
    left_out = False
    for item in step.items(bench):
        if item.key in known:
            continue
        if not re.search(bench.rows_like, item.key):
            left_out = True
            continue
        if left(deadline) <= 0:
            bench.say(f"{step.name}: time is up, {len(results.rows)} rows are kept")
            return False
        begin = time.monotonic()
        row = _worked(item)
        results.add(row if bench.rehearse else {**row, "sm_clock_mhz": sm_clock_mhz()})
        said = step.wrong(row) or str(row.get("skipped", "")) or "done"
        bench.say(f"{step.name}: {item.key}: {said} ({time.monotonic() - begin:.1f} s)")
        if "error" in row and not bench.rehearse:
            return True
    results.done = not left_out
    results.write()
    return False


def _worked(item: Item) -> Row:
    """A row, whatever happens: time on a GPU is not lost to one network."""
    try:
        return {"key": item.key, **item.work()}
    except (UserError, RunnerError) as error:
        return {"key": item.key, "error": str(error)}
    except Exception as error:
        return {"key": item.key, "error": f"{type(error).__name__}: {error}"}


def _head(step: Step, pack: Pack, *, rehearse: bool) -> Row:
    machine = "executor of PTX" if rehearse else _gpu("name,driver_version")
    return {"step": step.name, "pack": pack.hash, "machine": machine}


def _gpu(fields: str) -> str:
    """By nvidia-smi, which takes no memory of the GPU; "unknown" where it says nothing."""
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next(iter(done.stdout.strip().splitlines()), "unknown")


def _chip_here(pack: Pack, name: str) -> str | None:
    """The chip of the pack whose name is a part of the GPU's; None where none is: then rows of all chips are made."""
    known = sorted({program.chip for program in pack.programs}, key=len, reverse=True)
    return next((chip for chip in known if chip in name.lower()), None)


def _again(step: Step, options: argparse.Namespace, seconds: float) -> int | None:
    """The step in a process of its own, so that what it does to a GPU goes with it: its exit code, or None for one
    that did not end."""
    command = [sys.executable, str(Path(__file__).resolve()), str(options.pack), "--alone", step.name]
    command += ["--out", str(options.out), "--seconds", str(max(1, int(seconds)))]
    command += ["--no-torch"] if options.no_torch else []
    command += ["--rows", options.rows] if options.rows else []
    command += ["--unfolded", str(options.unfolded)] if options.unfolded else []
    try:
        return subprocess.run(command, check=False, timeout=seconds + LONGEST_ROW_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return None


def _alone(step: Step, bench: Bench, out: Path, seconds: float) -> int:
    results = _begun(step, bench, out)
    return START_AGAIN if run_step(step, bench, results, seconds) else 0


def _opened(step: Step, bench: Bench, out: Path) -> Results:
    return Results.opened(out / f"gpu_{step.name}.json", _head(step, bench.pack, rehearse=bench.rehearse))


def _begun(step: Step, bench: Bench, out: Path) -> Results:
    """What is there; nothing of a step that is to be made anew."""
    found = _opened(step, bench, out)
    return found if step.keeps else Results(found.path, found.head)


def _run(step: Step, bench: Bench, options: argparse.Namespace, seconds: float) -> None:
    if bench.rehearse:
        _alone(step, bench, options.out, seconds)
        return
    deadline = time.monotonic() + seconds
    for _ in range(MOST_STARTS):
        code = _again(step, options, left(deadline))
        if code not in (0, START_AGAIN):
            _lost(step, bench, options.out, "did not end" if code is None else f"ended with code {code}")
        if code == 0 or left(deadline) <= 0:
            return


def _lost(step: Step, bench: Bench, out: Path, said: str) -> None:
    """A row for the item in which a process was lost, so that the next one goes on behind it."""
    results = _opened(step, bench, out)
    for item in step.items(bench):
        if item.key not in results.keys and re.search(bench.rows_like, item.key):
            bench.say(f"{step.name}: {item.key}: the process {said}")
            results.add({"key": item.key, "error": f"the process {said}"})
            return


def _summary(steps: Sequence[Step], bench: Bench, out: Path) -> bool:
    """Tables of all that is there; whether all is well."""
    well = True
    for step in steps:
        results = _opened(step, bench, out)
        bench.say(f"\n## {step.name}{'' if results.done else ': not finished'}\n")
        for line in step.lines(results.rows):
            bench.say(line)
        well = well and results.done and not any(step.wrong(row) for row in results.rows)
    for entry in bench.pack.manifest["left_out"]:
        bench.say(f"\nnot in the pack: {entry['network']}, batch {entry['batch']}: {entry['reason']}")
    return well


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measures a pack on a GPU, or rehearses it without one.")
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder that benchmarks/gpu/pack.py has built")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results"),
                        metavar="FOLDER", help="of the results (default $OUT, or benchmarks/results)")  # fmt: skip
    parser.add_argument("--rehearse", action="store_true", help="on the executor of PTX")
    parser.add_argument("--only", metavar="STEP,...", help=f"of {', '.join(step.name for step in STEPS)}")
    parser.add_argument("--seconds", type=float, default=1200, metavar="S", help="for all steps (default 1200)")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose key has it in it")
    parser.add_argument("--unfolded", type=Path, metavar="FOLDER",
                        help="keeps programs with their weights there, for steps and runs to come")  # fmt: skip
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--any-checkout", action="store_true", help="with a pack of another checkout too")
    parser.add_argument("--alone", metavar="STEP", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = [step.name for step in STEPS]
    wanted = [options.alone] if options.alone else options.only.split(",") if options.only else names
    try:
        if unknown := sorted(set(wanted) - set(names)):
            raise UserError("--only", needs=f"steps of {', '.join(names)}", has=", ".join(unknown))
        _compiled(options.rows)
        pack = replace(read_pack(options.pack), kept=options.unfolded)
        _check(pack, options)
        if not options.rehearse:
            CudaDriver().close()  # that there is a GPU
    except (UserError, RunnerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    chip = None if options.rehearse else _chip_here(pack, _gpu("name"))
    bench = Bench(pack, options.rehearse, lambda said: print(said, flush=True), not options.no_torch, options.out,
                  chip, options.rows)  # fmt: skip
    steps = [step for step in STEPS if step.name in wanted]
    if options.alone:
        return _alone(steps[0], bench, options.out, options.seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    bench.say(f"Python {platform.python_version()}, NumPy {np.__version__}, pack {pack.hash[:12]}")
    if chip is None and not options.rehearse:
        bench.say(f"{_gpu('name')}: the pack has no chip file of this name, so floors are those of other GPUs")
    for step in steps:
        if left(deadline) > 0:
            _run(step, bench, options, min(step.seconds, MOST_SECONDS, left(deadline)))
    return 0 if _summary(steps, bench, options.out) else 1


def _compiled(rows: str) -> None:
    """Raises UserError for what is no regular expression."""
    try:
        re.compile(rows)
    except re.error as error:
        raise UserError("--rows", needs="a regular expression", has=f"{rows[:80]} ({error})") from error


def _check(pack: Pack, options: argparse.Namespace) -> None:
    """Raises UserError for a pack that this run cannot use."""
    needed = "ptx" if options.rehearse else "cubin"
    if pack.manifest["code"] != needed:
        change = "build it with --ptx" if options.rehearse else "build it without --ptx"
        raise UserError(f"{pack.folder}", needs=f"a pack with {needed}", has=str(pack.manifest["code"]), change=change)
    if not options.any_checkout and not options.alone and pack.manifest["checkout"] != checkout_hash(ROOT):
        raise UserError(f"{pack.folder}", needs="a pack of this checkout", has="one of another",
                        change="build it again, or give --any-checkout")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
