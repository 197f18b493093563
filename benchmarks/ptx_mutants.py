"""What the executor of PTX notices: `python benchmarks/ptx_mutants.py [--kernel NAME] [--json FILE]`.

Kernels that are right are changed in one place each: a barrier, wait, commit, fence or copy dropped, a barrier moved
beyond its neighbour, a swizzle dropped, registers of a fragment exchanged, a bound dropped or moved by one, a shuffle's
distance or a descriptor changed. Only code that is executed is changed; bounds only where a thread is outside of them,
or just at them: a probe in the place of the change says so. Each changed kernel must end with a fault or with a
result outside of its bound; those that compute the same are listed below, with the reason. Anything else fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.output import add_outputs, keep
from benchmarks.ptx_cases.convolutions import SHAPES, Conv2d, Shape, conv2d_launches, problem, run_conv2d
from benchmarks.ptx_cases.cutlass3 import Gemm90, gemm90_error, gemm90_launches
from benchmarks.ptx_cases.products import pipeline_error, pool_error, softmax_error, wgmma_error, worst
from codegen.cutlass.emission.nvcc import find_nvcc
from codegen.cutlass.ptx import Fault, FaultKind, Limits, Module, Statistics, parse

__all__ = ["EQUIVALENT", "MUTATIONS", "Case", "Mutant", "cases", "judge", "mutants"]

KERNELS: Final = Path(__file__).parent / "ptx_cases" / "kernels"
LEAST: Final = 60
STEPS: Final = Limits(max_steps=60_000)
"""Far more than any right kernel here needs, so that endless mutants end soon."""

Error = Callable[[Module], tuple[float, Statistics]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """Lines that match `pattern` are changed by `change`; None drops them. `probe` ends in a trap where it matters."""

    name: str
    pattern: str
    change: Callable[[re.Match[str]], str] | None = None
    probe: Callable[[re.Match[str]], str] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel: its name, the whole text, and how far its result is from right (at most 1 is right)."""

    name: str
    kernel: str
    text: str
    error: Error
    mutations: frozenset[str]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`place`: which of the matching lines, from 1."""

    case: str
    mutation: str
    place: int
    line: int
    text: str

    @property
    def name(self) -> str:
        """How lists of equivalent ones name it."""
        return f"{self.case}: {self.mutation} {self.place}"


def _exchanged(found: re.Match[str], first: int, second: int) -> str:
    """Two registers of the first braces exchanged."""
    names = [name.strip() for name in found.group("list").split(",")]
    names[first], names[second] = names[second], names[first]
    return found.string[: found.start("list")] + ", ".join(names) + found.string[found.end("list") :]


def _turned(found: re.Match[str]) -> str:
    text = found.string
    return (
        text.replace(".trans", "")
        if ".trans" in text
        else text.replace(".m8n8.x4", ".m8n8.x4.trans").replace(".x4.m8n8", ".x4.trans.m8n8")
    )


STRICT: Final = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
FRAGMENT: Final = r"\{(?P<list>[^}]*)\}"

BOUND: Final = r"^\s*setp\.(?P<w>lt|le|gt|ge)\.(?P<t>[su]32)\s+(?P<p>%p\d+), (?P<x>\S+), (?P<y>\S+);"


def _at_bound(found: re.Match[str]) -> str:
    """Traps where a thread is just at the bound."""
    return f"{found.string} {{ .reg .pred q; setp.eq.{found['t']} q, {found['x']}, {found['y']}; @q trap; }}"


def _outside(found: re.Match[str]) -> str:
    """Traps where a thread is outside: below is inside, or above is outside, as compilers write bounds."""
    return f"{found.string} @{'!' if found['w'][0] == 'l' else ''}{found['p']} trap;"


def _unbounded(found: re.Match[str]) -> str:
    return f"setp.{'eq' if found['w'][0] == 'l' else 'ne'}.{found['t']} {found['p']}, {found['x']}, {found['x']};"


SWIZZLE: Final = r"^(?P<a>\s*)xor\.b32\s+(?P<d>%r\d+), (?P<s>%r\d+),"

MUTATIONS: Final = (
    Mutation("barrier dropped", r"^\s*bar\.(sync|arrive)\b.*;"),
    Mutation("wait dropped", r"^\s*cp\.async\.wait_(group|all)\b.*;"),
    Mutation(
        "wait too weak", r"^(?P<a>\s*cp\.async\.wait_group\s+)(?P<n>\d+);", lambda m: f"{m['a']}{int(m['n']) + 1};"
    ),
    Mutation("commit dropped", r"^\s*cp\.async\.commit_group;"),
    Mutation("copy dropped", r"^\s*(@%p\d+\s+)?cp\.async\.c[ag]\..*;"),
    Mutation("copy unbounded", r"^(?P<a>\s*cp\.async\.c[ag]\..*), %r\d+;", lambda m: f"{m['a']};"),
    Mutation(
        "copy to a neighbour",
        r"^(?P<a>\s*cp\.async\.c[ag]\.[^\[]*\[%r\d+)\]",
        lambda m: f"{m['a']}+16]" + m.string[m.end() :],
    ),
    Mutation("fragment exchanged", rf"^\s*ldmatrix\..*?{FRAGMENT}", lambda m: _exchanged(m, 0, 1)),
    Mutation("fragment turned", r"^\s*ldmatrix\..*x4", _turned),
    Mutation("fragment moved", r"^(?P<a>\s*ldmatrix\..*\[%r\d+)\]", lambda m: f"{m['a']}+16]" + m.string[m.end() :]),
    Mutation("operand exchanged", rf"^\s*mma\.sync\.[^}}]*\}},\s*{FRAGMENT}", lambda m: _exchanged(m, 1, 2)),
    Mutation("product dropped", r"^\s*mma\.sync\..*;"),
    Mutation("swizzle dropped", SWIZZLE, lambda m: f"{m['a']}mov.b32 {m['d']}, {m['s']};"),
    Mutation("bound moved", BOUND, lambda m: m.string.replace(f"setp.{m['w']}.", f"setp.{STRICT[m['w']]}."), _at_bound),
    Mutation("bound dropped", BOUND, _unbounded, _outside),
    Mutation("matrix fence dropped", r"^.*wgmma\.fence\.sync\.aligned;"),
    Mutation("proxy fence dropped", r"^.*fence\.proxy\.async[.\w:]*;"),
    Mutation("matrix wait dropped", r"^.*wgmma\.wait_group\.sync\.aligned \d+;"),
    Mutation("matrix commit dropped", r"^.*wgmma\.commit_group\.sync\.aligned;"),
    Mutation(
        "matrix layout changed",
        (r"^(?P<a>.*wgmma\.mma_async.*, 1, 1, (\d, )?)(?P<t>[01])(?P<b>;.*)$"),
        lambda m: f"{m['a']}{1 - int(m['t'])}{m['b']}",
    ),
    Mutation(
        "descriptor changed",
        r"^(?P<a>\s*or\.b64\s+%rd\d+, %rd\d+, )(?P<n>-?\d+);",
        lambda m: f"{m['a']}{int(m['n']) ^ 1 << 62};",
    ),
    Mutation(
        "store moved",
        r"^(?P<a>\s*st\.shared\.\S+\s+\[%r\d+)(\+(?P<n>\d+))?\]",
        lambda m: f"{m['a']}+{int(m['n'] or 0) + 16}]" + m.string[m.end() :],
    ),
    Mutation(
        "shuffle changed",
        (r"^(?P<a>\s*shfl\.sync\.(bfly|down)\.b32\s+\S+, \S+, )(?P<n>%r\d+|\d+), "),
        lambda m: f"{m['a']}0, " + m.string[m.end() :],
    ),
    Mutation("arrival dropped", r"^\s*(cp\.async\.)?mbarrier\.arrive\..*;"),
    Mutation(
        "arrival not counted",
        r"^(?P<a>\s*cp\.async\.mbarrier\.arrive)(?P<b>\..*;)",
        lambda m: f"{m['a']}.noinc{m['b']}",
    ),
    Mutation(
        "phase changed",
        r"^(?P<a>\s*)(?P<b>mbarrier\.try_wait\.parity\S+ \S+ \[%r\d+\], )(?P<p>%r\d+)(?P<c>.*)$",
        lambda m: f"{m['a']}{{ .reg .b32 other; xor.b32 other, {m['p']}, 1; {m['b']}other{m['c']} }}",
    ),
    Mutation(
        "wait not believed",
        r"^(?P<a>\s*mbarrier\.try_wait\.parity\S+ (?P<p>P\d+),.*;)",
        lambda m: f"{m['a']} setp.eq.b32 {m['p']}, 0, 0;",
    ),
    Mutation(
        "fewer arrivals expected",
        r"^(?P<a>\s*mbarrier\.init\S+ \[%r\d+\], )(?P<n>%r\d+)(?P<b>.*)$",
        lambda m: f"{m['a']}96{m['b']}",
    ),
    Mutation("object not made", r"^\s*mbarrier\.init\..*;"),
)
MOVED: Final = "barrier moved"

COPIES: Final = frozenset(
    {"barrier dropped", MOVED, "wait dropped", "wait too weak", "commit dropped", "copy dropped", "copy to a neighbour"}
)
FRAGMENTS: Final = frozenset(
    {
        "fragment exchanged",
        "fragment turned",
        "fragment moved",
        "operand exchanged",
        "product dropped",
        "swizzle dropped",
    }
)
GROUPS: Final = frozenset({
    "matrix fence dropped", "proxy fence dropped", "matrix wait dropped", "matrix commit dropped",
    "matrix layout changed", "descriptor changed",
})  # fmt: skip

PHASES: Final = frozenset({
    "arrival dropped", "arrival not counted", "phase changed", "wait not believed", "fewer arrivals expected",
    "object not made",
})  # fmt: skip

EDGE: Final = "numbers beyond the edge of K meet zeros of the other operand, rows beyond M or N are not stored"
PAIR: Final = "the barriers 3 and 4 stand one after the other with no access of shared memory in between"
TAIL: Final = "loading warps wait for the last stages before they end, for the sake of other blocks of a cluster"
EQUIVALENT: Final[dict[str, str]] = {
    "conv2d: barrier dropped 3": PAIR,
    "conv2d: barrier dropped 4": PAIR,
    "conv2d: barrier moved 4": PAIR,
    "conv2d: barrier moved 5": PAIR,
    "conv2d: commit dropped 4": "cp.async.wait_all follows, which waits for copies in no group too",
    **{f"gemm_kk: copy unbounded {place}": EDGE for place in range(1, 12)},
    **{f"gemm_kk: bound dropped {place}": EDGE for place in (23, 25, 27, 33)},
    "gemm_kk: bound dropped 17": "one step more is fetched, zeros that nobody reads",
    "gemm_sm90: matrix fence dropped 2": "only products touched the sums since the last fence",
    "gemm_sm90: wait not believed 5": "the stage was never used: the phase before the first counts as complete",
    **{f"gemm_sm90: wait not believed {place}": TAIL for place in (7, 8, 9)},
    "pipeline: bound moved 7": "one more arrival at a barrier that nobody waits at any more",
    "pipeline: bound dropped 7": "one more arrival at a barrier that nobody waits at any more",
}


def mutants(case: Case, executed: frozenset[int]) -> Iterator[Mutant]:
    """All changes of a kernel's executed lines, one at a time."""
    lines = case.text.splitlines()
    for mutation in MUTATIONS:
        if mutation.name not in case.mutations:
            continue
        place = 0
        for number in sorted(executed):
            found = re.search(mutation.pattern, lines[number - 1])
            if found is None:
                continue
            place += 1
            changed = _without(lines[number - 1], found) if mutation.change is None else mutation.change(found)
            probe = mutation.probe(found) if mutation.probe is not None else ""
            if probe and judge(case, "\n".join((*lines[: number - 1], probe, *lines[number:]))) != FaultKind.TRAP.value:
                continue
            if changed != lines[number - 1]:
                text = "\n".join((*lines[: number - 1], changed, *lines[number:]))
                yield Mutant(case.name, mutation.name, place, number, text)
    if MOVED in case.mutations:
        yield from _moved(case, executed, lines)


