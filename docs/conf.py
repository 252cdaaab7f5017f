"""Sphinx's configuration: `python -m sphinx -W -b html docs OUT`, after `pip install -e ".[docs]"`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from api_pages import write_pages

from meshjit.version import __version__

project, author, release = "meshjit", "the authors of meshjit", __version__
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # pages of tables begin at any level; texts of programs
html_theme = "sphinx_book_theme"
html_title = f"meshjit {__version__}"
html_theme_options: dict[str, Any] = {"show_toc_level": 2, "navigation_with_keys": False}


def setup(app: Any) -> None:
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "api"))
