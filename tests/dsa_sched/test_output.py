"""Where results go: files, links, pipes, a standard output that takes nothing, and a run that the user interrupts."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from dsa_sched.io.atomic_write import require_file, require_folder, write_whole
from hw_models.errors import UserError
from tests.interrupts import heed_interrupts
from tests.small_models import one_node, save

COMMAND = (sys.executable, "-m", "dsa_sched")


def write(path: Path, data: bytes) -> None:
    write_whole(path, lambda stream: stream.write(data))


def here(*words: object) -> None:
    """A command in this process."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "new", b"1")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o666 & ~mask


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"0")
    (tmp_path / "old").chmod(0o640)
    write(tmp_path / "old", b"1")
    assert ((tmp_path / "old").read_bytes(), mode(tmp_path / "old")) == (b"1", 0o640)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real", tmp_path / "link"
    if there:
        real.write_bytes(b"0")
    link.symlink_to(Path("far") / "real")
    write(link, b"1")
    assert link.is_symlink()
    assert real.read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "link", "real"]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe, b"1")
    assert pipe.is_fifo()
    reader.join(10)
    assert read == [b"1"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "old").write_bytes(b"0")
    with pytest.raises(UserError, match="no space left on device"):
        write_whole(tmp_path / "old", fail)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"0"]


