"""The verification report for a reader: a row per layer, totals, logits, verdict; plain text without a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsa_sched.analysis.work import LayerWork
from dsa_sched.host.verify import HostedReport
from dsa_sched.report.listing import PLAIN_WIDTH, output_console, print_table
from dsa_sched.verification.tolerances import LAYER_BOUND, LogitsResult
from dsa_sched.verification.verdict import (
    BoundedLevelResult,
    ConstantsResult,
    LayerResult,
    LevelResult,
    ShippedResult,
    Verdict,
    VerifyReport,
)
from hw_models.errors import ratio_text, size_text


def print_report(report: VerifyReport, console: Console | None = None) -> None:
    """Print the whole report."""
    console = console or output_console()
    console.print(Text(_title(report), "bold"))
    engines = tuple(engine for engine in report.total.instructions if report.total.cycles.get(engine))
    wide = _layers(report, engines, tuple(report.total.moved_bytes))
    unbounded = console.options.update_width(PLAIN_WIDTH)
    fits = console.measure(wide, options=unbounded).maximum <= console.width
    print_table(console, wide if fits else _layers(report, (), ()))
    if not fits:
        console.print("cycles and bytes by layer: in a wider terminal, a pipe, or with --json")
    for line in _facts(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", "yellow"), soft_wrap=True)
    for failure in report.failures:
        console.print(Text(f"failed: {failure}", "red"), soft_wrap=True)
    for doubt in report.all_doubts:
        console.print(Text(f"inconclusive: {doubt}", "yellow"), soft_wrap=True)
    if report.passed:
        console.print(f"holds: {report.reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_text(report.verdict))


def verdict_text(verdict: Verdict) -> Text:
    """The verdict as the last line of a report."""
    styles = {"passed": "bold green", "failed": "bold red", "inconclusive": "bold yellow"}
    return Text(verdict if verdict == "passed" else verdict.upper(), styles[verdict])


def print_hosted_report(report: HostedReport, console: Console | None = None) -> None:
    """Print the reports of all stages on the chip, then the findings about the whole."""
    console = console or output_console()
    console.print(report.line, markup=False, highlight=False, soft_wrap=True)
    for stage in report.stages:
        console.print()
        print_report(stage, console)
    console.print()
    console.print(Text("all stages, one after another", "bold"))
    for end in report.ends:
        console.print(_end(end), markup=False, highlight=False, soft_wrap=True)
    for name, number, wrong, count in report.unequal:
        line = f"output {name}, input {number}: {wrong} of {count} elements differ from the reference's"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_text(report.verdict))


def _layers(report: VerifyReport, engines: tuple[str, ...], ways: tuple[str, ...]) -> Table:
    """One row per layer, with a column for each of these engines and pairs of memories, and one for the instructions,
    which kernels that are whole groups do not have."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("layer", overflow="ellipsis", max_width=32)
    table.add_column("operators", overflow="ellipsis", max_width=20)
    counted = bool(report.total.instructions)
    if counted:
        table.add_column("instr.", justify="right")
    for engine in engines:
        table.add_column(f"{engine}\ncycles", justify="right")
    for way in ways:
        table.add_column(f"{way}\nKiB", justify="right")
    judged = "bit-exact" if report.exact else "in bound"
    for heading in ("error\nalone", "error\nin network", f"{judged}\nsamples"):
        table.add_column(heading, justify="right")
    for layer in report.layers:
        table.add_row(
            Text(layer.name), "+".join(layer.operators), *_work(layer.work, engines, ways, counted), *_errors(layer)
        )
    right = sum(layer.samples - layer.samples_wrong for layer in report.layers)
    table.add_section()
    table.add_row(
        "total",
        f"{len(report.layers)} layers",
        *_work(report.total, engines, ways, counted),
        _worst(report),
        "",
        f"{right:,}",
    )
    return table


def _title(report: VerifyReport) -> str:
    return f"{report.model} on {report.chip}, {report.level}, batch {report.batch}, {report.inputs} inputs"


