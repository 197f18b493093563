"""Format of `launches.json`, the executable of a GPU artifact: launches, their order, and their data.

    arena        one allocation of `arena_bytes`; tensors are ranges of it
    data         files that are copied into the arena before the first run
    modules      kernels by file: CUDA source, PTX, machine code
    launches     kernel, grid, block, shared memory, parameters; in these, at `relocations`, stand addresses of tensors

The executor of PTX and the Python runner read this and nothing else; the C runner reads the same list as records
(`binary_list.py`). A tensor of role `input` or `output` may be bound to a buffer of the caller instead of its range,
since parameters name tensors and not addresses. The records are those of the Python runner, which stands alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from hashlib import sha256

from codegen.cutlass.runner.runner import MAX_NAME, LaunchList, RunnerError, parse_launches
from hw_models.errors import TargetError


def launch_list_text(listed: LaunchList) -> bytes:
    """The list as JSON; equal lists give equal bytes."""
    return json.dumps(asdict(listed), indent=1, ensure_ascii=False).encode() + b"\n"


OF_INTEGERS = "integers: "
"""How the names of what is started before and after the groups of a plan begin."""


OF_SLICE = re.compile(r"slice (\d{1,9}) of (\d{1,9}): ")
"""How the names of what is started for a slice of the batch begin."""


def printable(name: str, most: int = MAX_NAME) -> str:
    """A user's name in the form that a list of launches may hold: without control characters, not longer than `most`,
    and no other kind of name. A changed name ends in a hash of the original, so that different names stay different."""
    plain = "".join(c if c.isprintable() else "?" for c in name).removeprefix(OF_INTEGERS)
    if found := OF_SLICE.match(plain):
        plain = plain[found.end() :]
    if plain == name and 0 < len(name) <= most:
        return name
    return f"{plain[: most - 13]}#{sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"


def slice_name(name: str, instance: int, count: int) -> str:
    """The name of what is started for a group's slice number `instance`, from 0 on, of `count`."""
    prefix = f"slice {instance + 1} of {count}: "
    return prefix + printable(name, MAX_NAME - len(prefix))


def slice_of(name: str) -> tuple[str, int, int]:
    """The group, the slice's number from 0 on, and how many there are: the converse of `slice_name`. Other names are
    those of the only slice."""
    found = OF_SLICE.match(name)
    return (name[found.end() :], int(found[1]) - 1, int(found[2])) if found else (name, 0, 1)


def whole_name(name: str) -> str:
    """The group's name in that of a slice; other names as they are."""
    return slice_of(name)[0]


def integers_name(name: str) -> str:
    """The name of what is started for an operator on integers of this name."""
    return OF_INTEGERS + printable(name)[: MAX_NAME - len(OF_INTEGERS)]


def read_launch_list(data: bytes) -> LaunchList:
    """Parse a list of launches. Raises TargetError for bytes that are not one."""
    try:
        return parse_launches(data)
    except RunnerError as error:
        has = str(error).removeprefix("launches.json: ")
        raise TargetError("launches.json", needs="a list of launches", has=has) from error
