"""The one shape of user errors: the words that the command line prints."""

from __future__ import annotations

import pickle

import pytest

from hw_models.errors import (
    ChipError,
    DoesNotFit,
    FileProblem,
    ModelError,
    PlanError,
    TargetError,
    UserError,
    ratio_text,
    reason_text,
    required,
    size_text,
)
from hw_models.infeasible import (
    GraphSubject,
    HeldRole,
    Holder,
    Infeasible,
    InstanceSubject,
    LayerSubject,
    Lever,
    ProgramSubject,
    SlotSubject,
    Subject,
    ValueSubject,
)


def test_a_full_message_has_all_four_parts_in_order() -> None:
    error = ModelError("Conv 'conv1'", needs="static shapes", has="dimension N", change="give --shape x=1,3,224,224")
    assert str(error) == "Conv 'conv1': needs static shapes; has dimension N; give --shape x=1,3,224,224"


def test_empty_parts_leave_no_separators() -> None:
    assert str(UserError("chip.yaml")) == "chip.yaml"
    assert str(UserError("chip.yaml", change="check the path")) == "chip.yaml: check the path"


def test_does_not_fit_states_demand_bound_gap_and_levers() -> None:
    levers = (Lever.SMALLER_BATCH, Lever.LARGER_MEMORY)
    found = Infeasible(LayerSubject("conv1"), "L1", "data", 3 << 19, 1 << 20, levers)
    text = (
        "layer conv1: needs 1.50 MiB of L1 (data buffer); has 1 MiB (512 KiB too few); change one of: a smaller batch, "
        "a chip with more L1"
    )
    assert str(DoesNotFit(found)) == reason_text(found) == text
    assert DoesNotFit(found).infeasible is found
    assert found.missing_bytes == 1 << 19


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (LayerSubject("conv1"), "layer conv1"),
        (LayerSubject("conv1", smallest_tile=True), "layer conv1 (smallest tile)"),
        (ValueSubject("x"), "value x"),
        (ValueSubject("x", HeldRole.BUFFER), "value x.buffer"),
        (SlotSubject("x", 3), "value x in slot 3"),
        (InstanceSubject("n1"), "instance n1"),
        (GraphSubject("net", "images"), "graph net (largest tensor images)"),
        (ProgramSubject("net"), "program net"),
    ],
)
def test_every_subject_has_its_words(subject: Subject, text: str) -> None:
    assert str(DoesNotFit(Infeasible(subject, "L1", "", 2, 1, ()))) == (
        f"{text}: needs 2 bytes of L1; has 1 bytes (1 bytes too few)"
    )


def test_what_is_required_is_handed_on_or_refused() -> None:
    found = Infeasible(LayerSubject("conv1"), "L1", "", 2, 1, ())
    assert required(7) == 7
    with pytest.raises(DoesNotFit) as refusal:
        required(found)
    assert refusal.value.infeasible is found


def test_a_name_of_a_memory_is_never_read_as_a_pattern() -> None:
    found = Infeasible(LayerSubject("{0}"), "{memory}{x}", "", 2, 1, (Lever.LARGER_MEMORY,))
    assert str(DoesNotFit(found)) == (
        "layer {0}: needs 2 bytes of {memory}{x}; has 1 bytes (1 bytes too few); change one of: a chip with more "
        "{memory}{x}"
    )


def test_who_holds_what_is_a_table_below_the_line() -> None:
    found = Infeasible(ValueSubject("y"), "L1", "", 3000, 2048, ())
    holders = (Holder("x", 512, "conv1", "add3", HeldRole.STORE), Holder("weights", 1024, "the start", "the end"))
    plain, error = DoesNotFit(found), DoesNotFit(found.held_by(holders, 5))
    assert error.infeasible.slot == 5
    assert str(plain) == plain.line == error.line
    assert str(error).splitlines()[1:] == [
        "  held in L1 at that moment: 1.50 KiB",
        "  weights      1 KiB  from the start to the end",
        "  x.store  512 bytes  from conv1 to add3",
    ]


def test_many_holders_are_added_up() -> None:
    holders = tuple(Holder(f"v{number:02}", 1024 - number, "a", "b") for number in range(20))
    found = Infeasible(ValueSubject("y"), "L1", "", 2, 1, (), holders=holders)
    lines = str(DoesNotFit(found)).splitlines()
    assert len(lines) == 2 + 8 + 1
    assert lines[2].split()[0] == "v00"
    assert lines[-1] == "  12 more   11.84 KiB"


def test_does_not_fit_is_a_plan_error_and_all_are_user_errors() -> None:
    assert issubclass(DoesNotFit, PlanError)
    assert all(issubclass(kind, UserError) for kind in (ChipError, ModelError, PlanError, TargetError))


def test_many_problems_are_counted_and_cut() -> None:
    problems = tuple(FileProblem(line, "name", "used twice") for line in range(1, 101))
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
        ChipError("chip.yaml", problems=(FileProblem(3, "cores", "0", "1 or more"),)),
        DoesNotFit(
            Infeasible(ValueSubject("y"), "L1", "", 3, 2, (Lever.FINER_CUT,), holders=(Holder("v", 1, "p", "q"),))
        ),
    ],
)
def test_errors_come_from_other_processes_whole(error: UserError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (1000, 2000, "2.00 times fewer cycles"),
        (3580, 2000, "1.79 times as many cycles"),
        (2000, 2000, "as many cycles"),
        (2001, 2000, "as many cycles"),
        (0, 2000, "2000.00 times fewer cycles"),
    ],
)
def test_a_ratio_is_said_in_the_direction_that_is_above_one(ours: float, theirs: float, text: str) -> None:
    assert ratio_text(ours, theirs, "cycles") == text
