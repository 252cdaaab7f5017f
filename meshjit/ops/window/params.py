"""The params that reduce_window and the ops of its derivative share: one entry per dim of the operand.

`window`, its extents; `strides`; `padding`, pairs (low, high); `base_dilation` and `window_dilation` (see sliding.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshjit.core.access import Places, Same, Window
from meshjit.core.op import Params, Sample, Types
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.families import require_param
from meshjit.ops.window.sliding import Slide

PER_DIM = ("window", "strides", "padding", "base_dilation", "window_dilation")


def slides_of(type: TensorType, params: Params) -> list[Slide]:
    """How windows slide along every dim of the operand."""
    base = params.get("base_dilation", (1,) * type.rank)
    columns = zip(
        type.shape, params["window"], params["strides"], params["padding"], base, params["window_dilation"], strict=True
    )
    return [Slide(n, size, stride, *pads, *dilations) for n, size, stride, pads, *dilations in columns]


def places_seen(dim: int, slide: Slide) -> Places:
    """What windows see that slide so, as an op's access has it; `dim` is the result's."""
    if slide.is_trivial:
        return Same(dim)
    return Window(dim, slide.low, slide.size, slide.stride, slide.base_dilation, slide.window_dilation)


def check_windows(name: str, type: TensorType, params: Params) -> None:
    """TypeError unless every param has an entry for each dim, and steps and extents are positive."""
    for param in PER_DIM:
        value = params.get(param, (1,) * type.rank)
        require_param(len(value) == type.rank, name, param, value, f"operand {type} needs {type.rank} entries")
        positive = param == "padding" or all(n >= 1 for n in value)
        require_param(positive, name, param, value, "entries of 1 or more are needed")


def places_in(window: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of a window, the last dim fastest."""
    return itertools.product(*map(range, window))


def batched_windows(params: Params, dim: int) -> dict[str, Any]:
    """The params with an entry for a batch dim, along which nothing slides."""
    entries = {"window": 1, "strides": 1, "padding": (0, 0), "base_dilation": 1, "window_dilation": 1}
    return {
        name: (*value[:dim], entries[name], *value[dim:]) if name in entries else value for name, value in params.items()
    }


# -- samples

_CALLS: list[tuple[Any, ...]] = [  # shape, window, strides, padding, base and window dilation
    ((2, 8, 6), (1, 2, 2), (1, 2, 2), ((0, 0), (0, 0), (0, 0)), (1, 1, 1), (1, 1, 1)),
    ((9, 7), (3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1), (1, 1)),
    ((16,), (3,), (1,), ((1, 1),), (1,), (1,)),
    ((11,), (3,), (2,), ((2, 3),), (2,), (2,)),
    ((7, 3), (2, 1), (3, 1), ((-1, 2), (1, 0)), (3, 1), (1, 1)),
    ((10, 4), (10, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ((9,), (4,), (3,), ((1, -2),), (1,), (3,)),
    ((5,), (3,), (7,), ((-1, 3),), (2,), (2,)),
    ((), (), (), (), (), ()),
    ((0, 3), (2, 1), (1, 1), ((2, 1), (0, 0)), (1, 1), (1, 1)),
    ((2, 3), (3, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ((6,), (9,), (1,), ((8, 8),), (1,), (1,)),
]


def window_samples(
    names: Sequence[str], kinds: Sequence[tuple[str, str]], types: Callable[[TensorType, Params], Types]
) -> list[Sample]:
    """Samples of the calls above that fit; `types` makes the operand types of the operand's and the params."""
    samples: list[Sample] = []
    for number, (shape, *rest) in enumerate(_CALLS):
        for kind, dtype in kinds if number < 3 else kinds[:4]:
            params = dict(zip(PER_DIM, rest, strict=True))
            if all(name in names or set(params[name]) <= {1} for name in PER_DIM):
                params = {name: params[name] for name in names if name in params} | {"kind": kind}
                samples.append(Sample(types(TensorType(shape, DTYPES[dtype]), params), params))
    return samples