def _without(line: str, found: re.Match[str]) -> str:
    return line[: found.start()] + line[found.end() :]


def _moved(case: Case, executed: frozenset[int], lines: list[str]) -> Iterator[Mutant]:
    """A barrier behind the access of shared memory that follows it, or before the one that it follows."""
    access = re.compile(r"^\s*(@!?%p\d+\s+)?(ld\.shared|st\.shared|ldmatrix|cp\.async\.c)")
    place = 0
    for number in sorted(executed):
        if not re.match(r"^\s*bar\.sync\b.*;", lines[number - 1]):
            continue
        for step in (1, -1):
            other = number + step
            while other in executed or (
                1 <= other <= len(lines)
                and not re.match(r"^\s*(@|bra|\$|ret|bar)", lines[other - 1])
                and abs(other - number) < 60
            ):
                if access.match(lines[other - 1]):
                    break
                other += step
            else:
                continue
            if not access.match(lines[other - 1]) or any(
                re.match(r"^\s*(@\S+\s+bra|bra|\$|ret|bar)", lines[k - 1])
                for k in range(min(number, other) + 1, max(number, other))
            ):
                continue
            place += 1
            moved = list(lines)
            barrier = moved[number - 1]
            moved[number - 1] = ""
            moved[other - 1] = f"{moved[other - 1]}\n{barrier}" if step > 0 else f"{barrier}\n{moved[other - 1]}"
            yield Mutant(case.name, MOVED, place, number, "\n".join(moved))


