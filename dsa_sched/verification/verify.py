"""Verification: an artifact, executed, against the user's ONNX file in onnxruntime.

    artifact        --run--> outputs    ==    those of its twin, bit for bit
    twin            --run--> DDR: end-to-end errors, logits, constants, samples bit for bit
    isolated layers --run--> DDR: each layer's own error, fed with the reference's inputs

The artifact is what `compile` writes, to the byte. Its twin is the same plan, lowered such that every value in the main
memory keeps a place of its own; what the twin's outputs are judged to be, the artifact's are. Values are read from the
main memory of the very run being judged. Twin and isolated layers differ only in where a layer reads its inputs from:
in the isolated one from copies (placements of kind `probe`), which are filled with the reference's values before the
run. The target's slow emulation of its arithmetic recomputes samples of every layer from the inputs
that the run left in memory: bit for bit, or within the bound that the target gives (`codegen/judgement.py`).

Levels beyond O0 do not store every value. There a third program, the network at O0, is judged as above, and all that
the level stores must be what O0 stores, bit for bit, or within the bound of a target that gives one.

    level O2 --run--> DDR: the outputs and some more    ==    the same values of O0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from codegen.judgement import BitExact
from codegen.target import Execution
from dsa_sched.analysis.figures import ProgramWork, compiled_work, program_figures, shipped_work
from dsa_sched.analysis.work import NO_WORK, LayerWork, TimedWork, add_work
from dsa_sched.artifact.format import Artifact, same_programs
from dsa_sched.artifact.runner import execute
from dsa_sched.frontend import Model
from dsa_sched.pipeline.driver import compile_clusters, compile_plan, plan_graph
from dsa_sched.pipeline.rebuild import built_again, reloaded
from dsa_sched.stages.compilation import Compilation, CompileOptions, gather_artifact
from dsa_sched.verification.doubts import doubts_of
from dsa_sched.verification.evidence import (
    Array,
    Dump,
    Feed,
    Loads,
    changed_constants,
    compare_levels,
    compare_shipped,
    compared_name,
    computed_values,
    computing_layers,
    file_array,
    file_name,
    isolated_shares,
    isolated_steps,
    logits_names,
    misshapen_outputs,
    of_file,
    probe_loads,
    step_of,
    stored_values,
    worst_error,
)
from dsa_sched.verification.extreme_inputs import Extreme, extreme_inputs
from dsa_sched.verification.extremes import end_names, judge_extreme, not_judged, planned_extremes
from dsa_sched.verification.feed_range import range_warnings
from dsa_sched.verification.file_constants import compare_constants
from dsa_sched.verification.floors import Floors, start_floors, stored_type
from dsa_sched.verification.inputs import seeded_or_given
from dsa_sched.verification.masked_values import held_in_range, leaves_range
from dsa_sched.verification.onnx_reference import OnnxReference, RefusedInput
from dsa_sched.verification.prepared_values import as_given, prepared_names, wrong_prepared
from dsa_sched.verification.samples import SampledValues, Samples, check_level, check_samples
from dsa_sched.verification.tolerances import LAYER_BOUND, LogitsResult, judge_logits
from dsa_sched.verification.value_ranges import range_sentences
from dsa_sched.verification.verdict import (
    BoundedLevelResult,
    ExtremeResult,
    LayerResult,
    LevelResult,
    ShippedResult,
    VerifyReport,
    failures,
    level_failures,
    shipped_failures,
)
from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.ir.layers import Layer
from partitioner.planners.levels import O0

Progress = Callable[[str], None]
Runner = Callable[[Artifact, Loads, tuple[tuple[int, int], ...], int], Execution]
"""(artifact, bytes to place by address, ranges to read, seed) -> what the run left."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`inputs` of the network, drawn with `seed`, which also orders the cores of the simulator; `samples` outputs of
    each layer are compared bit for bit; at most `workers` runs go on at once. With `feeds`, .npz files, nothing is
    drawn.
    """

    inputs: int = 2
    seed: int = 0
    samples: int = 2048
    workers: int = 2
    feeds: tuple[Path, ...] = ()


DEFAULTS = VerifyOptions()


def command_runner(command: str | None) -> Runner:
    """The runner that starts a command (see `dsa_sched.artifact.runner`); the target's own where there is none."""

    def run(artifact: Artifact, loads: Loads, dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
        return execute(artifact, loads, dumps, command, seed)

    return run


simulator = command_runner(None)
"""The runner that comes with every target."""


def verify_model(
    source: str | Path,
    chip: str | Path | Chip,
    compile_options: CompileOptions,
    options: VerifyOptions = DEFAULTS,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
) -> VerifyReport:
    """Compile a model, run it and judge the run.

    `runner` is the command of another simulator or a board (see `dsa_sched.artifact.runner`). Raises UserError for a
    model, chip or command that cannot be used and for a run that ends in a fault; wrong results are `failures` of the
    report.
    """
    started = perf_counter()
    parts = compile_clusters(source, chip, compile_options, progress)
    artifact = gather_artifact(parts, source, compile_options)
    return _verified(artifact, parts[0].model, options, runner, progress, started)


def verify_artifact(
    artifact: Artifact,
    source: str | Path | None = None,
    options: VerifyOptions = DEFAULTS,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
    timed: TimedWork | None = None,
) -> VerifyReport:
    """Run an artifact and judge the run: one pass of its first program. The model is read again from where it was when
    the artifact was compiled, or from `source`. The artifact is not timed where the work of that program is given as
    `timed`. Raises as `verify_model` does, and TargetError for an artifact that
    does not tell what it was made of.
    """
    started = perf_counter()
    progress("reading the model")
    return _verified(artifact, reloaded(artifact, source), options, runner, progress, started, timed)


def _verified(
    artifact: Artifact,
    model: Model,
    options: VerifyOptions,
    runner: str | None,
    progress: Progress,
    started: float,
    timed: TimedWork | None = None,
) -> VerifyReport:
    progress("compiling the same plan with all values kept")
    whole = built_again(artifact, model, keep_values=True)
    isolated, plain = reference_builds(whole, progress)
    drawn = seeded_or_given(whole.model.source, options)
    extremes = () if options.feeds else extreme_inputs(whole.model.source, drawn.feeds, options.seed)
    run = command_runner(runner)
    seconds = perf_counter() - started
    report = verify_compiled(whole, isolated, drawn.feeds, options, run, progress, plain, extremes, artifact, timed)
    warnings = (*report.warnings, *drawn.warnings)
    return replace(report, warnings=warnings, seconds=(("compile", seconds), *report.seconds))


def reference_builds(
    whole: Compilation, progress: Progress = lambda _step: None
) -> tuple[Compilation, Compilation | None]:
    """The builds that a run is judged by: the network with each layer by itself; and the network at level O0, in the
    plan's order and without loops, unless `whole` is that already."""

    planned = plan_graph(whole.model, whole.chip, whole.target, O0())

    def twin(wanted: CompileOptions) -> Compilation:
        return compile_plan(planned, wanted)

    options = whole.options
    at_o0 = replace(
        options,
        planner=O0(),
        keep_values=True,
        schedule=False,
        force_groups=(),
        slices=None,
        tune=False,
        roll=False,
    )
    progress("compiling each layer by itself")
    isolated = twin(replace(at_o0, isolated=True))
    asked = options.schedule or options.roll or options.force_groups or options.slices
    if whole.plan.level == O0.name and not asked:
        return isolated, None
    progress(f"compiling at level {O0.name}")
    return isolated, twin(at_o0)


def verify_compiled(
    whole: Compilation,
    isolated: Compilation,
    feeds: tuple[Feed, ...],
    options: VerifyOptions = DEFAULTS,
    run: Runner = simulator,
    progress: Progress = lambda _step: None,
    plain: Compilation | None = None,
    extremes: tuple[Extreme, ...] = (),
    shipped: Artifact | None = None,
    timed: TimedWork | None = None,
) -> VerifyReport:
    """Judge a compiled network together with its isolated twin. Raises UserError for a run that fails.

    `whole` is the twin of what is `shipped`, whose outputs must be the twin's, and whose figures are reported, with the
    `timed` work of its first program where that is known; without it, `whole` is what is judged.

    With `plain`, the same network at level O0, layers are judged in its run, and what `whole` stores is compared to it.
    Of `extremes` only the outputs of `whole` are judged.

    Raises ModelError for options that do not fit what was compiled, RefusedInput for inputs that onnxruntime refuses.
    """
    if len(feeds) < 2 and not options.feeds:
        raise ModelError(
            "--inputs",
            needs="at least 2, because the bound of the logits is a distance between outputs",
            has=str(len(feeds)),
        )
    clock = _Clock()
    progress("running the reference")
    reference = OnnxReference(whole.model.source)
    exact = tuple(reference.values(feed) for feed in feeds)
    neighbours = _neighbours(reference, feeds) if _alike(feeds) else ()
    dtype = stored_type(whole.model.graph)
    work = _work(whole, shipped, timed) if extremes else None
    planned = planned_extremes(whole, reference, extremes, dtype, work.figures.cycles if work else None)
    far = tuple(each for each in planned if not each.reason)
    clock.lap("reference")
    with ThreadPoolExecutor(options.workers) as pool:
        start = _Starter(pool, run, options.seed, progress)
        # Constants are read back once: they are the same for every input.
        always = tuple(dict.fromkeys((*stored_values(whole), *prepared_names(whole))))
        names = [(*always, *(() if number else _constants(whole))) for number in range(len(feeds))]
        loads = [whole.artifact.encode(feed) for feed in feeds]
        finish_shipped = None
        if shipped is not None and not same_programs(shipped, whole.artifact):
            ends_of = tuple(entry.name for entry in shipped.manifest.outputs)
            of_feeds = [shipped.encode(feed) for feed in feeds]
            finish_shipped = start(shipped, of_feeds, [ends_of] * len(feeds), "ran the artifact on input")
        ours = stored = as_given(whole, start(whole.artifact, loads, names, "ran the network on input")(), loads)
        outputs = finish_shipped() if finish_shipped is not None else None
        same = compare_shipped(shipped, outputs, ours) if shipped is not None else None
        clock.lap("network")
        judged = plain or whole
        ends = end_names(whole, exact[0]) if far else ()
        rounding = start_floors(judged, exact, pool, tuple(each.exact for each in far), ends)
        beyond = [whole.artifact.encode(each.extreme.feed) for each in far]
        extreme = start(whole.artifact, beyond, [ends] * len(far), "ran the network on inputs of extreme size")
        values = stored_values(judged)
        if plain:
            loads = [plain.artifact.encode(feed) for feed in feeds]
            done = start(plain.artifact, loads, [values] * len(feeds), f"ran level {O0.name} on input")()
            stored = as_given(plain, done, loads)
            clock.lap(f"level {O0.name}")
        probes = [probe_loads(isolated, *of_input) for of_input in zip(feeds, stored, exact, strict=True)]
        finish = start(isolated.artifact, probes, [values] * len(feeds), "ran each layer by itself on input")
        runs = tuple(SampledValues(judged, dump) for dump in stored)
        checks = [
            pool.submit(check_samples, layer, runs, options.samples, options.seed) for layer in computing_layers(judged)
        ]
        alone, dumps = finish(), extreme()
        exact_target = isinstance(whole.target.judgement, BitExact)
        progress("comparing samples bit for bit" if exact_target else "comparing samples by the target's bound")
        samples = tuple(check.result() for check in checks)
        clock.lap("layers and samples")
        progress("rounding the reference")
        floors = rounding()
        clock.lap("rounding")
        levels = _levels(whole, ours, stored, options) if plain else None
    found = zip(far, dumps, floors.extremes, strict=True)
    results = {id(each): judge_extreme(whole, each, dump, of_end, ends, dtype) for each, dump, of_end in found}
    said = tuple(results.get(id(each)) or not_judged(each) for each in planned)
    findings = _Findings(exact, neighbours, ours, stored, alone, samples, floors, levels, said, same)
    work = work or _work(whole, shipped, timed)
    return _report(whole, judged, findings, work, clock.laps, shipped)


def _work(whole: Compilation, shipped: Artifact | None, timed: TimedWork | None) -> ProgramWork:
    """Figures of what is shipped, or of `whole` where that is what is judged."""
    if shipped is None:
        return ProgramWork(program_figures(whole), compiled_work(whole))
    return shipped_work(shipped, whole, timed)


def _alike(feeds: Sequence[Feed]) -> bool:
    """Whether no two of these inputs differ."""
    return all(np.array_equal(feed[name], feeds[0][name]) for feed in feeds[1:] for name in feed)


def _neighbours(reference: OnnxReference, feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """The reference for the elements of the given inputs in another order: these outputs tell how far apart outputs of
    such numbers are. Empty where onnxruntime refuses them.
    """
    rolled = {
        name: np.roll(array.reshape(-1), array.size // 3 + 1).reshape(array.shape) for name, array in feeds[0].items()
    }
    try:
        return (reference.values(rolled),)
    except RefusedInput:
        return ()


def _levels(
    whole: Compilation, ours: tuple[Dump, ...], plain: tuple[Dump, ...], options: VerifyOptions
) -> LevelResult | BoundedLevelResult:
    """Compare with the values that O0 stores, bit for bit or within the target's bound."""
    if isinstance(whole.target.judgement, BitExact):
        return compare_levels(whole, ours, plain)
    return check_level(whole, ours, options.samples, options.seed)


@dataclass(frozen=True, slots=True)
class _Findings:
    """One entry per input: what the reference computed, what the network stored, what it stored at level O0, what the
    isolated layers stored; one entry per layer: its samples. `neighbours` are the reference for other inputs, `floors`
    is the effect of rounding on the reference, `levels` the comparison of a level beyond O0, `extremes` the outcomes
    for inputs of extreme sizes, `shipped` the comparison of the artifact with its twin.
    """

    exact: tuple[Feed, ...]
    neighbours: tuple[Feed, ...]
    ours: tuple[Dump, ...]
    stored: tuple[Dump, ...]
    alone: tuple[Dump, ...]
    samples: tuple[Samples, ...]
    floors: Floors
    levels: LevelResult | BoundedLevelResult | None
    extremes: tuple[ExtremeResult, ...]
    shipped: ShippedResult | None


def _report(
    whole: Compilation,
    judged: Compilation,
    found: _Findings,
    work: ProgramWork,
    seconds: tuple[tuple[str, float], ...],
    shipped: Artifact | None,
) -> VerifyReport:
    """`judged` is the network whose layers were judged: `whole` itself, or its twin at level O0."""
    dtype = stored_type(whole.model.graph)
    layers, logits, constants = _layer_results(judged, found, work.layers), _logits(judged, found), _constants(whole)
    against_file = compare_constants(whole.model, found.ours[0], found.exact[0])
    return VerifyReport(
        artifact=(shipped or whole.artifact).hash,
        model=whole.model.graph.name,
        chip=whole.chip.name,
        level=whole.plan.level,
        batch=whole.plan.batch_per_cluster,
        inputs=len(found.exact),
        layers=layers,
        logits=logits,
        constants=len(constants),
        constant_bytes=sum(len(found.ours[0][name]) for name in constants),
        program_bytes=sum(len(files.files[files.executable]) for files in (shipped or whole.artifact).clusters),
        total=add_work(work.layers.values()),
        failures=(
            *(shipped_failures(found.shipped) if found.shipped else ()),
            *failures(layers, logits, ends=bool(judged.model.graph.outputs)),
            *misshapen_outputs(judged.model, found.exact[0]),
            *changed_constants(whole, found.ours[0]),
            *(
                sentence
                for number, (dump, exact) in enumerate(zip(found.ours, found.exact, strict=True))
                for sentence in wrong_prepared(whole, dump, exact, number)
            ),
            *against_file.sentences,
            *(f"{each.label}: {each.line}" for each in found.extremes if each.outcome == "failed"),
            *(level_failures(found.levels) if found.levels else ()),
        ),
        warnings=(
            *whole.model.warnings,
            *range_warnings(whole.artifact.manifest.inputs, found.exact),
            *range_sentences(whole.model.source, found.exact, dtype, computed=computed_values(whole.model)),
            *filter(None, [found.floors.warning]),
        ),
        seconds=seconds,
        against_file=against_file,
        programs=(work.figures,) if judged is whole else (program_figures(judged), work.figures),
        against_o0=found.levels,
        exact=isinstance(whole.target.judgement, BitExact),
        doubts=tuple(doubts_of(whole.model.source, logits, _exact_ends(judged, found), found.exact, dtype)),
        extremes=found.extremes,
        shipped=found.shipped,
    )


def _exact_ends(judged: Compilation, found: _Findings) -> dict[str, tuple[Array, ...]]:
    """The reference's values of judged outputs."""
    model = judged.model
    return {
        name: tuple(of_file(model, name, values[file_name(model, name)]) for values in found.exact)
        for name in logits_names(model, found.exact[0])
    }


def _constants(compilation: Compilation) -> tuple[str, ...]:
    return tuple(entry.name for entry in compilation.artifact.manifest.tensors if entry.kind == "constant")


def _layer_results(judged: Compilation, found: _Findings, work: Mapping[str, LayerWork]) -> tuple[LayerResult, ...]:
    graph = judged.model.graph

    def result(layer: Layer, samples: Samples) -> LayerResult:
        name = compared_name(judged.model, layer.output, found.exact[0])
        theirs = file_name(judged.model, name)
        rounded = tuple(found.floors.of_layer(theirs, number) for number in range(len(found.exact)))
        shares = isolated_shares(judged, name, found.alone, found.exact, rounded, layer)
        linked = theirs in found.floors.linked
        return LayerResult(
            name=layer.name,
            operators=tuple(graph.op_by_name[name].source for name in layer.ops),
            output=layer.output,
            work=work.get(layer.name, NO_WORK),
            isolated_error=shares[0].error if shares else None,
            whole_error=worst_error(judged, name, found.stored, found.exact),
            samples=samples.count,
            samples_wrong=samples.wrong,
            first_wrong=samples.first,
            bound=shares[0].bound if shares else LAYER_BOUND,
            floor=shares[0].floor if shares else 0.0,
            channel=shares[1] if shares else None,
            steps=isolated_steps(judged, name, found.alone, found.exact, rounded, linked),
        )

    return tuple(result(*pair) for pair in zip(computing_layers(judged), found.samples, strict=True))


def _logits(judged: Compilation, found: _Findings) -> tuple[LogitsResult, ...]:
    """Judgements of the outputs; those of level O0 where the level does not store the value before a softmax: the
    outputs after it are equal.
    """
    return tuple(result for name in logits_names(judged.model, found.exact[0]) for result in _end(judged, found, name))


def _end(judged: Compilation, found: _Findings, name: str) -> tuple[LogitsResult, ...]:
    """Judgements of one output for all inputs; beyond the range of the stored type, up to its ends."""
    model, theirs = judged.model, file_name(judged.model, name)
    dtype = model.graph.by_name[name].dtype
    dumps = (ours if name in ours else stored for ours, stored in zip(found.ours, found.stored, strict=True))
    ours = tuple(file_array(judged, name, dump) for dump in dumps)
    exact, others = (
        tuple(of_file(model, name, values[theirs]) for values in feeds) for feeds in (found.exact, found.neighbours)
    )
    moved = tuple(
        (of_file(model, name, apart), of_file(model, name, together)) for apart, together in found.floors.of_end(theirs)
    )
    if any(leaves_range(array, dtype) for array in exact):
        ours, exact, others = (tuple(held_in_range(a, dtype) for a in arrays) for arrays in (ours, exact, others))
        moved = tuple((held_in_range(apart, dtype), held_in_range(together, dtype)) for apart, together in moved)
    return judge_logits(name, ours, exact, moved, others, step_of(model, name))


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
    """Starts one run per input in the pool; the returned function waits for what they left, by tensor."""

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
