"""Plans and programs of networks of the zoo are those of the files here; small networks in the ordinary run.

python -m pytest tests/golden --update-goldens -m 'not slow'  # accept what the ordinary run makes
python -m pytest tests/golden --update-goldens                # and what the nightly one makes, at full size
"""

from __future__ import annotations

import pytest

from tests.golden.goldens import FOLDER, Case, compare, compiled, cycles, plan_text, program_text

SMALL = (("shufflenet", 32, 2), ("unet", 32, 2))
LARGE = (
    ("inception_v1", 65, 2),
    ("resnet50", 0, 1),
    ("densenet121", 0, 1),
    ("squeezenet", 0, 4),
    ("resnet50", 64, 8),
    ("inception_v2", 64, 2),
    ("nasnet", 64, 1),
)
LEVELS = ("O0", "O1", "O2", "O3", "astitch")


def cases(networks: tuple[tuple[str, int, int], ...]) -> list[Case]:
    return [Case(*network, level) for network in networks for level in LEVELS]


def check(case: Case, update: bool) -> None:
    """The plan once, from it the program with and without --schedule."""
    plain, scheduled = compiled(case)
    compare(case.folder / f"{case.level}.plan.txt", plan_text(plain), update)
    compare(case.folder / f"{case.level}.txt", program_text(plain), update)
    compare(case.folder / f"{case.level}-scheduled.txt", program_text(scheduled), update)


@pytest.mark.spread(6)
@pytest.mark.parametrize("case", cases(SMALL), ids=str)
@pytest.mark.commit
def test_small_networks(case: Case, update_goldens: bool) -> None:
    check(case, update_goldens)


@pytest.mark.slow(at_commit=2)
@pytest.mark.parametrize("case", cases(LARGE), ids=str)
def test_large_networks(case: Case, update_goldens: bool) -> None:
    check(case, update_goldens)


@pytest.mark.parametrize("case", cases((*SMALL, *LARGE)), ids=str)
def test_with_schedule_a_program_takes_no_longer(case: Case) -> None:
    """By what the files here say."""
    plain, scheduled = (cycles(case.folder / f"{case.level}{kind}.txt") for kind in ("", "-scheduled"))
    assert scheduled <= plain


def test_no_golden_is_left_behind() -> None:
    wanted = {
        case.folder / f"{case.level}{kind}.txt"
        for case in cases((*SMALL, *LARGE))
        for kind in (".plan", "", "-scheduled")
    }
    assert set(FOLDER.rglob("*.txt")) == wanted
