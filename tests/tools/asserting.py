"""Small assertions that several test files make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def message(kind: type[BaseException], use: Callable[[], Any]) -> str:
    """The text of the error of this kind that `use` must raise."""
    with pytest.raises(kind) as error:
        use()
    return str(error.value)


def assert_same(array: Any, expected: Any) -> None:
    """Equal in shape, dtype and every element."""
    array, expected = np.asarray(array), np.asarray(expected)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(array, expected)
