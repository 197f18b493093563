"""Settings of Sphinx. `make docs` builds the site: the Markdown pages of the repository, and generated reference pages.

The source folder is the root of the repository, so that links between README, docs/ and benchmarks/results/ are links
between pages. Before Sphinx reads anything, `docs/reference/generate.py` writes the pages of docs/reference/generated/.
"""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "docs" / "reference" / "generate.py"))["write_pages"]()

project = "dsa-sched"
author = "the authors of dsa-sched"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/results/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "tests", "*.egg-info", "docs/reference/*.py", "docs/pictures/*.py"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"  # of blocks that name none

html_theme = "furo"
html_title = "dsa-sched"
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["site"]  # index.html at the root, which leads to docs/index.html
