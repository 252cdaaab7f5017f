"""Scaled dot product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import DTYPES
from meshjit.nn.normalizing import softmax
from meshjit.numpy.promote import cast, dtype_of, shape_of
from meshjit.trace import line_of, user_source


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
) -> Any:
    """softmax(query @ key.T * scale + bias) @ value, as `jax.nn.dot_product_attention`.

    query [B, T, N, H] (or without B), key and value [B, S, K, H], where K divides N (grouped queries). bias and mask are
    broadcast against [B, N, T, S]; the mask is True where attention is allowed. Softmax is computed in float32.
    Source: arXiv 1706.03762; grouped queries arXiv 2305.13245.
    """
    del implementation
    if len(shape_of(query)) == 3:
        batched = [None if m is None else mnp.expand_dims(m, 0) for m in (query, key, value)]
        terms = [m if m is None or len(shape_of(m)) == 4 else mnp.expand_dims(m, 0) for m in (bias, mask)]
        result = dot_product_attention(
            *batched, *terms, scale=scale, is_causal=is_causal, query_seq_lengths=query_seq_lengths,
            key_value_seq_lengths=key_value_seq_lengths, local_window_size=local_window_size,
        )  # fmt: skip
        return mnp.squeeze(result, 0)
    _check(query, key, value)
    b, t, n, h = shape_of(query)
    s, groups = shape_of(key)[1:3]
    scale = 1 / math.sqrt(h) if scale is None else scale
    grouped = mnp.reshape(query, (b, t, groups, n // groups, h))
    wide = {"preferred_element_type": np.float32} if dtype_of(query) in (DTYPES["f16"], DTYPES["bf16"]) else {}
    logits = mnp.einsum("btkgh,bskh->bkgts", grouped, key, **wide) * scale
    logits = mnp.reshape(logits, (b, n, t, s))
    logits = logits if bias is None else logits + cast(bias, dtype_of(logits))
    allowed = _allowed(t, s, mask, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    if allowed is not None:
        logits = mnp.where(allowed, logits, 0.7 * float(mnp.finfo(dtype_of(logits)).min))
    weights = cast(softmax(cast(logits, np.float32)), dtype_of(value))
    weights = mnp.reshape(weights, (b, groups, n // groups, t, s))
    return mnp.reshape(mnp.einsum("bkgts,bskh->btkgh", weights, value), (b, t, n, h))


def _check(query: Any, key: Any, value: Any) -> None:
    q, k, v = shape_of(query), shape_of(key), shape_of(value)
    fits = len(k) == 4 and k == v and q[0] == k[0] and q[3] == k[3] and k[2] and q[2] % k[2] == 0
    if not fits:
        raise ValueError(
            f"dot_product_attention: query {q}, key {k} and value {v} do not fit\n  at {line_of(user_source())}\n"
            "  query is [B, T, N, H], key and value are [B, S, K, H], and N, the query heads, must be a multiple of K"
        )


def _allowed(t: int, s: int, mask: Any, causal: bool, queries: Any, keys: Any, window: Any) -> Any:
    """Where query i may look at key j, or None for everywhere."""
    i, j = mnp.arange(t)[:, None], mnp.arange(s)[None, :]
    parts = [] if mask is None else [mask]
    if causal:
        parts.append(i >= j)
    if queries is not None:
        parts.append(i < mnp.reshape(queries, (-1, 1, 1, 1)))
    if keys is not None:
        parts.append(j < mnp.reshape(keys, (-1, 1, 1, 1)))
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        parts += [i - j <= left, j - i <= right]
    result = None
    for part in parts:
        result = part if result is None else mnp.logical_and(result, part)
    return result
