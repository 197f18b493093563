"""`--tune`: of each group's best candidates, by their floors, the one that is fastest on the device itself.

    plan --the first, second, third candidate of every group--> plans --emit--> files --Measurer--> times --> plan

Times are kept in the user's cache folder, by a hash of what is started, the device, its driver and the compiler, so
that nothing is measured twice. The plan depends on measurements of the device: equal input need not give equal plans
here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from codegen.target import ClusterFiles, Measurer, Measures
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels, place
from partitioner.context.plan_context import KernelContext
from partitioner.ir.decisions import Decision
from partitioner.ir.kernels import Kernel
from partitioner.ir.plan import Plan
from partitioner.planners.kernel_level import candidates_in_place, with_kernels
from partitioner.verification.kernel_plan import verify_kernel_plan

MOST_CANDIDATES = 3

Emit = Callable[[Plan], ClusterFiles]


def tuned_kernels(planned: PlannedKernels, options: CompileOptions, progress: Callable[[str], None]) -> PlannedKernels:
    """The plan with the kernels that are fastest on the device, verified. Raises TargetError where there is none."""
    target, ctx = planned.context.target, planned.context
    assert isinstance(target, Measures)  # asked before any work

    def emitted(plan: Plan) -> ClusterFiles:
        return place(replace(planned, plan=plan), options, progress).emit(plan, planned.model, ctx.chip)

    times = CostCache.of_user("kernel-times")
    with closing(target.open_device()) as device:
        plan = tuned(planned.plan, ctx, options.force_groups, device, emitted, times, progress)
    verify_kernel_plan(plan, ctx)
    return replace(planned, plan=plan)


def tuned(
    plan: Plan,
    ctx: KernelContext,
    forced: tuple[str, ...],
    measurer: Measurer,
    emit: Emit,
    times: CostCache | None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Plan:
    """The plan with the fastest of `MOST_CANDIDATES` kernels for each group; of equally fast ones the best by its
    floors. `forced` are the groups that the user asked for, whose families stay. Raises what emitting and measuring
    raise."""
    candidates = {name: kernels[:MOST_CANDIDATES] for name, kernels in candidates_in_place(plan, ctx, forced).items()}
    found: dict[str, list[tuple[int, Kernel]]] = {name: [] for name in candidates}
    for rank in range(max(map(len, candidates.values()), default=0)):
        chosen = {name: kernels[min(rank, len(kernels) - 1)] for name, kernels in candidates.items()}
        progress(f"tuning: candidate {rank + 1} of each group")
        files = emit(with_kernels(plan, chosen))
        measured = dict(zip(candidates, _measured(files, measurer, times), strict=True))
        for name, kernels in candidates.items():
            if rank < len(kernels):
                found[name].append((measured[name], chosen[name]))
    best = {name: min(each, key=lambda pair: pair[0])[1] for name, each in found.items()}
    decisions = tuple(_decision(name, each, measurer.identity) for name, each in found.items() if len(each) > 1)
    return with_kernels(plan, best, decisions)


def _measured(files: ClusterFiles, measurer: Measurer, times: CostCache | None) -> list[int]:
    """Nanoseconds of each group, from the cache or the device."""
    parts, device = measurer.parts(files), measurer.identity
    kept = [times.find(part, device) if times else None for part in parts]
    if None not in kept:
        return [ns for ns in kept if ns is not None]
    found = []
    for part, known, taken in zip(parts, kept, measurer.times_ns(files), strict=True):
        found.append(taken if known is None else known)
        if times is not None and known is None:
            times.keep(part, device, taken)
    return found


def _decision(name: str, measured: list[tuple[int, Kernel]], identity: str) -> Decision:
    (best, kernel), *others = sorted(measured, key=lambda pair: pair[0])
    against = ", ".join(f"{other.text} {ns / 1e3:.3f} us" for ns, other in others)
    return Decision(name, f"tuned: {kernel.text}", f"measured {best / 1e3:.3f} us, {against}, on {identity}")