def judge(case: Case, text: str) -> str:
    """What becomes of a changed text: the kind of its fault, `wrong`, or empty where it is right."""
    try:
        error, _ = case.error(parse(text))
    except Fault as fault:
        return fault.kind.value
    return "" if error <= 1 else "wrong"


def alone(text: str, kernel: str) -> str:
    """The text without the bodies of other kernels; lines keep their numbers."""
    kept, inside = [], True
    for line in text.splitlines():
        if ".entry " in line or ".func " in line:
            inside = f".entry {kernel}(" in line
        kept.append(line if inside else "")
    return "\n".join(kept)


def _conv_error(conv: Conv2d, shapes: tuple[Shape, ...]) -> Error:
    given = conv.parameters(shapes)
    problems = [problem(shape, 5) for shape in shapes]

    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for launch_, case in zip(given, problems, strict=True):
            result, done = run_conv2d(conv, launch_, case, limits=STEPS, module=module)
            largest = max(largest, worst(result, case.exact, case.allowed))
            lines, steps = lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(given), steps, 0, lines)

    return error


def cases(folder: Path) -> Iterator[Case]:
    """All kernels, compiled with results kept in `folder`."""
    compiler = find_nvcc(folder)

    def source(name: str) -> str:
        return (KERNELS / name).read_text(encoding="utf-8")

    simple = compiler.ptx(source("simple.cu"), "80", name="simple.cu")
    some = frozenset({"barrier dropped", MOVED, "bound moved", "bound dropped", "shuffle changed"})
    yield Case(
        "softmax", "softmax", alone(simple, "softmax"), lambda m: softmax_error(m, 12, 129, 96, limits=STEPS), some
    )
    yield Case("pipeline", "pipeline", alone(simple, "pipeline"), lambda m: pipeline_error(m, 2, 7, limits=STEPS), some)
    yield Case("pool", "pool", alone(simple, "pool"), lambda m: pool_error(m, 1, 5, 7, 16, limits=STEPS), some)
    product = compiler.ptx(source("gemm_wgmma.cu"), "90a", name="gemm_wgmma.cu")
    whole = COPIES | GROUPS | {"swizzle dropped", "copy unbounded", "bound dropped"}
    for kernel, kinds in (("gemm_kk", whole), ("gemm_mm", GROUPS), ("gemm_rm", COPIES | GROUPS | FRAGMENTS)):
        yield Case(kernel, kernel, alone(product, kernel), _gemm_error(kernel), kinds)
    gemm90 = gemm90_launches(compiler, source("gemm_sm90.cu"))
    yield Case(
        "gemm_sm90", "gemm_sm90", gemm90.text, _gemm90_error(gemm90),
        PHASES | {"barrier dropped", "copy dropped"} | GROUPS - {"proxy fence dropped"},
    )  # fmt: skip
    conv = conv2d_launches(compiler, source("conv2d.cu"))
    yield Case(
        "conv2d", "conv2d", conv.text, _conv_error(conv, (SHAPES[1], SHAPES[4])),
        COPIES | FRAGMENTS | {"copy unbounded", "store moved"},
    )  # fmt: skip


