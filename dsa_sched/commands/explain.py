"""`dsa-sched explain`: what a plan does and why, without code for the chip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import compile_options, division_options, gathered_options, schedule_option
from dsa_sched.stages.gc_pause import uncollected

if TYPE_CHECKING:
    from dsa_sched.stages.compilation import CompileOptions


@click.command(short_help="Say what a plan does, why, and what makes it slow.")
@click.argument("model", metavar="MODEL")
@compile_options
@division_options
@schedule_option
@click.option("--group", metavar="NAME", help="All about one group: its name, or that of a layer or operator in it.")
@click.option("--full", is_flag=True, help="Print each decision, not one of many that differ in names and numbers.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the same data as JSON too."
)
@gathered_options
@uncollected()
def explain(
    model: str,
    chip: str,
    options: CompileOptions,
    group: str | None,
    full: bool,
    json_file: Path | None,
) -> None:
    """Plan MODEL for a chip and say what the plan does and why. Nothing is run, and nothing lowered but at level
    auto, which compares programs.

    \b
    dsa-sched explain resnet50 --chip stcp920 --batch 16
    dsa-sched explain mine.onnx --chip ./mine.yaml --group conv1 --json plan.json
    dsa-sched explain mine.onnx --chip stcp920 --level O0
    dsa-sched explain resnet50 --chip stcp920 --level O3 --batch 64 --clusters 4 --per-pass auto

    \b
    What is printed
      a summary: groups, instances, room in the memories, bytes moved, what binds, which groups take longest
      a row a group: layers, cut, cores, where outputs lie, bytes by way, share computed again, what binds it
      a row for each engine or memory that binds a group: how many and for how long, and for what part of that time
        the others have work
      the order of instances, each as the group's letter and the instance's number
      the decisions, under the operator, layer, group or value that they are about; of many that differ only in names
        and numbers, one (with --full, each)

    With --schedule memories and bytes are those of a program in which work runs ahead: smaller rounds, buffers apart.
    (compile --schedule takes the layout without that where its program is faster.)

    With --clusters and --per-pass the plan is that of one pass on the cluster with the largest share of the batch.

    With --group: what an instance holds for any number of instances, in closed form; layers and the box of each core,
    constants, steps, what was decided about it and about merging it with its neighbours. Works for chips without a code
    generator. docs/partitioning.md says how to read it, docs/reference/json.md has the keys of the JSON form.
    """
    from dsa_sched.analysis.explanation import explain_model
    from dsa_sched.analysis.group_detail import detail_of
    from dsa_sched.analysis.kernel_explanation import KernelExplanation
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.explain import print_detail, print_explanation, write_explanation
    from dsa_sched.report.kernel_explain import print_kernels, write_kernels
    from dsa_sched.report.progress import ProgressSteps

    if json_file is not None:
        require_file(json_file)
    with ProgressSteps() as steps:
        explained = explain_model(model, chip, options, steps.say)
    if isinstance(explained, KernelExplanation):
        shown = explained.of(group) if group is not None else explained
        print_kernels(shown, full)
        if json_file is not None:
            write_kernels(shown, json_file)
        return
    detail = detail_of(explained, group) if group is not None else None
    if detail is None:
        print_explanation(explained.explanation, explained.chip, full=full)
    else:
        print_detail(explained.explanation, detail)
    if json_file is not None:
        write_explanation(explained.explanation, explained.chip, detail, json_file)
