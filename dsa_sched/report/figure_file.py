"""Figures of matplotlib as files: equal figures give equal bytes, and the user's own preferences do not apply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsa_sched.io.atomic_write import write_whole
from hw_models.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")

SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "dsa-sched",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.linewidth": 0.6,
}
"""Settings of matplotlib: text stays text, and names inside an SVG are not random."""


def require_format(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Refuse, before long work, a suffix that names no format. Raises UserError."""
    if path.suffix.lower() not in formats:
        raise UserError(str(path), needs=f"a name that ends in {' or '.join(formats)}", has=path.suffix or "no suffix")


def write_figure(make: Callable[[], Figure], path: Path) -> None:
    """Draw what `make` returns into a file, by its suffix, whole or not at all. Raises UserError."""
    require_format(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    kind = path.suffix.lower()[1:]
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        figure = make()
        canvas = FigureCanvasSVG(figure) if kind == "svg" else FigureCanvasAgg(figure)
        write_whole(path, partial(canvas.print_figure, format=kind, dpi=130, metadata=metadata))
