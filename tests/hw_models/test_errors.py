"""The one shape of user errors: the words that the command line prints."""

from __future__ import annotations

import pickle

import pytest

from hw_models.errors import (
    ChipError,
    DoesNotFit,
    Holder,
    ModelError,
    PlanError,
    Problem,
    TargetError,
    UserError,
    size_text,
)


def test_a_full_message_has_all_four_parts_in_order() -> None:
    error = ModelError("Conv 'conv1'", needs="static shapes", has="dimension N", change="give --shape x=1,3,224,224")
    assert str(error) == "Conv 'conv1': needs static shapes; has dimension N; give --shape x=1,3,224,224"


def test_empty_parts_leave_no_separators() -> None:
    assert str(UserError("chip.yaml")) == "chip.yaml"
    assert str(UserError("chip.yaml", change="check the path")) == "chip.yaml: check the path"


def test_does_not_fit_states_demand_bound_gap_and_levers() -> None:
    error = DoesNotFit(
        "Conv 'conv1'", demand_bytes=3 << 19, bound_bytes=1 << 20, where="L1 per core", levers=("--batch", "split")
    )
    assert str(error) == (
        "Conv 'conv1': needs 1.50 MiB of L1 per core; has 1 MiB (512 KiB too few); change one of: --batch, split"
    )
    assert (error.demand_bytes, error.bound_bytes, error.where) == (3 << 19, 1 << 20, "L1 per core")


def test_who_holds_what_is_a_table_below_the_line() -> None:
    plain = DoesNotFit("value y", demand_bytes=3000, bound_bytes=2048, where="L1", levers=("split",))
    error = plain.held_by((Holder("x", 512, "conv1", "add3"), Holder("weights", 1024, "the start", "the end")))
    assert str(plain) == plain.line == error.line
    assert str(error).splitlines()[1:] == [
        "  held in L1 at that moment: 1.50 KiB",
        "  weights      1 KiB  from the start to the end",
        "  x        512 bytes  from conv1 to add3",
    ]


def test_many_holders_are_added_up() -> None:
    holders = tuple(Holder(f"v{number:02}", 1024 - number, "a", "b") for number in range(20))
    error = DoesNotFit("y", demand_bytes=2, bound_bytes=1, where="L1", levers=(), holders=holders)
    lines = str(error).splitlines()
    assert len(lines) == 2 + 8 + 1
    assert lines[2].split()[0] == "v00"
    assert lines[-1] == "  12 more   11.84 KiB"
    assert len(error.holders) == 20


def test_does_not_fit_is_a_plan_error_and_all_are_user_errors() -> None:
    assert issubclass(DoesNotFit, PlanError)
    assert all(issubclass(kind, UserError) for kind in (ChipError, ModelError, PlanError, TargetError))


def test_many_problems_are_counted_and_cut() -> None:
    problems = tuple(Problem(line, "name", "used twice") for line in range(1, 101))
    lines = str(ChipError("a.yaml", problems=problems)).splitlines()
    assert lines[0] == "a.yaml: 100 problems"
    assert lines[1] == "  a.yaml:1: name: used twice"
    assert lines[-1] == "  and 60 more"
    assert len(lines) == 42


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1 << 20, "1 MiB"),
        (1_310_720, "1.25 MiB"),
        (3 << 30, "3 GiB"),
    ],
)
def test_sizes_read_well(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    "error",
    [
        UserError("a", needs="b", has="c", change="d"),
        ChipError("chip.yaml", problems=(Problem(3, "cores", "0", "1 or more"),)),
        DoesNotFit("op", demand_bytes=3, bound_bytes=2, where="L1", levers=("x",), holders=(Holder("v", 1, "p", "q"),)),
    ],
)
def test_errors_come_from_other_processes_whole(error: UserError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
