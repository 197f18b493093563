"""`timeline --measured`: a board's events beside the model's, from a table or a trace; hostile ones are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dsa_sched.calibration.board_trace import read_trace
from dsa_sched.cli import cli
from hw_models.errors import CountersError
from tests.small_models import classifier, save

TRACKS = {("cluster 0 core 0", "matrix"), ("cluster 0 core 0", "vector"), ("cluster 0 DMA", "dma0.0")}
HEAD = "process,track,name,start_us,duration_us\n"


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["timeline", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with its trace, trace.json."""
    place = tmp_path_factory.mktemp("measured")
    model = save(classifier(), place / "model.onnx")
    words = ["compile", str(model), "--chip", "stcp920", "--level", "O1", "-o", str(place / "mine.out")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert invoke(place / "mine.out", "-o", place / "trace.json").exit_code == 0
    return place


def events(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return found


def named(found: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    return {(each["pid"], each.get("tid", -1)): each["args"]["name"] for each in found if each["name"] == kind}


def test_a_table_becomes_tracks_of_the_same_names(folder: Path) -> None:
    rows = ("cluster 0 core 1,matrix,conv,2.5,10", "cluster 0 core 1,matrix,conv,0,1.25", "cluster 0 DMA,dma0.0,w,0,3")
    (folder / "board.csv").write_text(HEAD + "\n".join(rows), encoding="utf-8")
    done = invoke(folder / "mine.out", "-o", folder / "both.json", "--measured", folder / "board.csv")
    assert done.exit_code == 0, done.output
    before, after = events(folder / "trace.json"), events(folder / "both.json")
    assert [e for e in after if e["pid"] < 100_000 and e["name"] != "process_sort_index"] == [
        e for e in before if e["name"] != "process_sort_index"
    ]
    board = [e for e in after if e["pid"] >= 100_000]
    processes, tracks = named(board, "process_name"), named(board, "thread_name")
    assert set(processes.values()) == {"cluster 0 core 1, measured", "cluster 0 DMA, measured"}
    slices = [(processes[e["pid"], -1], tracks[e["pid"], e["tid"]], e["ts"], e["dur"]) for e in board if e["ph"] == "X"]
    assert slices == [
        ("cluster 0 DMA, measured", "dma0.0", 0, 3),
        ("cluster 0 core 1, measured", "matrix", 0, 1.25),
        ("cluster 0 core 1, measured", "matrix", 2.5, 10),
    ]
    order = sorted((e["args"]["sort_index"], e["pid"]) for e in after if e["name"] == "process_sort_index")
    pids = [pid for _, pid in order]
    assert all(pids[pids.index(pid) - 1] == pid - 100_000 for pid in pids if pid >= 100_000)


def test_a_trace_of_the_same_form_is_read(folder: Path) -> None:
    done = invoke(folder / "mine.out", "-o", folder / "twice.json", "--measured", folder / "trace.json")
    assert done.exit_code == 0, done.output
    found = [event for event in events(folder / "twice.json") if event["ph"] == "X"]
    model = sorted((e["pid"], e["tid"], e["ts"], e["dur"], e["name"]) for e in found if e["pid"] < 100_000)
    board = sorted((e["pid"] - 100_000, e["tid"], e["ts"], e["dur"], e["name"]) for e in found if e["pid"] >= 100_000)
    assert model == board


def test_it_needs_a_trace_to_write(folder: Path) -> None:
    done = invoke(folder / "mine.out", "--measured", folder / "board.csv")
    assert done.exit_code == 2
    assert "--measured puts events into a trace; name its file with -o" in done.stderr


GOOD = {"ph": "X", "pid": 1, "tid": 2, "name": "a", "ts": 0, "dur": 1}
NAMES = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "cluster 0 core 0"}},
    {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "matrix"}},
]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there are no events"),
        (HEAD, "there are no events"),
        ("process,track\n", "c.csv:1: 2 fields; the columns are process,track,name,start_us,duration_us"),
        (
            f"{HEAD}cluster 0 core 9,matrix,a,0,1\n",
            "c.csv:2: process: there is no process 'cluster 0 core 9'; known: clu",
        ),
        (
            f"{HEAD}cluster 0 core 0,dma,a,0,1\n",
            "c.csv:2: track: cluster 0 core 0 has no track 'dma'; known: matrix, ve",
        ),
        (f"{HEAD}cluster 0 core 0,matrix,a,nan,1\n", "c.csv:2: start_us: 'nan' is no time"),
        (f"{HEAD}cluster 0 core 0,matrix,a,0,-1\n", "c.csv:2: duration_us: '-1' is no time"),
        (f"{HEAD}cluster 0 core 0,matrix,a,0,1e5\n", "c.csv:2: duration_us: '1e5' is no time"),
        (f"{HEAD}cluster 0 core 0,matrix,,0,1\n", "c.csv:2: name: '' is no name"),
        (f"{HEAD}cluster 0 core 0,matrix,{'x' * 401},0,1\n", "is no name; 1 to 400 characters"),
        (f'{HEAD}"cluster\n', "c.csv:2: not a line of CSV"),
        (HEAD + "a,b,c,d,e\n" * 100, "c.csv: 40 problems"),
        ("{", "needs trace events in JSON"),
        ('{"a":' * 100_000, "needs trace events in JSON"),
        ('{"traceEvents": [NaN]}', "NaN is no number of JSON"),
        ('{"traceEvents": 3}', "needs a list of objects traceEvents"),
        ('{"traceEvents": [3]}', "needs a list of objects traceEvents"),
        (json.dumps({"traceEvents": [GOOD]}), "event 0, process: there is no process '1'"),
        (json.dumps({"traceEvents": [*NAMES, {**GOOD, "ts": "x"}]}), "event 2, start_us: 'x' is no time"),
        (json.dumps({"traceEvents": [*NAMES, {**GOOD, "dur": -1}]}), "event 2, duration_us: '-1.000000000' is no time"),
        (json.dumps({"traceEvents": [*NAMES, {**GOOD, "ts": 10**400}]}), "event 2, start_us: '1000"),
        ('{"traceEvents": [{"ph": "X", "ts": 1e999}]}', "event 0, process: there is no process 'None'"),
    ],
)
def test_events_that_cannot_be_used_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CountersError, match=re.escape(said)):
        read_trace(file, TRACKS)
