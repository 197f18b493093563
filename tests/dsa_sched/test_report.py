"""Reports for readers: what is shown on wide and narrow terminals and elsewhere, and that failures stand out."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from rich.console import Console

from dsa_sched.analysis.figures import ProgramFigures
from dsa_sched.analysis.work import LayerWork, add_work
from dsa_sched.report.json_form import report_json, write_report
from dsa_sched.report.progress import QUIET_SECONDS, ProgressSteps
from dsa_sched.report.tables import print_report
from dsa_sched.verification.tolerances import LogitsResult, Share
from dsa_sched.verification.verdict import (
    BoundedLevelResult,
    ConstantsResult,
    LayerResult,
    LevelResult,
    VerifyReport,
    failures,
    level_failures,
)
from hw_models.errors import UserError

WORK = LayerWork(
    {"matrix": 3, "dma": 2}, {"matrix": 800.0, "dma": 20.0}, {"matrix": 100.0, "dma": 20.0}, {"A->B": 2048}
)
GOOD = LayerResult("conv", ("Conv", "Relu"), "r", WORK, 1e-3, 2e-3, 2048, 0, "", channel=Share(5e-3, 1e-3, 0.02, 3))
WRONG_CHANNEL = replace(GOOD, channel=Share(0.1, 0.004, 0.02, 17))
BAD = LayerResult("[red]odd", ("Add",), "s", WORK, 0.5, inf, 2048, 48, "first at [0]")
UNKNOWN = LayerResult("split", ("Add",), "t", WORK, None, None, 10, 0, "")
LOGITS = LogitsResult("s", 0, 0.5, 10.0, 0.05, 0.2, 2, 1, 0, 3, 1000)


PLAIN = ProgramFigures("O0", 57, 57, 3 << 20, 2000.0)
SHORT = ProgramFigures("O3, scheduled", 4, 15, 1 << 20, 1000.0)


def report(*layers: LayerResult, logits: tuple[LogitsResult, ...] = (LOGITS,)) -> VerifyReport:
    return VerifyReport(
        model="net",
        chip="toy",
        level="O0",
        batch=2,
        inputs=2,
        layers=layers,
        logits=logits,
        constants=1,
        constant_bytes=2048,
        program_bytes=4096,
        total=add_work(layer.work for layer in layers),
        failures=tuple(failures(layers, logits)),
        warnings=(),
        seconds=(("compile", 1.25),),
        against_file=ConstantsResult(1, 0, (), ()),
        programs=(PLAIN,),
    )


def shown(what: VerifyReport, width: int, terminal: bool = True) -> str:
    stream = io.StringIO()
    print_report(what, Console(file=stream, width=width, force_terminal=terminal, color_system=None, highlight=False))
    return stream.getvalue()


def test_a_wide_terminal_shows_cycles_and_bytes_by_layer() -> None:
    lines = shown(report(GOOD, GOOD), 160).splitlines()
    assert lines[0] == "net on toy, O0, batch 2, 2 inputs"
    headings = [
        "layer",
        "operators",
        "instr.",
        "cycles",
        "cycles",
        "KiB",
        "alone",
        "in",
        "network",
        "samples",
    ]
    assert lines[2].split() == headings
    assert lines[3].split() == ["conv", "Conv+Relu", "5", "100", "20", "2.0", "1.00e-03", "2.00e-03", "2,048"]
    assert lines[5].split() == ["total", "2", "layers", "10", "200", "40", "4.0", "1.00e-03", "4,096"]
    assert lines[-1] == "passed"


def test_kernels_that_are_whole_groups_have_no_column_of_instructions() -> None:
    work = LayerWork({}, {}, {}, {})
    layer = replace(GOOD, work=work)
    lines = shown(replace(report(layer), total=work), 160).splitlines()
    assert not any("instr." in line for line in lines)
    assert lines[3].split() == ["conv", "Conv+Relu", "1.00e-03", "2.00e-03", "2,048"]


def test_a_narrow_terminal_shows_the_rest_and_says_so() -> None:
    text = shown(report(GOOD), 70)
    assert "conv   Conv+Relu" in text
    assert "…" not in text
    assert "cycles and bytes by layer: in a wider terminal" in text
    assert "cycles of the busiest cores: matrix 100, dma 20" in text
    assert "moved: A->B 2 KiB" in text


def test_plain_text_has_no_blanks_at_the_ends_of_lines() -> None:
    assert all(line == line.rstrip() for line in shown(report(GOOD), 200, terminal=False).splitlines())


def test_failures_are_said_in_words_and_names_are_not_markup() -> None:
    text = shown(report(GOOD, BAD), 200)
    assert "failed: layer [red]odd: relative error 0.5 by itself, at most 0.015 is allowed" in text
    assert "failed: layer [red]odd: 48 of 2048 samples differ from the emulation, first at [0]" in text
    assert "2,000 of 2,048" in text
    assert text.splitlines()[-1] == "FAILED"


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        (replace(LOGITS, error=1.5), "s for input 0: error 1.5 is 0.15 of the distance 10 between inputs"),
        (replace(LOGITS, error=inf), "s for input 0: error inf is inf of the distance"),
        (replace(LOGITS, top1_wrong=1), "s for input 0: 1 of 2 rows have another top-1 although the margin is clear"),
    ],
)
def test_logits_that_fail(logits: LogitsResult, said: str) -> None:
    (failure,) = report(GOOD, logits=(logits,)).failures
    assert failure.startswith(said)


def test_a_wrong_channel_is_said_in_words() -> None:
    text = shown(report(WRONG_CHANNEL), 200)
    assert "failed: layer conv: relative error 0.1 of channel 17 by itself, at most 0.02 is allowed" in text
    said = (
        "channels: nearest to its bound is channel 17 of conv, error 1.00e-01 alone, 500% of what is allowed, 2.00e-02"
    )
    assert said in text
    assert "channels: none that the reference has" in shown(report(UNKNOWN), 200)


def test_logits_are_a_line_each() -> None:
    assert (
        "logits s, input 0: error 0.5, 5.0% of the distance 10 between inputs (at most 10.0%; rounding alone may make "
        "0.3); top-1 the same in 1 of 2, decided among 3 of 1,000 entries at most"
    ) in shown(report(GOOD), 300)


def test_an_end_about_which_nothing_is_said_is_said() -> None:
    silent = replace(LOGITS, distance=0.5, error=3.0)
    assert report(GOOD, logits=(LOGITS, silent)).end_to_end == "passed"
    what = report(GOOD, logits=(silent, silent))
    assert (what.verdict, what.passed, what.end_to_end) == ("inconclusive", False, "no statement")
    text = shown(what, 300)
    assert (
        "logits s, input 0: no statement: the outputs of two inputs differ by 0.5, rounding alone may make 0.3" in text
    )
    assert text.splitlines()[-2:] == [
        "inconclusive: s for input 0: off by 3, where the outputs of two inputs differ by 0.5 and rounding alone may "
        "make 0.3",
        "INCONCLUSIVE",
    ]
    data = json.loads(report_json(what))
    assert (data["verdict"], data["passed"], data["end_to_end"]) == ("inconclusive", False, "no statement")
    assert data["reason"] == data["doubts"][0] == text.splitlines()[-2].removeprefix("inconclusive: ")
    near = report(GOOD, logits=(replace(silent, error=0.04),))
    assert near.verdict == "passed", "what is off by less than a tenth is right, whatever rounding might have made"
    named = replace(what, doubts=("s for input 0: off; Sub v: a difference of nearly equal values, 51 times off",))
    assert named.reason == named.doubts[0]
    assert [logits["statement"] for logits in data["logits"]] == [False, False]
    assert report(GOOD, logits=(replace(LOGITS, error=2.0), silent)).end_to_end == "failed"


def test_what_constants_are_beside_the_files_is_a_line() -> None:
    found = ConstantsResult(5, 2, ("odd",), (("w", 3, 9, "first at [0]: 1, 2 by w"),))
    text = shown(replace(report(GOOD), against_file=found), 300)
    assert (
        "of the file's initializers: 5 bit for bit, 2 through rewrites to within rounding, 1 of these not; "
        "1 of no declared origin, not compared: odd"
    ) in text
    assert list(found.sentences) == ["constant w: 3 of 9 elements are not what the file gives, first at [0]: 1, 2 by w"]


def test_an_end_that_cannot_be_judged_is_a_failure() -> None:
    assert not report(GOOD, logits=()).passed


def test_a_value_without_reference_is_a_dash_and_null() -> None:
    row = next(line for line in shown(report(UNKNOWN), 70).splitlines() if line.startswith("split"))
    assert row.split() == ["split", "Add", "5", "-", "-", "10"]
    assert json.loads(report_json(report(UNKNOWN)))["layers"][0]["isolated_error"] is None


def test_infinite_errors_have_a_json_form() -> None:
    data = json.loads(report_json(report(BAD)))
    assert data["layers"][0]["whole_error"] == "inf"
    assert data["passed"] is False


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_report(report(GOOD), tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["chip"] == "toy"
    with pytest.raises(UserError, match="needs a place that can be written"):
        write_report(report(GOOD), tmp_path / "none" / "r.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="needs a place that can be written"):
        write_report(report(GOOD), tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "r.json"]


def test_steps_are_plain_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with ProgressSteps(Console(file=stream, width=10, force_terminal=False)) as steps:
        steps.say("a step [bold] whose text is longer than the width")
    assert stream.getvalue() == "a step [bold] whose text is longer than the width\n"


def test_without_a_terminal_a_phase_is_a_line_unless_it_takes_long() -> None:
    stream, now = io.StringIO(), 0.0
    with ProgressSteps(Console(file=stream, force_terminal=False), lambda: now) as steps:
        for number in range(1, 5):
            steps.say(f"level auto: plan {number} of 4")
            now += 0.4 * QUIET_SECONDS
        steps.say("timing")
        steps.say("timing")
    said = ["level auto: plan 1 of 4", "level auto: plan 4 of 4", "timing"]
    assert stream.getvalue().splitlines() == said


def test_steps_are_one_changing_line_on_a_terminal() -> None:
    stream = io.StringIO()
    with ProgressSteps(Console(file=stream, width=80, force_terminal=True)) as steps:
        steps.say("lowering")
    assert "lowering" in stream.getvalue()
    erase_line = "\x1b[2K"
    assert stream.getvalue().endswith(erase_line)


def test_a_level_says_what_it_was_compared_with() -> None:
    found = LevelResult("O2", 1, 2048, 1, ())
    said = "level O2: 1 value (1 output), 2 KiB, stays in the main memory, bit for bit as at level O0 for every input"
    assert said in shown(replace(report(GOOD), against_o0=found), 200)
    assert "as at level O0" not in shown(report(GOOD), 200)
    different = replace(found, values=3, different=(("s", 0, 2, 7), ("s", 1, 1, 7), ("t", 1, 1, 0)))
    assert "3 values (1 output), 2 KiB, stay in the main memory, 2 of them not as at level O0" in shown(
        replace(report(GOOD), against_o0=different), 200
    )
    assert [failure.split(" is ")[0] for failure in level_failures(different)] == [
        "level O2: s for input 0",
        "level O2: s for input 1",
    ]


def test_programs_are_compared_with_the_first() -> None:
    lines = shown(replace(report(GOOD), programs=(PLAIN, SHORT)), 200).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("program O0"))
    assert lines[first : first + 2] == [
        "program O0           : 57 kernels, 3 MiB from and to the main memory, 2,000 cycles",
        "program O3, scheduled: 4 kernels in 15 instances, 1 MiB from and to the main memory, 1,000 cycles; compared "
        "with O0: 3.0 times fewer bytes, 2.00 times fewer cycles",
    ]
    longer = replace(PLAIN, name="O2", cycles=3580.0)
    assert "compared with O0: as many bytes, 1.79 times as many cycles" in shown(
        replace(report(GOOD), programs=(PLAIN, longer)), 200
    )
    untimed = shown(replace(report(GOOD), programs=(replace(PLAIN, cycles=None),)), 200)
    assert "program O0: 57 kernels, 3 MiB from and to the main memory\n" in untimed


def test_a_level_of_a_target_with_a_bound_says_what_it_was_judged_by() -> None:
    found = BoundedLevelResult("O2", 3, 2048, 1, 512, ())
    bounded = replace(report(GOOD), against_o0=found, exact=False)
    assert "stay in the main memory, within the target's bound in 512 samples; errors" in shown(bounded, 200)
    assert "in bound" in shown(bounded, 200)
    assert "bit-exact" not in shown(bounded, 200)
    wrong = replace(found, wrong=(("s", 2, 256, "first at [0]"),))
    assert "1 of them not within the target's bound" in shown(replace(bounded, against_o0=wrong), 200)
    (failure,) = level_failures(wrong)
    assert failure == "level O2: 2 of 256 samples of s are beyond the bound, first at [0]"