def _work(work: LayerWork, engines: tuple[str, ...], ways: tuple[str, ...], counted: bool) -> Iterator[str]:
    """Instructions where they are `counted`, cycles by engine, bytes by way."""
    if counted:
        yield f"{sum(work.instructions.values()):,}"
    yield from (f"{work.busiest_cycles.get(engine, 0):,.0f}" for engine in engines)
    yield from (f"{work.moved_bytes.get(way, 0) / 1024:,.1f}" for way in ways)


def _errors(layer: LayerResult) -> tuple[Text, ...]:
    right = layer.samples - layer.samples_wrong
    exact = f"{layer.samples:,}" if not layer.samples_wrong else f"{right:,} of {layer.samples:,}"
    return (
        _mark(layer.steps.text if layer.steps else _error(layer.isolated_error), not layer.wrong_alone),
        Text(_error(layer.whole_error)),
        _mark(exact, not layer.samples_wrong),
    )


def _instructions(report: VerifyReport) -> list[str]:
    """Lines about the instructions; kernels that are whole groups have none."""
    cycles = (f"{engine} {number:,.0f}" for engine, number in report.total.busiest_cycles.items() if number)
    moved = (f"{way} {size_text(size)}" for way, size in report.total.moved_bytes.items())
    instructions = sum(report.total.instructions.values())
    return [
        f"cycles of the busiest cores: {', '.join(cycles)}",
        f"moved: {', '.join(moved)}",
        f"program: {size_text(report.program_bytes)}, {instructions:,} instructions",
    ]


def _worst(report: VerifyReport) -> str:
    return _error(
        max((layer.isolated_error for layer in report.layers if layer.isolated_error is not None), default=None)
    )


def _channel(report: VerifyReport) -> str:
    """The channel that is nearest to its bound, of all layers."""
    found = [
        (layer.channel, layer.name) for layer in report.layers if layer.channel is not None and layer.steps is None
    ]
    if not found:
        return "channels: none that the reference has"
    worst, name = max(found, key=lambda pair: pair[0].share)
    by_rounding = ", since rounding alone may make as much" if worst.bound > LAYER_BOUND else ""
    return (
        f"channels: nearest to its bound is channel {worst.channel} of {name}, error {worst.error:.2e} alone, "
        f"{worst.share:.0%} of what is allowed, {worst.bound:.2e}{by_rounding}"
    )


def _steps(report: VerifyReport) -> list[str]:
    """A line about the layers that make integers, if there are any."""
    found = [(layer.steps, layer.name) for layer in report.layers if layer.steps is not None and not layer.steps.linked]
    if not found:
        return []
    most, of_most = max(found, key=lambda pair: (pair[0].most, pair[0].share))
    share, of_share = max(found, key=lambda pair: pair[0].share)
    values = sum(steps.values for steps, _ in found)
    differ = sum(steps.share * steps.values for steps, _ in found) / values
    return [
        f"integers: {len(found)} layers, each by itself against exact arithmetic: {differ:.2%} of all values differ; "
        f"at most {most.text} ({of_most}), at most {share.share:.2%} of a layer's values ({of_share})"
    ]


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.2e}"


def _mark(text: str, good: bool) -> Text:
    return Text(text, "" if good else "bold red")


