"""Every wrong call of docs/errors.md says what stands there, word for word."""

from __future__ import annotations

import pytest

from tests.tools import wrong_calls

pytestmark = pytest.mark.device


@pytest.mark.parametrize("parameter", wrong_calls.CALLS)
def test_wrong_calls_say_what_the_page_says(parameter: str) -> None:
    text = wrong_calls.PAGE.read_text()
    for line in wrong_calls.CALLS[parameter]:
        assert wrong_calls.entry(line) in text, "run: python -m tests.tools.wrong_calls, then read the difference"


def test_the_page_holds_nothing_else() -> None:
    text = wrong_calls.PAGE.read_text()
    assert text.count("```python\n") == 1 + sum(map(len, wrong_calls.CALLS.values()))
    assert wrong_calls.SETUP in text
