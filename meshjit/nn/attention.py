"""Scaled dot product attention."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import DTYPES
from meshjit.lax.elementwise import stop_gradient
from meshjit.nn.normalizing import softmax
from meshjit.numpy.promote import cast, dtype_of, shape_of
from meshjit.numpy.reductions import logsumexp
from meshjit.runtime.composed import composed
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
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(query @ key.T * scale + bias) @ value, as `jax.nn.dot_product_attention`.

    query [B, T, N, H] (or without B), key and value [B, S, K, H] of the same dtype, where K divides N (grouped queries). bias and
    mask are broadcast against [B, N, T, S]; the mask is True where attention is allowed. Softmax is computed in float32.
    `query_seq_lengths` and `key_value_seq_lengths`, int32 [B]: queries and keys from there on take no part; such queries give
    zeros. `return_residual`: with the result the logarithm of each softmax's denominator, [B, T, N], which has no derivative.
    `implementation` chooses nothing here: XLA compiles what this says.

    Raises ValueError for shapes and dtypes that do not fit. Source: arXiv 1706.03762; grouped queries arXiv 2305.13245; residuals
    arXiv 2307.08691, section 3.1.1.
    """
    if implementation not in (None, "xla", "cudnn"):
        raise ValueError(f"dot_product_attention: implementation {implementation!r} is none of 'xla', 'cudnn' and None")
    whole = shape_of(query)
    query, key, value, bias, mask = (_with_batch(each) for each in (query, key, value, bias, mask))
    queries, keys = (None if each is None else mnp.asarray(each) for each in (query_seq_lengths, key_value_seq_lengths))
    _check(query, key, value)
    _check_mask(mask, bias, shape_of(query)[0], queries, keys)
    logits = _logits(query, key, bias, scale)
    t, s = shape_of(logits)[2:]
    allowed = _allowed(t, s, mask, is_causal, queries, keys, local_window_size)
    if allowed is not None:
        logits = mnp.where(allowed, logits, 0.7 * float(mnp.finfo(dtype_of(logits)).min))
    logits = cast(logits, np.float32)
    result = _weighted(cast(softmax(logits), dtype_of(value)), value)
    if queries is not None:
        result = result * cast(mnp.arange(t)[:, None, None] < _each(queries), dtype_of(result))
    result = mnp.reshape(result, whole)
    if not return_residual:
        return result
    residual = mnp.transpose(cast(logsumexp(logits, axis=-1), dtype_of(key)), (0, 2, 1))
    return result, stop_gradient(mnp.reshape(residual, whole[:-1]))


def _with_batch(array: Any) -> Any:
    if array is None:
        return None
    array = mnp.asarray(array)
    return mnp.expand_dims(array, tuple(range(4 - array.ndim))) if array.ndim < 4 else array


def _logits(query: Any, key: Any, bias: Any, scale: float | None) -> Any:
    """[B, N, T, S], in float32 at least."""
    b, t, n, h = shape_of(query)
    s, groups = shape_of(key)[1:3]
    wide = {"preferred_element_type": np.float32} if dtype_of(query) in (DTYPES["f16"], DTYPES["bf16"]) else {}
    grouped = mnp.reshape(query, (b, t, groups, n // groups, h))
    logits = mnp.einsum("btkgh,bskh->bkgts", grouped, key, **wide) * (1 / math.sqrt(h) if scale is None else scale)
    logits = mnp.reshape(logits, (b, n, t, s))
    return logits if bias is None else logits + cast(bias, dtype_of(logits))


def _weighted(weights: Any, value: Any) -> Any:
    """[B, T, N, H] of weights [B, N, T, S]."""
    b, n, t, s = shape_of(weights)
    groups, h = shape_of(value)[2:]
    weights = mnp.reshape(weights, (b, groups, n // groups, t, s))
    return mnp.reshape(mnp.einsum("bkgts,bskh->btkgh", weights, value), (b, t, n, h))


def _check(query: Any, key: Any, value: Any) -> None:
    q, k, v = shape_of(query), shape_of(key), shape_of(value)
    fits = len(q) == len(k) == 4 and k == v and q[0] == k[0] and q[3] == k[3] and k[2] and q[2] % k[2] == 0
    if not fits:
        raise ValueError(
            f"dot_product_attention: query {q}, key {k} and value {v} do not fit\n  at {line_of(user_source())}\n"
            "  query is [B, T, N, H], key and value are [B, S, K, H], and N, the query heads, must be a multiple of K"
        )
    if len({dtype_of(each) for each in (query, key, value)}) > 1:
        names = ", ".join(dtype_of(each).name for each in (query, key, value))
        raise ValueError(
            f"dot_product_attention: query, key and value have different dtypes: {names}\n  at {line_of(user_source())}\n"
            "  fix: convert them to one, such as key.astype(query.dtype)"
        )


def _check_mask(mask: Any, bias: Any, batch: int, *lengths: Any) -> None:
    """ValueError for masks that are not bool, terms of more dims than four, and lengths that are not int32 [B]."""
    if mask is not None and dtype_of(mask) != np.dtype(bool):
        raise ValueError(
            f"dot_product_attention: the mask is {dtype_of(mask).name}, not bool\n  at {line_of(user_source())}\n"
            "  fix: mask != 0, or give what is to be added to the logits as bias="
        )
    for name, term in (("mask", mask), ("bias", bias)):
        if term is not None and len(shape_of(term)) != 4:
            raise ValueError(f"dot_product_attention: {name} {shape_of(term)} has not four dims\n  at {line_of(user_source())}")
    for name, each in zip(("query_seq_lengths", "key_value_seq_lengths"), lengths, strict=True):
        if each is not None and (shape_of(each), dtype_of(each)) != ((batch,), np.dtype(np.int32)):
            raise ValueError(
                f"dot_product_attention: {name} is {dtype_of(each).name}{list(shape_of(each))}, not int32[{batch}]\n"
                f"  at {line_of(user_source())}"
            )


def _each(lengths: Any) -> Any:
    return mnp.reshape(lengths, (-1, 1, 1, 1))


def _allowed(t: int, s: int, mask: Any, causal: bool, queries: Any, keys: Any, window: Any) -> Any:
    """Where query i may look at key j, or None for everywhere."""
    i, j = mnp.arange(t)[:, None], mnp.arange(s)[None, :]
    parts = [] if mask is None else [mask]
    if causal:
        parts.append(i >= j)
    if queries is not None:
        parts.append(i < _each(queries))
    if keys is not None:
        parts.append(j < _each(keys))
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        parts += [i - j <= left, j - i <= right]
    result = None
    for part in parts:
        result = part if result is None else mnp.logical_and(result, part)
    return result


composed(globals())