def _facts(report: VerifyReport) -> list[str]:
    """Logits, constants, size and time, a line each."""
    lines = [
        *_programs(report),
        *((_shipped(report.shipped),) if report.shipped else ()),
        *((_levels(report.against_o0),) if report.against_o0 else ()),
    ]
    lines.append(_channel(report))
    lines += _steps(report)
    lines += [_logits(result) for result in report.logits]
    lines += [f"{each.label}: {each.outcome}: {each.line}" for each in report.extremes if each.outcome != "failed"]
    lines.append(f"constants: {report.constants}, {size_text(report.constant_bytes)}, read back after the run")
    lines.append(_against_file(report.against_file))
    lines += _instructions(report) if report.total.instructions else [f"code: {size_text(report.program_bytes)}"]
    lines.append("seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.seconds))
    return lines


def _programs(report: VerifyReport) -> list[str]:
    """A line per program; the last one is compared with the first."""
    names = max(len(program.name) for program in report.programs)
    first, lines = report.programs[0], []
    for program in report.programs:
        kernels = f"{program.kernels} kernel" + "s" * (program.kernels != 1)
        runs = f" in {program.instances} instances" if program.instances != program.kernels else ""
        moved = f"{size_text(program.main_bytes)} from and to the main memory"
        line = f"program {program.name:<{names}}: {kernels}{runs}, {moved}"
        if program.cycles is not None:
            line += f", {program.cycles:,.0f} cycles"
        if program is not first and first.cycles and program.cycles:
            moved = ratio_text(program.main_bytes, first.main_bytes, "bytes", 1)
            took = ratio_text(program.cycles, first.cycles, "cycles")
            line += f"; compared with {first.name}: {moved}, {took}"
        lines.append(line)
    return lines


def _end(result: LogitsResult) -> str:
    """Line about one output of stages of chip and host for one input; the effect of rounding on it is not computed."""
    line = f"output {result.tensor}, input {result.input}: error {result.error:.3g}"
    if not result.statement:
        return f"{line}; no statement: both inputs give the same"
    return f"{line}, {result.share:.1%} of the distance {result.distance:.3g} between inputs (at most 10%)"


def _logits(result: LogitsResult) -> str:
    """Line about one output for one input."""
    where = f"logits {result.tensor}, input {result.input}"
    rounding = f"rounding alone may make {result.floor:.3g}"
    if not result.statement:
        return (
            f"{where}: no statement: the outputs of two inputs differ by {result.distance:.3g}, {rounding} "
            f"(error {result.error:.3g})"
        )
    line = (
        f"{where}: error {result.error:.3g}, {result.share:.1%} of the distance {result.distance:.3g} between inputs "
        f"(at most {result.bound / result.distance:.1%}; {rounding})"
    )
    if not result.rows:
        return line
    alike = f"top-1 the same in {result.top1_same} of {result.rows}"
    return f"{line}; {alike}, decided among {result.top1_candidates} of {result.top1_entries:,} entries at most"


def _against_file(result: ConstantsResult) -> str:
    copied, computed = f"{result.copied} bit for bit", f"{result.computed} through rewrites to within rounding"
    line = f"of the file's initializers: {copied}, {computed}"
    if result.different:
        line += f", {len(result.different)} of these not"
    if result.undeclared:
        named = ", ".join(result.undeclared[:3]) + (", ..." if len(result.undeclared) > 3 else "")
        line += f"; {len(result.undeclared)} of no declared origin, not compared: {named}"
    return line


def _shipped(result: ShippedResult) -> str:
    """Line about the artifact and the build whose values are the evidence."""
    outputs = f"{result.outputs} output" + "s" * (result.outputs != 1)
    if result.is_twin:
        return f"artifact: {outputs}; the same bytes as with --keep-values, so all that follows holds for itself"
    equal = "other values than" if result.different else "bit for bit the same as"
    return (
        f"artifact: {outputs}, {size_text(result.bytes)}, {equal} its twin with --keep-values (same plan); values "
        "of layers and constants are the twin's"
    )


def _levels(result: LevelResult | BoundedLevelResult) -> str:
    values, outputs = (
        f"{count} {word}" + "s" * (count != 1) for count, word in ((result.values, "value"), (result.outputs, "output"))
    )
    stay = "stays" if result.values == 1 else "stay"
    if isinstance(result, BoundedLevelResult):
        within = f"{len(result.wrong)} of them not within" if result.wrong else "within"
        return (
            f"level {result.level}: {values} ({outputs}), {size_text(result.bytes)}, {stay} in the main memory, "
            f"{within} the target's bound in {result.samples:,} samples; errors and samples of layers are those of the "
            "run at level O0"
        )
    equal = f"{len({name for name, *_ in result.different})} of them not as" if result.different else "bit for bit as"
    return (
        f"level {result.level}: {values} ({outputs}), {size_text(result.bytes)}, {stay} in the main memory, "
        f"{equal} at level O0 for every input; errors and samples are those of the run at level O0"
    )
