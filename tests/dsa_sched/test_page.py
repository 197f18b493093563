"""`dsa-sched report`: one page about an artifact, whole in itself, and what a browser makes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dsa_sched
from dsa_sched.analysis.overview import Overview, drawing, overview
from dsa_sched.builds.explained_build import told_of_artifact
from dsa_sched.calibration.fit import ChipFit, FittedNumber, Residual
from dsa_sched.cli import cli
from dsa_sched.report.page.charts import figures
from dsa_sched.report.page.page import PageContent, drawn_figures, page
from dsa_sched.report.page.residuals import write_residuals
from hw_models.chip_numbers import NumberSource
from hw_models.loading import load_chip
from tests.pages import browser, opened
from tests.small_models import classifier, save

__all__ = ["browser"]

HOSTILE = "</script><img src=x onerror=alert(1)>"
LARGEST_BYTES = 20 << 20


def overview_of(model: Path, chip: str, level: str) -> Overview:
    artifact = dsa_sched.compile(model, chip, level=level)
    return overview(artifact, told_of_artifact(artifact, None, None).explanation, lambda _step: None)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network one of whose names is that of a stranger who wants to become part of the page."""
    network = classifier()
    network.graph.node[2].name = HOSTILE
    return save(network, tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def found(model: Path) -> Overview:
    return overview_of(model, "stcp920", "O3")


@pytest.fixture(scope="module")
def gpu(model: Path) -> Overview:
    return overview_of(model, "h200", "O3")


def test_every_layer_is_drawn_once_below_what_it_reads(found: Overview) -> None:
    places = {layer.name: (layer.rank, layer.column) for layer in found.layers}
    assert len({*places.values()}) == len(found.layers)
    plan, graph = found.artifact.plan, found.artifact.graph
    assert [*places] == [each.name for group in plan.groups for each in group.layers if not each.is_view(graph)]
    assert any(layer.reads for layer in found.layers)
    assert all(places[other][0] < layer.rank for layer in found.layers for other in layer.reads)


def test_a_drawing_has_few_crossings() -> None:
    """Two branches that are named in the wrong order at their second layer."""
    reads = {"x": (), "a": ("x",), "b": ("x",), "b2": ("b",), "a2": ("a",), "y": ("a2", "b2")}
    column = {name: place[1] for name, place in drawing(reads).items()}
    assert (column["a"] < column["b"]) == (column["a2"] < column["b2"])
    assert column["x"] == column["y"] == 0


def test_what_is_drawn_over_time_is_within_its_bounds(found: Overview) -> None:
    run, explained = found.run, found.explanation
    assert run is not None
    measured: Any = explained.measured
    seconds = measured.work_cycles / found.artifact.chip.clock_hz
    assert run.stretch_seconds * len(run.parts) == pytest.approx(seconds)
    assert {"matrix", "vector", "transfer", "dma"} == {*run.utilisation}
    assert all(0 <= share <= 1 for shares in run.utilisation.values() for share in shares)
    assert all(max(memory.most_bytes) <= memory.size_bytes for memory in run.memories)
    assert {"DDR", "LLB", "L1"} <= {memory.memory for memory in run.memories}


def test_no_group_is_above_the_roof(found: Overview) -> None:
    assert found.roof is not None
    assert found.points
    for point in found.points:
        most = min(found.roof.macs_per_second, found.roof.bytes_per_second * point.macs / max(1, point.main_bytes))
        assert point.macs / point.seconds <= most * 1.001


def test_machine_code_is_shown_with_the_layer_that_it_is_for(found: Overview) -> None:
    assert all(layer.code for layer in found.layers)
    assert any("meconv" in line for layer in found.layers if "conv" in layer.operators for line in layer.code)


def test_names_in_a_model_do_not_become_part_of_the_page(found: Overview) -> None:
    text = page(PageContent(found))
    assert HOSTILE not in text
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert HOSTILE in {layer["name"] for layer in json.loads(data)["layers"]}


def test_equal_artifacts_give_equal_pages(found: Overview, model: Path) -> None:
    assert page(PageContent(found)) == page(PageContent(overview_of(model, "stcp920", "O3")))


def test_pages_of_gpus_have_kernels(gpu: Overview) -> None:
    assert [*figures(gpu)] == ["graph", "binds"]
    text = page(PageContent(gpu))
    assert "expected, by rates that were measured; not timed" in text
    assert '"kernel":"conv2d(' in text


def test_the_command_writes_a_page_that_needs_nothing_else(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = CliRunner().invoke(cli, ["report", str(model), "--chip", "stcp920", "--level", "O0", "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert file.stat().st_size < LARGEST_BYTES
    markup = re.sub(r"<script.*?</script>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=", markup)
    again = tmp_path / "again.html"
    assert dsa_sched.write_report(dsa_sched.compile(model, "stcp920", level="O0"), again) == file.stat().st_size
    assert again.read_bytes() == file.read_bytes()


def test_a_page_is_not_written_where_there_is_no_folder(model: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["report", str(model), "--chip", "stcp920", "-o", str(tmp_path / "no" / "page.html")]
    )
    assert done.exit_code == 1
    assert "needs a folder that exists" in done.stderr


# In a browser.


@pytest.mark.spread(1)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
@pytest.mark.commit
def test_every_tab_is_drawn(found: Overview, tmp_path: Path, browser: Any, scheme: str, width: int) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(PageContent(found)), encoding="utf-8")
    shown, errors = opened(browser, file, scheme, width)
    for name in drawn_figures(PageContent(found)):
        shown.click(f"button[data-tab={name}]")
        shown.wait_for_selector(f"#{name} .main-svg", state="visible", timeout=10_000)
        drawn = shown.eval_on_selector(f"#{name} .chart", "chart => chart.data.length")
        assert drawn == len(drawn_figures(PageContent(found))[name]["data"])
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 3 * 128) == (scheme == "light")
    assert errors == []
    shown.close()


@pytest.mark.commit
def test_a_search_and_a_click_show_a_layer(found: Overview, tmp_path: Path, browser: Any) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(PageContent(found)), encoding="utf-8")
    shown, errors = opened(browser, file, "light", 1280)
    assert not shown.is_visible("#detail")
    shown.fill("#search", "conv1")
    shown.press("#search", "Enter")
    assert shown.inner_text("#detail h2 >> nth=0") == "conv1"
    shown.click("text=close")
    shown.click("button[data-tab=graph]")
    shown.wait_for_selector("#graph .points path", state="visible", timeout=10_000)
    marked = shown.evaluate("document.querySelector('#graph .chart').data[1].marker.line.width")
    assert [layer.name for layer, width in zip(found.layers, marked, strict=True) if width] == ["conv1"]
    box = shown.locator("#graph .points path >> nth=2").bounding_box()
    shown.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.wait_for_selector("#detail", state="visible")
    assert shown.inner_text("#detail h2 >> nth=0") == found.layers[2].name
    assert f"group {found.layers[2].group}" in shown.inner_text("#detail")
    shown.fill("#search", "merged")
    shown.click("button[data-tab=decisions]")
    subjects = [each.subject for each in found.explanation.decisions if "merged" in str(each)]
    assert shown.locator("#decisions tbody tr").count() == len(subjects)
    assert errors == []
    shown.close()


@pytest.mark.spread(1)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_residuals_of_a_calibration_are_drawn(tmp_path: Path, browser: Any, scheme: str, width: int) -> None:
    source = NumberSource("</script><b>guess", documented=False)
    number = FittedNumber("assumed.sync_cycles", source, 0.0, 41.0, 40.97, 0.2)
    lost = FittedNumber("assumed.queue_depth", source, 4, 4, None)
    residuals = tuple(Residual(f"b{n}", "cycles", 10, 96.0, 100.0, 103.0, 99.0 + n, 80.0) for n in range(3))
    fit = ChipFit(load_chip("stcp920"), (number, lost), residuals, 0.02, 3.0)
    assert write_residuals(fit, tmp_path / "page.html") > 1 << 20
    shown, errors = opened(browser, tmp_path / "page.html", scheme, width)
    shown.wait_for_selector("#residuals .main-svg", state="visible", timeout=10_000)
    assert shown.eval_on_selector(".chart", "chart => chart.data.map((each) => each.x.length)") == [3, 3]
    shown.click("button[data-tab=rows]")
    assert shown.locator("tbody tr").count() == 2
    assert "not determined: stays" in shown.inner_text("tbody")
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert errors == []
    shown.close()
