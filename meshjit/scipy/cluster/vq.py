"""`jax.scipy.cluster.vq`."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import promoted, shape_of
from meshjit.scipy.operands import refuse_lists
from meshjit.trace import line_of, user_source


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """`scipy.cluster.vq.vq`: for each row of obs [n, d] the nearest row of code_book [k, d], i32[n], and how far it is, [n].

    Vectors [n] and [k] are rows of one number. ValueError for other ranks, or where the rows differ in length."""
    del check_finite
    refuse_lists(obs, code_book)
    (obs, code_book), _ = promoted(obs, code_book, inexact=True)
    if len(shape_of(obs)) != len(shape_of(code_book)) or len(shape_of(obs)) not in (1, 2):
        raise ValueError(
            f"vq: obs {shape_of(obs)} and code_book {shape_of(code_book)} must both have 1 dim or 2"
            f"\n  at {line_of(user_source())}"
        )
    if len(shape_of(obs)) == 1:
        obs, code_book = obs[:, None], code_book[:, None]
    if shape_of(obs)[1] != shape_of(code_book)[1]:
        raise ValueError(
            f"vq: rows of obs have {shape_of(obs)[1]} elements, those of code_book {shape_of(code_book)[1]}\n"
            f"  at {line_of(user_source())}"
        )
    distances = mnp.linalg.norm(obs[:, None] - code_book, axis=-1)
    return mnp.argmin(distances, -1), mnp.min(distances, -1)


_explain(__name__)
