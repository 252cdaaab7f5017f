"""docs/inspect.md shows what its commands print."""

from __future__ import annotations

from tests.tools.guide import PAGE, rendered


def test_the_guide_shows_what_its_commands_print() -> None:
    text = PAGE.read_text()
    assert rendered(text) == text, "write it anew: python -m tests.tools.guide"
