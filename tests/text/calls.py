"""What a text case is given to, a function a kind: the only place here that calls the packages under test.

    Case --plan, verify, order, allocation, lower--> text

Every function reads the options and sections that it knows and refuses a case with others. A UserError is a result
like any other: its class and its message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from benchmarks.lab.exact_order import proven_choice
from benchmarks.lab.programs import lower_plan
from benchmarks.lab.readers.programs import parse_program
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import UserError
from hw_models.loading import load_chip
from isched.hazards.verify_program import verify_program
from isched.program.target import LowerTarget
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.plan import Plan, parse_plan
from partitioner.memory.offset_assignment import largest_gap, lowest, pack, peak_bytes
from partitioner.ordering.methods import choose_order
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip
from tests.text.case_file import Case
from tests.text.instance_text import instance_graph, items, order_text
from tests.text.short_graph import read_graph
from tests.text.shown import plan_text, program_text

__all__ = ["CALLS", "outcome"]

Call = Callable[[Case], str]

SMALL: Mapping[str, int] = MappingProxyType(
    {"cores": 8, "data_bytes": 1 << 20, "weights_bytes": 1 << 18, "im_bytes": 1 << 18, "llb_bytes": 1 << 23}
)
"""What a chip `small` may have otherwise, and what it has without that."""


def outcome(case: Case) -> str:
    """The text that a case's kind, the name of its folder, makes of it; an error of the user's is text too."""
    try:
        return CALLS[case.path.parent.name](case)
    except UserError as error:
        return f"{type(error).__name__}: {error}\n"


def plan(case: Case) -> str:
    """graph, level -> plan, verified and read back from its own text form."""
    _require(case, ("chip", "level", "spill", "show"), ("graph",))
    made = _planned(case, _context(case))
    assert str(parse_plan(str(made))) == str(made)
    return plan_text(made, case.options.get("show", "plan"))


def verify(case: Case) -> str:
    """graph, plan -> the sentence that says what is wrong with the plan."""
    _require(case, ("chip",), ("graph", "plan"))
    verify_plan(parse_plan(case.sections["plan"]), _context(case))
    return "nothing wrong\n"


def order(case: Case) -> str:
    """instance graph, room -> the order and cost of every method, and the best."""
    _require(case, ("exact",), ("instances",))
    graph, room = instance_graph(case.sections["instances"])
    choice, bound = proven_choice(graph, room, choose_order(graph, room), float(case.options.get("exact", "0")))
    return order_text(graph, choice, bound)


def allocation(case: Case) -> str:
    """items with lifetimes -> offsets, what is free in every slot, and what found no room."""
    _require(case, ("capacity", "alignment", "apart"), ("items",))
    wanted, least = items(case.sections["items"])
    capacity, alignment = int(case.options["capacity"]), int(case.options.get("alignment", "1"))
    found = pack(wanted, capacity, alignment, least, int(case.options.get("apart", "0")))
    lines = []
    for item in sorted(wanted, key=lambda item: (item.first, item.name)):
        start = found.offsets[item.name]
        lines.append(f"{item.name}: slots {item.first}-{item.last}, bytes {start}-{start + item.size_bytes}")
    if found.late is not None:
        lines.append(f"no room for {found.late.name}")
    for slot in range(1 + max(item.last for item in wanted)):
        busy = ((found.offsets[i.name], i.size_bytes) for i in wanted if i.first <= slot <= i.last)
        lines.append(f"slot {slot}: {largest_gap(busy, capacity)[1]} free in one piece")
    lines.append(f"needs {lowest(wanted, alignment)[1]} at least this way, {peak_bytes(wanted)[0]} any way")
    return "\n".join(lines) + "\n"


def lower(case: Case) -> str:
    """graph, level or plan -> the instructions of each core, verified and read back from their own text form."""
    _require(case, ("chip", "level", "spill", "overlap"), ("graph", "plan"))
    ctx = _context(case)
    given = case.sections.get("plan")
    made = parse_plan(given) if given else _planned(case, ctx)
    verify_plan(made, ctx)
    overlap = case.options.get("overlap", "no") == "yes"
    program = lower_plan(made, ctx, TARGET.data_base_bytes, overlap=overlap)
    verify_program(program, ctx.chip)
    assert str(parse_program(str(program))) == str(program)
    return program_text(program)


def _context(case: Case) -> Context[LowerTarget]:
    graph, constants = read_graph(case.sections["graph"])
    return Context(graph, constants, _chip(case.options.get("chip", "stcp920")), TARGET)


def _chip(text: str) -> Chip:
    """A built-in chip, or `small`, the stcp920 with other numbers: cores=2 data_bytes=65536."""
    name, *changes = text.split()
    if name != "small":
        return load_chip(name)
    numbers = {**SMALL, **{key: int(value) for key, value in (change.split("=") for change in changes)}}
    if set(numbers) != set(SMALL):
        raise ValueError(f"chip: {text}: small has {', '.join(SMALL)}")
    cores, data, weights, im, llb = numbers.values()
    return small_chip(cores, data, weights, im, llb)


def _planned(case: Case, ctx: PlanContext) -> Plan:
    return make_plan(ctx, planner_of(case.options["level"], case.options.get("spill", "none")))


def _require(case: Case, options: tuple[str, ...], sections: tuple[str, ...]) -> None:
    odd = [*(set(case.options) - set(options)), *(set(case.sections) - set(sections))]
    if odd:
        raise ValueError(f"{case.path.name}: no use for {', '.join(sorted(odd))}")


CALLS: Mapping[str, Call] = MappingProxyType(
    {"plan": plan, "verify": verify, "order": order, "allocation": allocation, "lower": lower}
)
