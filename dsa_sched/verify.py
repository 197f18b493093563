"""Verification: a compiled network, executed, against the user's ONNX file in onnxruntime.

    whole network   --run--> DDR: end-to-end errors, logits, constants, samples bit for bit
    isolated layers --run--> DDR: each layer's own error, fed with the reference's inputs

Values are read from the main memory of the very run being judged. The two programs differ only in where a layer reads
its inputs from: in the isolated one from copies (placements of kind `probe`), which are filled with the reference's
values before the run. Bit for bit: the target's slow emulation of its arithmetic recomputes samples of every layer from
the inputs that the run left in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from codegen.target import Execution
from dsa_sched.artifact import Artifact
from dsa_sched.driver import Compilation, CompileOptions, compile_graph, compile_model
from dsa_sched.evidence import (
    Dump,
    Feed,
    Loads,
    Samples,
    changed_constants,
    check_samples,
    computing_layers,
    logits_names,
    onnx_array,
    probe_loads,
    stored_values,
    worst_error,
)
from dsa_sched.feeds import seeded_or_given
from dsa_sched.judge import LogitsResult, judge_logits
from dsa_sched.reference import Reference
from dsa_sched.runner import execute
from dsa_sched.verdict import LayerResult, VerifyReport, failures
from dsa_sched.work import LayerWork, add_work, layer_work
from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.layers import Layer

__all__ = ["Runner", "VerifyOptions", "simulator", "verify_compiled", "verify_model"]

Progress = Callable[[str], None]
Runner = Callable[[Artifact, Loads, tuple[tuple[int, int], ...], int], Execution]
"""(artifact, bytes to place by address, ranges to read, seed) -> what the run left."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`inputs` of the network, drawn with `seed`, which also orders the cores of the simulator; `samples` outputs of
    each layer are compared bit for bit; `workers` runs at a time. With `feeds`, .npz files, nothing is drawn."""

    inputs: int = 2
    seed: int = 0
    samples: int = 2048
    workers: int = 2
    feeds: tuple[Path, ...] = ()


DEFAULTS = VerifyOptions()


def simulator(artifact: Artifact, loads: Loads, dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
    """The runner that every target brings."""
    return execute(artifact, loads, dumps, None, seed)


def verify_model(
    source: str | Path,
    chip: str | Path | Chip,
    compile_options: CompileOptions,
    options: VerifyOptions = DEFAULTS,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
) -> VerifyReport:
    """Compile a model, run it and judge the run.

    `runner` is the command of another simulator or a board (see `dsa_sched.runner`). Raises UserError for a model, chip
    or command that cannot be used and for a run that ends in a fault; wrong results are `failures` of the report.
    """
    started = perf_counter()
    whole = compile_model(source, chip, compile_options, progress)
    progress("compiling each layer by itself")
    isolated = compile_graph(whole.model, whole.chip, whole.target, replace(compile_options, isolated=True))
    feeds = seeded_or_given(whole.model.source, options)
    seconds = perf_counter() - started

    def command(artifact: Artifact, loads: Loads, dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
        return execute(artifact, loads, dumps, runner, seed)

    report = verify_compiled(whole, isolated, feeds, options, command, progress)
    return replace(report, seconds=(("compile", seconds), *report.seconds))


def verify_compiled(
    whole: Compilation,
    isolated: Compilation,
    feeds: tuple[Feed, ...],
    options: VerifyOptions = DEFAULTS,
    run: Runner = simulator,
    progress: Progress = lambda _step: None,
) -> VerifyReport:
    """Judge a compiled network and its isolated twin on at least two inputs. Raises UserError for a run that fails."""
    if len(feeds) < 2:
        raise ModelError("--inputs", needs="at least 2: the bound of the logits is a distance", has=str(len(feeds)))
    clock = _Clock()
    progress("running the reference")
    reference = Reference(whole.model.source)
    exact = tuple(reference.values(feed) for feed in feeds)
    clock.lap("reference")
    with ThreadPoolExecutor(options.workers) as pool:
        start = _Starter(pool, run, options.seed, progress)
        values = stored_values(whole)
        # Constants are read back once: they are the same for every input.
        names = [(*values, *(() if number else _constants(whole))) for number in range(len(feeds))]
        loads = [whole.artifact.encode(feed) for feed in feeds]
        stored = start(whole.artifact, loads, names, "ran the network on input")()
        clock.lap("network")
        probes = [probe_loads(isolated, *of_input) for of_input in zip(feeds, stored, exact, strict=True)]
        finish = start(isolated.artifact, probes, [values] * len(feeds), "ran each layer by itself on input")
        checks = [
            pool.submit(check_samples, whole, layer, stored, options.samples, options.seed)
            for layer in computing_layers(whole)
        ]
        alone = finish()
        progress("comparing samples bit for bit")
        samples = tuple(check.result() for check in checks)
        clock.lap("layers and samples")
    return _report(whole, _Findings(exact, stored, alone, samples), clock.laps)


@dataclass(frozen=True, slots=True)
class _Findings:
    """One entry an input: what the reference computed, what the network stored, what the isolated layers stored; one
    entry a layer: its samples."""

    exact: tuple[Feed, ...]
    stored: tuple[Dump, ...]
    alone: tuple[Dump, ...]
    samples: tuple[Samples, ...]


def _report(whole: Compilation, found: _Findings, seconds: tuple[tuple[str, float], ...]) -> VerifyReport:
    layers, logits, constants = _layer_results(whole, found), _logits(whole, found), _constants(whole)
    return VerifyReport(
        model=whole.model.graph.name,
        chip=whole.chip.name,
        level=whole.options.level,
        batch=whole.plan.batch_per_cluster,
        inputs=len(found.exact),
        layers=layers,
        logits=logits,
        constants=len(constants),
        constant_bytes=sum(len(found.stored[0][name]) for name in constants),
        program_bytes=sum(len(files.files[files.executable]) for files in whole.artifact.clusters),
        total=add_work(layer.work for layer in layers),
        failures=(*failures(layers, logits), *changed_constants(whole, found.stored[0])),
        warnings=whole.model.warnings,
        seconds=seconds,
    )


def _constants(compilation: Compilation) -> tuple[str, ...]:
    return tuple(entry.name for entry in compilation.artifact.manifest.tensors if entry.kind == "constant")


def _layer_results(whole: Compilation, found: _Findings) -> tuple[LayerResult, ...]:
    graph, work = whole.model.graph, layer_work(whole.program, whole.chip, whole.plan)

    def result(layer: Layer, samples: Samples) -> LayerResult:
        return LayerResult(
            name=layer.name,
            operators=tuple(graph.op_by_name[name].source for name in layer.ops),
            output=layer.output,
            work=work.get(layer.name, LayerWork({}, {}, {}, {})),
            isolated_error=worst_error(whole, layer.output, found.alone, found.exact),
            whole_error=worst_error(whole, layer.output, found.stored, found.exact),
            samples=samples.count,
            samples_wrong=samples.wrong,
            first_wrong=samples.first,
        )

    return tuple(result(*pair) for pair in zip(computing_layers(whole), found.samples, strict=True))


def _logits(whole: Compilation, found: _Findings) -> tuple[LogitsResult, ...]:
    graph = whole.model.graph
    return tuple(
        result
        for name in logits_names(graph, found.exact[0])
        for result in judge_logits(
            name,
            tuple(onnx_array(whole.artifact, name, dump) for dump in found.stored),
            tuple(values[name] for values in found.exact),
        )
    )


class _Clock:
    """Wall-clock seconds between laps, by name."""

    def __init__(self) -> None:
        self._last = perf_counter()
        self.laps: tuple[tuple[str, float], ...] = ()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps = (*self.laps, (name, now - self._last))
        self._last = now


@dataclass(frozen=True, slots=True)
class _Starter:
    """Starts one run an input in the pool; the function that comes back waits for what they left, by tensor."""

    pool: ThreadPoolExecutor
    run: Runner
    seed: int
    progress: Progress

    def __call__(
        self, artifact: Artifact, loads: Sequence[Loads], names: Sequence[tuple[str, ...]], say: str
    ) -> Callable[[], tuple[Dump, ...]]:
        entries = {entry.name: (entry.address, entry.bytes) for entry in artifact.manifest.tensors}
        # Views lie where their source lies, so a range may serve several names.
        ranges = [tuple(dict.fromkeys(entries[name] for name in wanted)) for wanted in names]
        jobs = [
            self.pool.submit(self.run, artifact, load, dumps, self.seed + number)
            for number, (load, dumps) in enumerate(zip(loads, ranges, strict=True))
        ]

        def wait() -> tuple[Dump, ...]:
            dumps: list[Dump] = []
            for job, wanted in zip(jobs, names, strict=True):
                memory = job.result().memory
                dumps.append({name: memory[entries[name]] for name in wanted})
                self.progress(f"{say} {len(dumps)} of {len(jobs)}")
            return tuple(dumps)

        return wait
