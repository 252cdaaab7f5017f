"""NumPy indices for Hypothesis to draw, and the arrays that they are legal for."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

SHAPES = [(), (5,), (4, 3), (2, 3, 4), (1, 5, 1, 2), (0, 3), (3, 0)]


def grid(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


@st.composite
def slices(draw: Any, extent: int) -> slice:
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def indices(draw: Any, shape: tuple[int, ...], advanced: bool = True) -> tuple[Any, ...]:
    """A legal NumPy index of an array of this shape: ints, slices, None, `...`, integer arrays and one mask."""
    parts: list[Any] = []
    common = draw(st.sampled_from([(), (1,), (3,), (2, 3), (0,)]))
    dim, stop = 0, draw(st.integers(0, len(shape)))
    while dim < stop:
        kinds = ["slice", "slice", "none"] + (["int"] if shape[dim] else [])
        if advanced:
            kinds += ["array"] if shape[dim] or 0 in common else []
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            parts.append(None)
            if len(parts) > 6:
                break
            continue
        if kind == "slice":
            parts.append(draw(slices(shape[dim])))
        elif kind == "int":
            parts.append(draw(st.integers(-shape[dim], shape[dim] - 1)))
        else:
            cut = draw(st.integers(0, len(common)))
            form = tuple(1 if draw(st.booleans()) and n else n for n in common[cut:])
            if not shape[dim] and 0 not in form:  # nothing of this dim can be named
                form = common
            high = max(shape[dim], 1)
            numbers = draw(st.lists(st.integers(-high, high - 1), min_size=int(np.prod(form)), max_size=int(np.prod(form))))
            dtype = draw(st.sampled_from([np.int32, np.int8, np.int64]))
            parts.append(np.array(numbers, dtype).reshape(form))
        dim += 1
    if draw(st.booleans()):
        # An ellipsis after `dim` dims, and more parts behind it.
        parts.append(Ellipsis)
        if dim < len(shape) and draw(st.booleans()):
            parts.append(draw(slices(shape[-1])))
    return tuple(parts)