def _gemm_error(kernel: str) -> Error:
    return lambda module: wgmma_error(module, kernel, (136, 72, 200), limits=STEPS)


def _gemm90_error(gemm: Gemm90) -> Error:
    """Depths of fewer and of more steps than there are stages."""
    sizes = ((136, 72, 100), (64, 64, 512))
    given = [gemm.given(size) for size in sizes]

    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for launch_, size in zip(given, sizes, strict=True):
            found, done = gemm90_error(module, launch_, size, limits=STEPS)
            largest, lines, steps = max(largest, found), lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(given), steps, 0, lines)

    return error


def main() -> int:
    """Judges all mutants; 1 where one that is not listed goes unnoticed, or a listed one is noticed after all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--kernel", help="only this one")
    parser.add_argument("--cache", type=Path, help="a folder for compiled kernels")
    add_outputs(parser)
    options = parser.parse_args()
    verdicts: Counter[str] = Counter()
    figures: dict[str, dict[str, int]] = {}
    unnoticed, mistaken, seen = [], [], 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        for case in cases(options.cache or Path(folder)):
            if options.kernel not in (None, case.name):
                continue
            error, done = case.error(parse(case.text))
            if error > 1:
                raise SystemExit(f"{case.name} is wrong before it is changed: {error:.3g} of the bound")
            own: Counter[str] = Counter()
            for mutant in mutants(case, done.lines):
                verdict = judge(case, mutant.text)
                listed = mutant.name in EQUIVALENT
                seen += 1
                own[verdict or ("equivalent" if listed else "UNNOTICED")] += 1
                if not verdict and not listed:
                    unnoticed.append(
                        f"{mutant.name}, line {mutant.line}: {case.text.splitlines()[mutant.line - 1].strip()}"
                    )
                if verdict and listed:
                    mistaken.append(f"{mutant.name} is listed as equivalent and ends with: {verdict}")
            verdicts += own
            figures[case.name] = dict(own)
            print(f"{case.name:10}", ", ".join(f"{name} {count}" for name, count in sorted(own.items())), flush=True)
    print(
        f"{seen} mutants in {time.perf_counter() - start:.0f} s:",
        ", ".join(f"{n} {c}" for n, c in sorted(verdicts.items())),
    )
    for line in (*unnoticed, *mistaken):
        print(line)
    keep(options, figures)
    few = options.kernel is None and seen < LEAST
    if few:
        print(f"only {seen} mutants; at least {LEAST} are asked for")
    return 1 if unnoticed or mistaken or few else 0


if __name__ == "__main__":
    sys.exit(main())
