"""`dsa-sched explain`: describes and justifies a compiled network, or, by estimates alone, a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    CHIP_OR_OWN,
    cache_option,
    division_options,
    gathered_options,
    planning_options,
    roll_option,
    schedule_option,
)
from dsa_sched.stages.gc_pause import uncollected

if TYPE_CHECKING:
    from dsa_sched.stages.compile_options import CompileOptions


@click.command(short_help="Say what a plan does, why, and what makes it slow.")
@click.argument("source", metavar="MODEL|DIR")
@planning_options
@CHIP_OR_OWN
@division_options
@schedule_option
@roll_option
@click.option(
    "--estimate", is_flag=True, help="Only plan, by the cost model: nothing is compiled, and nothing is timed."
)
@cache_option
@click.option(
    "--group", metavar="NAME", help="Show everything about one group: its name, or that of a layer or operator in it."
)
@click.option("--full", is_flag=True, help="Print every decision, also those that differ only in names and numbers.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the same data as JSON, too."
)
@gathered_options
@uncollected()
def explain(
    source: str,
    chip: str | None,
    options: CompileOptions,
    estimate: bool,
    use_cache: bool,
    group: str | None,
    full: bool,
    json_file: Path | None,
) -> None:
    """Say what was compiled: the plan of MODEL for a chip, or of the artifact in DIR, with the times of its machine
    code by the cycle model. A model is compiled as `compile` does with the same options, or taken from the build cache.

    \b
    dsa-sched explain resnet50.out
    dsa-sched explain resnet50 --chip stcp920 --batch 16
    dsa-sched explain mine.onnx --chip ./mine.yaml --group conv1 --json plan.json
    dsa-sched explain mine.onnx --chip stcp920 --level O0
    dsa-sched explain mine.onnx --chip stcp920 --level O3 --estimate

    \b
    What is printed
      a summary: groups, instances, room in the memories, bytes moved; the time of the machine code, the parts of its
        critical path, the groups that take longest; next to these the floors, which are estimates
      a row per group: layers, cuts, cores, where outputs lie, bytes by way, share computed again; its cycles on the
        critical path and what binds there; the estimate of the cost model
      a row per cause on the critical path: in how many groups, for how long
      the order of instances, each as the group's letter and the instance's number
      the decisions, under the operator, layer, group or value that they are about; of many that differ only in names
        and numbers, one (with --full, all)

    With --estimate, and for chips without a code generator, nothing is compiled. All times are then estimates of the
    cost model, and a row per engine or memory that binds a group says for what part of that time the others have work.
    With --clusters and --per-pass, the plan is that of one pass on the cluster with the largest share of the batch.

    With --group: the bytes that an instance holds, for any number of instances, in closed form; the layers and the box
    of each core, constants, steps, and the decisions about the group and about merging it with its neighbours.
    docs/partitioning.md says how to read the output, docs/reference/json.md has the keys of the JSON form.
    """
    from dsa_sched.analysis.explanation_data import Explanation
    from dsa_sched.builds.explained_build import told, told_of_artifact
    from dsa_sched.commands.sources import artifact_of, build_cache, is_artifact, require_chip
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.progress import ProgressSteps

    if json_file is not None:
        require_file(json_file)
    with ProgressSteps() as steps:
        if estimate and is_artifact(source):
            raise click.UsageError("--estimate plans a model: name the model, not the folder.")
        if not is_artifact(source) and (estimate or _only_planned(require_chip(source, chip))):
            from dsa_sched.analysis.explanation import explain_model
            from hw_models.loading import load_chip

            described = load_chip(require_chip(source, chip))
            found = told(explain_model(source, described, options, steps.say), described, group)
        else:
            artifact = artifact_of(source, chip, options, use_cache, steps.say)
            found = told_of_artifact(artifact, build_cache(use_cache), group, steps.say)
    explanation = found.explanation
    if not isinstance(explanation, Explanation):
        from dsa_sched.report.kernel_explain import print_kernels, write_kernels

        print_kernels(explanation, full)
        if json_file is not None:
            write_kernels(explanation, json_file)
        return
    from dsa_sched.report.explain import print_detail, print_explanation, write_explanation

    if found.detail is None:
        print_explanation(explanation, found.chip, full=full)
    else:
        print_detail(explanation, found.detail)
    if json_file is not None:
        write_explanation(explanation, found.chip, found.detail, json_file)


def _only_planned(chip: str) -> bool:
    """Whether a chip has no code generator, so that networks can only be planned for it."""
    from dsa_sched.stages.targets import has_code
    from hw_models.loading import load_chip

    return not has_code(load_chip(chip))
