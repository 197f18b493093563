"""Kernels changed in one place each, and whether anything notices: what studies of mutants have in common.

    Case(text, error) --MUTATIONS at executed lines--> Mutant, ... --executor, bound--> fault, wrong, or unnoticed

A barrier, wait, commit, fence or copy is dropped, fewer arrivals or bytes are expected, a barrier moved beyond its
neighbour, a swizzle dropped, registers of a fragment exchanged, a bound dropped or moved by one, a shuffle's distance
or a descriptor changed. Only code that is executed is changed; bounds only where a thread is outside of them, or just
at them: a probe in the place of the change says so. Each changed kernel must end with a fault or with a
result outside of its bound; a study lists those that compute the same, with the reason. Anything else fails.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, TypeVar

import numpy as np

from codegen.cutlass.ptx import FaultKind, KernelFault, Module, Statistics, parse

__all__ = [
    "BULK",
    "COPIES",
    "FRAGMENTS",
    "GROUPS",
    "MOVED",
    "MUTATIONS",
    "PHASES",
    "Case",
    "Error",
    "Found",
    "Mutant",
    "Mutation",
    "alone",
    "judge",
    "mutants",
    "studied",
]

Place = TypeVar("Place")
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
    """A kernel: its name, the whole text, how far its result is from right (at most 1 is right), and by name what is
    changed: at most `most` places of each change, drawn by the name; all where it is None."""

    name: str
    kernel: str
    text: str
    error: Error
    mutations: frozenset[str]
    most: int | None = None


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
        r"^(?P<a>\s*cp\.async\.mbarrier\.arrive)(?P<c>\.noinc)?(?P<b>\..*;)",
        lambda m: f"{m['a']}{'' if m['c'] else '.noinc'}{m['b']}",
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
        lambda m: f"{{ .reg .b32 half; shr.u32 half, {m['n']}, 1; {m['a'].strip()} half{m['b']} }}",
    ),
    Mutation("object not made", r"^\s*mbarrier\.init\..*;"),
    Mutation("object not fenced", r"^\s*fence\.mbarrier_init\..*;"),
    Mutation("bulk copy dropped", r"^\s*cp\.async\.bulk\.shared.*;"),
    Mutation(
        "bulk copy to a neighbour",
        r"^(?P<a>\s*cp\.async\.bulk\.shared\S+ \[%r\d+)\]",
        lambda m: f"{m['a']}+16]" + m.string[m.end() :],
    ),
    Mutation(
        "bytes not expected",
        r"^(?P<a>\s*mbarrier\.arrive)\.expect_tx(?P<b>\S+ \S+ \[%r\d+\]), \S+;",
        lambda m: f"{m['a']}{m['b']};",
    ),
    Mutation(
        "fewer bytes expected",
        r"^(?P<a>\s*mbarrier\.arrive\.expect_tx\S+ \S+ \[%r\d+\], )\S+;",
        lambda m: f"{m['a']}16;",
    ),
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

BULK: Final = frozenset({
    "object not fenced", "bulk copy dropped", "bulk copy to a neighbour", "bytes not expected", "fewer bytes expected",
})  # fmt: skip


def mutants(case: Case, executed: frozenset[int], mutations: Sequence[Mutation] = MUTATIONS) -> Iterator[Mutant]:
    """Changes of a kernel's executed lines, one at a time."""
    lines = case.text.splitlines()
    for mutation in mutations:
        if mutation.name in case.mutations:
            yield from _changed(case, executed, lines, mutation)
    if MOVED in case.mutations:
        yield from islice(_drawn(case, list(_moved(case, executed, lines))), case.most)


def _drawn(case: Case, places: list[Place]) -> list[Place]:
    """All in order; where only some are asked for, in an order drawn by the case's name."""
    return places if case.most is None else Random(case.name).sample(places, len(places))


def _changed(case: Case, executed: frozenset[int], lines: list[str], mutation: Mutation) -> Iterator[Mutant]:
    """Probes are run until there are as many as are asked for."""
    found = [
        (number, match) for number in sorted(executed) if (match := re.search(mutation.pattern, lines[number - 1]))
    ]
    made = 0
    for place, (number, match) in _drawn(case, list(enumerate(found, 1))):
        if made == case.most:
            return
        changed = _without(lines[number - 1], match) if mutation.change is None else mutation.change(match)
        probe = mutation.probe(match) if mutation.probe is not None else ""
        if probe and judge(case, "\n".join((*lines[: number - 1], probe, *lines[number:]))) != FaultKind.TRAP.value:
            continue
        if changed != lines[number - 1]:
            made += 1
            text = "\n".join((*lines[: number - 1], changed, *lines[number:]))
            yield Mutant(case.name, mutation.name, place, number, text)


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
    except KernelFault as fault:
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


@dataclass(frozen=True, slots=True)
class Found:
    """What became of all mutants: `figures` by case and verdict; in words those that nothing noticed although they are
    not listed, and those that are listed and were noticed."""

    seen: int
    figures: Mapping[str, Mapping[str, int]]
    unnoticed: tuple[str, ...]
    mistaken: tuple[str, ...]

    def failed(self, least: int) -> int:
        """1, and the reasons printed, where something is not as it must be or there are fewer mutants than `least`."""
        for line in (*self.unnoticed, *self.mistaken):
            print(line)
        if self.seen < least:
            print(f"only {self.seen} mutants; at least {least} are asked for")
        return int(bool(self.unnoticed or self.mistaken or self.seen < least))


def studied(
    cases: Iterable[Case],
    equivalent: Mapping[str, str],
    said: Callable[[str], None],
    mutations: Sequence[Mutation] = MUTATIONS,
    excuse: Callable[[Case, Mutant], bool] = lambda _case, _mutant: False,
) -> Found:
    """Judges all mutants of all cases; `equivalent` has the reason by name of those that compute the same, and `excuse`
    is asked about others that nothing noticed. Raises SystemExit for a kernel that is wrong before it is changed."""
    figures: dict[str, Mapping[str, int]] = {}
    unnoticed, mistaken, start = list[str](), list[str](), time.perf_counter()
    with np.errstate(all="ignore"):
        for case in cases:
            error, done = case.error(parse(case.text))
            if error > 1:
                raise SystemExit(f"{case.name} is wrong before it is changed: {error:.3g} of the bound")
            own: Counter[str] = Counter()
            for mutant in mutants(case, done.lines, mutations):
                verdict, listed = judge(case, mutant.text), mutant.name in equivalent
                same = not verdict and (listed or excuse(case, mutant))
                own[verdict or ("equivalent" if same else "UNNOTICED")] += 1
                if not verdict and not same:
                    changed = case.text.splitlines()[mutant.line - 1].strip()
                    unnoticed.append(f"{mutant.name}, line {mutant.line}: {changed}")
                if verdict and listed:
                    mistaken.append(f"{mutant.name} is listed as equivalent and ends with: {verdict}")
            figures[case.name] = dict(own)
            said(f"{case.name:10} {_counts(own)}")
    verdicts = sum((Counter(own) for own in figures.values()), Counter[str]())
    said(f"{verdicts.total()} mutants in {time.perf_counter() - start:.0f} s: {_counts(verdicts)}")
    return Found(verdicts.total(), figures, tuple(unnoticed), tuple(mistaken))


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