NOWHERE = "/proc/nobody/makes/this"
"""A place in which nobody, root neither, can make a file or a folder."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "none.onnx", "--chip", "stcp920", "-o", NOWHERE),
        ("run", "none", "--input", "none.npz", "--output", "/proc/y.npz"),
        ("verify", "none.onnx", "--chip", "stcp920", "--json", "/proc/y.json"),
        ("verify", "none.onnx", "--chip", "stcp920", "--bisect", "-o", NOWHERE),
        ("explain", "none.onnx", "--chip", "stcp920", "--json", "/proc/y.json"),
        ("time", "none", "--chip", "stcp920", "--json", "/proc/y.json"),
        ("timeline", "none", "--chip", "stcp920", "--json", "/proc/y.json"),
        ("timeline", "none", "--chip", "stcp920", "-o", "/proc/y.json"),
        ("timeline", "none", "--chip", "stcp920", "--memory", "/proc/y.png"),
        ("place", "none.onnx", "--scenario", "none.yaml", "--json", "/proc/y.json"),
        ("place", "none.onnx", "--scenario", "none.yaml", "-o", "/proc/y.json"),
        ("iss", "none.elf", "--dump", "0x400000:4", "--dump-path", NOWHERE),
        ("iss", "none.elf", "--trace", "/proc/y.txt"),
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(arguments: tuple[str, ...]) -> None:
    """What is to be read does not exist either: that would be said first if anything had been done."""
    result = CliRunner().invoke(cli, arguments, prog_name="dsa-sched")
    assert (result.exit_code, result.stdout) == (1, "")
    what = "folder" if arguments[-1] == NOWHERE else "place"
    assert f"dsa-sched: error: {arguments[-1]}: needs a {what} that can be written; has " in result.stderr


@pytest.mark.parametrize("name", ["", "n" * 300])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"needs a file to write; has a folder|file name too long"):
        require_file(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_written_is_let_through_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"0")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for path in (tmp_path / "new", tmp_path / "old", tmp_path / "pipe", Path("/dev/null"), Path("/dev/stdout")):
        require_file(path)
    require_file(tmp_path / "deep" / "deeper" / "file", folders_made=True)
    for folder in (tmp_path, tmp_path / "new", tmp_path / "deep" / "deeper"):
        require_folder(folder)
        require_folder(folder, replaced=True)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old").read_bytes() == b"0"
    with pytest.raises(UserError, match="old: needs a folder that can be written; has not a directory"):
        require_folder(tmp_path / "old")
    with pytest.raises(UserError, match="has not a directory"):
        require_folder(tmp_path / "old" / "below")
    with pytest.raises(UserError, match="has not a directory"):
        require_file(tmp_path / "old" / "file", folders_made=True)
    with pytest.raises(UserError, match="needs a folder that exists; has none; create it first"):
        require_file(tmp_path / "deep" / "file")


@pytest.mark.parametrize("command", ["explain", "verify", "time", "timeline", "place"])
def test_the_report_is_printed_before_it_is_written(tmp_path: Path, command: str) -> None:
    """On a disk that takes nothing, which nobody can know before."""
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    words = [command, str(model), "--chip", "stcp920", "--json", "/dev/full"]
    said = {"verify": "passed", "time": "cycles at work", "timeline": "cycles, "}.get(command, "one_node on stcp920")
    if command in ("time", "timeline"):
        here("compile", model, "--chip", "stcp920", "-o", tmp_path / "out")
        words[1] = str(tmp_path / "out")
    if command == "place":
        scenario = Path(__file__).parents[2] / "samples" / "scenarios" / "two_cpus.yaml"
        words[2:4] = ["--scenario", str(scenario)]
        said = "makespan"
    done = CliRunner().invoke(cli, words)
    assert said in done.stdout
    assert done.exit_code == 1
    assert done.stderr.endswith("error: /dev/full: needs a place that can be written; has no space left on device\n")


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    """Killed between making its folder and giving it the name that the user asked for."""
    killed = (
        "import os, signal, sys; from pathlib import Path; from hw_models.scratch import scratch_folder, NEW\n"
        "with scratch_folder(Path(sys.argv[1])) as scratch:\n"
        "    (scratch.path / NEW / 'cluster0').mkdir(parents=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run((sys.executable, "-c", killed, tmp_path), check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    here("compile", model, "--chip", "stcp920", "-o", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "out"]


@pytest.mark.spread(1)
@pytest.mark.parametrize("redirected", [True, False])
@pytest.mark.commit
def test_json_to_standard_output_stands_behind_the_text(tmp_path: Path, redirected: bool) -> None:
    """By a link to the descriptor, as /dev/stdout is one."""
    model, link = save(one_node("Relu"), tmp_path / "m.onnx"), tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    command = (*COMMAND, "explain", model, "--chip", "stcp920", "--json", link)
    if redirected:
        with (tmp_path / "out").open("wb") as out:
            subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
        said = (tmp_path / "out").read_text(encoding="utf-8")
    else:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert link.is_symlink()
    assert said.startswith("one_node on stcp920")
    data, end = json.JSONDecoder().raw_decode(said, said.index("\n{\n") + 1)
    assert data["model"] == "one_node"
    assert said[end:] == "\n"


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    model, link = save(one_node("Relu"), tmp_path / "m.onnx"), tmp_path / "link"
    (tmp_path / "far").mkdir()
    link.symlink_to(Path("far"))
    for _ in range(2):
        here("compile", model, "--chip", "stcp920", "-o", link)
    assert link.is_symlink()
    assert (tmp_path / "far" / "manifest.json").is_file()


@pytest.mark.spread(2)
@pytest.mark.parametrize("arguments", [("place", "--methods"), ("chips",), ("explain", "m.onnx", "--chip", "stcp920")])
@pytest.mark.commit
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    save(one_node("Relu"), tmp_path / "m.onnx")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            (*COMMAND, *arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
    assert done.returncode == 1
    assert done.stderr.endswith("dsa-sched: error: output: no space left on device\n")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m dsa_sched --help | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("U", "")


def test_an_interrupted_run_exits_as_shells_expect(tmp_path: Path) -> None:
    """While the command waits for a model that comes through a pipe."""
    os.mkfifo(tmp_path / "pipe")
    command = (*COMMAND, "disasm", tmp_path / "pipe")
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    with (tmp_path / "pipe").open("wb"):  # opens when the command does
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=30)
    assert (run.returncode, said) == (130, "dsa-sched: interrupted\n")
