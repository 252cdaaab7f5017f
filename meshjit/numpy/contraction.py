"""dot, matmul, einsum and their kin: every one of them is a few transposes around `dot_general`."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy import ufuncs
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    no_out,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.rearranging import diagonal
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import reshape, squeeze, transpose
from meshjit.trace import bind, line_of, user_source

Dims = tuple[tuple[int, ...], tuple[int, ...]]


@takes_out_sharding
def dot_general(
    x: Any,
    y: Any,
    dimension_numbers: tuple[Dims, Dims],
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`jax.lax.dot_general`: dimension_numbers = ((x contracted, y contracted), (x batch, y batch))."""
    (x, y), weak = promoted(x, y)
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in dimension_numbers)
    preferred = preferred_dtype(preferred_element_type)
    return bind(
        ops("dot_general"), x, y,
        contract=contract, batch=batch, preferred=preferred, precision=_precision(precision), weak_type=weak,
    )  # fmt: skip


_PRECISIONS = {
    "default": "default", "fastest": "default", "bfloat16": "default", "high": "high", "bfloat16_3x": "high",
    "tensorfloat32": "high", "highest": "highest", "float32": "highest",
}  # fmt: skip


def _precision(precision: Any) -> str | None:
    """JAX's words and lax.Precision as StableHLO's three words; of a pair, one per operand, the more exact one."""
    if isinstance(precision, tuple | list) and len(precision) == 2:
        words = [_precision(p) or "default" for p in precision]
        return max(words, key=["default", "high", "highest"].index)
    precision = config.default_matmul_precision if precision is None else precision
    if precision is None:
        return None
    word = str(getattr(precision, "name", precision)).lower()
    if word not in _PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(_PRECISIONS)}\n  at {line_of(user_source())}")
    return _PRECISIONS[word]


def preferred_dtype(dtype: Any) -> np.dtype[Any] | None:
    """What `preferred_element_type` asks to add up in, and to return."""
    return None if dtype is None else canonical(np.dtype(dtype), config.enable_x64)


@takes_out_sharding
def dot(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.dot`: last dim of x with the last but one of y."""
    a, b = len(shape_of(x)), len(shape_of(y))
    if a == 0 or b == 0:
        return ufuncs.multiply(x, y)
    numbers = (((a - 1,), (max(b - 2, 0),)), ((), ()))
    _check_contracted("dot", x, y, a - 1, max(b - 2, 0))
    return dot_general(x, y, numbers, precision, preferred_element_type)


def _check_contracted(name: str, x: Any, y: Any, i: int, j: int) -> None:
    if shape_of(x)[i] != shape_of(y)[j]:
        raise TypeError(
            f"{name}: dim {i} of {shape_of(x)} and dim {j} of {shape_of(y)} are contracted,"
            f" but have extents {shape_of(x)[i]} and {shape_of(y)[j]}\n  at {line_of(user_source())}"
        )


@takes_out_sharding
def matmul(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.matmul`: batch dims are broadcast; vectors are rows on the left and columns on the right."""
    a, b = len(shape_of(x)), len(shape_of(y))
    if a == 0 or b == 0:
        raise ValueError(
            f"matmul: operands need at least one dim, got {shape_of(x)} and {shape_of(y)}\n  at {line_of(user_source())}"
        )
    if a == 1 or b <= 2:
        if b <= 2:
            return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)
        row = matmul(reshape(x, (1, -1)), y, precision=precision, preferred_element_type=preferred_element_type)
        return squeeze(row, -2)
    _check_contracted("matmul", x, y, a - 1, b - 2)
    lead = broadcast_shapes(shape_of(x)[:-2], shape_of(y)[:-2])
    x = broadcast_to(x, (*lead, *shape_of(x)[-2:]))
    y = broadcast_to(y, (*lead, *shape_of(y)[-2:]))
    n = len(lead)
    batch = tuple(range(n))
    return dot_general(x, y, (((n + 1,), (n,)), (batch, batch)), precision, preferred_element_type)


def vdot(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.vdot`: both as vectors, the first conjugated."""
    x, y = ufuncs.conjugate(reshape(x, -1)), reshape(y, -1)
    _check_contracted("vdot", x, y, 0, 0)
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """`numpy.vecdot`: products along one dim, the first operand conjugated; the others are broadcast."""
    product = ufuncs.multiply(ufuncs.conjugate(x), y)
    return total(product, axis=axis, dtype=dtype_of(product))


def inner(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.inner`: the last dims are contracted."""
    a, b = len(shape_of(x)), len(shape_of(y))
    if a == 0 or b == 0:
        return ufuncs.multiply(x, y)
    _check_contracted("inner", x, y, a - 1, b - 1)
    return dot_general(x, y, (((a - 1,), (b - 1,)), ((), ())), precision, preferred_element_type)


def outer(x: Any, y: Any) -> Any:
    return ufuncs.multiply(reshape(x, (-1, 1)), reshape(y, (1, -1)))


@takes_out_sharding
def tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """`numpy.tensordot`."""
    a, b = len(shape_of(x)), len(shape_of(y))
    if isinstance(axes, int):
        if not 0 <= axes <= min(a, b):
            raise ValueError(
                f"tensordot: {axes} dims are contracted of arrays of {a} and {b} dims\n  at {line_of(user_source())}"
            )
        left, right = tuple(range(a - axes, a)), tuple(range(axes))
    else:
        left, right = ((s,) if isinstance(s, int) else tuple(s) for s in axes)
    left, right = tuple(normal_axis(d, a) for d in left), tuple(normal_axis(d, b) for d in right)
    for i, j in zip(left, right, strict=True):
        _check_contracted("tensordot", x, y, i, j)
    return dot_general(x, y, ((left, right), ((), ())))


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """`numpy.trace`."""
    no_out("trace", out)
    return total(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)


def kron(x: Any, y: Any) -> Any:
    a, b = asarray(x), asarray(y)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    a, b = (reshape(v, (1,) * (rank - len(shape_of(v))) + shape_of(v)) for v in (a, b))
    wide = ufuncs.multiply(reshape(a, sum(((n, 1) for n in shape_of(a)), ())), reshape(b, sum(((1, n) for n in shape_of(b)), ())))
    return reshape(wide, tuple(m * n for m, n in zip(shape_of(a), shape_of(b), strict=True)))


# -- einsum


@takes_out_sharding
def einsum(
    subscripts: Any, *operands: Any, optimize: Any = None, precision: Any = None, preferred_element_type: Any = None,
    _dot_general: Callable[..., Any] = dot_general,
) -> Any:  # fmt: skip
    """`numpy.einsum` with a subscripts string or lists of numbers.

    A character names a dim: a letter, or as in JAX any other than `,`, `-`, `>` and the dots of `...`. The output is implicit or
    explicit. Operands are contracted in pairs, those that give the smallest intermediate first; `optimize` is accepted.
    _dot_general: contracts each pair, called as `lax.dot_general` is, with the result's dtype.  Source: jax.numpy.einsum.
    """
    del optimize
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists([subscripts, *operands])
    terms, output = _parse(subscripts, [len(shape_of(x)) for x in operands])
    _check_extents(subscripts, terms, operands)
    values, _ = promoted(*operands)
    preferred = preferred_element_type
    if preferred is None and _dot_general is not dot_general:
        preferred = dtype_of(values[0])
    items = [_diagonals(x, term) for x, term in zip(values, terms, strict=True)]
    while len(items) > 1:
        i, j = _cheapest(items, output)
        (x, a), (y, b) = items[i], items[j]
        others = "".join(t for k, (_, t) in enumerate(items) if k not in (i, j)) + output
        pair = _contract(x, a, y, b, others, partial(_dot_general, precision=precision, preferred_element_type=preferred))
        items = [item for k, item in enumerate(items) if k not in (i, j)] + [pair]
    x, term = _summed(*items[0], output)
    result = transpose(x, [term.index(c) for c in output])
    return result if preferred is None else cast(result, preferred)


def _from_lists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) as "ab,bc->ac" and (x, y)."""
    letters = string.ascii_letters

    def word(numbers: Sequence[Any]) -> str:
        return "".join("..." if n is Ellipsis else letters[n] for n in numbers)

    pairs = [(arguments[i], arguments[i + 1]) for i in range(0, len(arguments) - 1, 2)]
    text = ",".join(word(numbers) for _, numbers in pairs)
    return text + (f"->{word(arguments[-1])}" if len(arguments) % 2 else ""), tuple(x for x, _ in pairs)


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters, and other characters, per operand and of the output; `...` becomes capital letters that are not used otherwise."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise _wrong(subscripts, f"names {len(terms)} operands, was given {len(ranks)}", "")
    named = [t.replace("...", "", 1) for t in (*terms, right)]
    strange = next((c for c in "".join(named) if c in "->."), None)
    if strange is not None:
        raise _wrong(subscripts, f"{strange!r} names no dim")
    for t, n, rank in zip(terms, named, ranks, strict=False):
        if len(n) > rank or (len(n) < rank and "..." not in t):
            raise _wrong(subscripts, f"{t!r} names {len(n)} dims of an operand that has {rank}")
    spare = [c for c in string.ascii_uppercase + string.ascii_lowercase if c not in text]
    hidden = [rank - len(n) if "..." in t else 0 for t, n, rank in zip(terms, named, ranks, strict=False)]
    dots = "".join(reversed(spare[: max(hidden, default=0)]))
    full = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, hidden, strict=True)]
    letters = "".join(full)
    if arrow:
        _check_output(subscripts, named[-1], letters)
        return full, right.replace("...", dots)
    once = sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1)
    return full, dots + "".join(once)


def _wrong(subscripts: str, what: str, colon: str = ":") -> ValueError:
    return ValueError(f"einsum {subscripts!r}{colon} {what}\n  at {line_of(user_source())}")


def _check_output(subscripts: str, named: str, letters: str) -> None:
    for c in named:
        if c not in letters:
            raise _wrong(subscripts, f"{c} of the output is in no operand")
        if named.count(c) > 1:
            raise _wrong(subscripts, f"{c} stands twice in the output")


def _check_extents(subscripts: str, terms: Sequence[str], operands: Sequence[Any]) -> None:
    extents: dict[str, int] = {}
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        for c, n in zip(term, shape_of(x), strict=True):
            if extents.setdefault(c, n) != n and 1 not in (n, extents[c]):
                raise ValueError(
                    f"einsum {subscripts!r}: {c} is {extents[c]} in one operand and {n} in operand {i}"
                    f" of shape {shape_of(x)}\n  at {line_of(user_source())}"
                )
            extents[c] = max(extents[c], n)


def _diagonals(x: Any, term: str) -> tuple[Any, str]:
    """A letter that stands twice in one operand means its diagonal."""
    for c in sorted(set(term)):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = diagonal(x, axis1=i, axis2=j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return x, term


def _summed(x: Any, term: str, keep: str) -> tuple[Any, str]:
    """Sum over the letters that nobody needs any more."""
    gone = tuple(i for i, c in enumerate(term) if c not in keep)
    return (total(x, axis=gone, dtype=asarray(x).dtype), "".join(c for c in term if c in keep)) if gone else (x, term)


def _cheapest(items: Sequence[tuple[Any, str]], output: str) -> tuple[int, int]:
    """The pair with the smallest result; the first of equals."""
    if len(items) == 2:
        return 0, 1
    extents = {c: n for x, t in items for c, n in zip(t, shape_of(x), strict=True)}

    def size(i: int, j: int) -> int:
        others = "".join(t for k, (_, t) in enumerate(items) if k not in (i, j)) + output
        letters = set(items[i][1]) | set(items[j][1])
        result = 1
        for c in letters & set(others):
            result *= extents[c]
        return result

    pairs = [(i, j) for j in range(len(items)) for i in range(j)]
    return min(pairs, key=lambda pair: size(*pair))


def _contract(x: Any, a: str, y: Any, b: str, others: str, product: Callable[..., Any]) -> tuple[Any, str]:
    """Two operands into one: letters that others need and both have are batch dims, those nobody needs are contracted."""
    x, a = _squeezed(*_summed(x, a, b + others), y, b)
    y, b = _squeezed(*_summed(y, b, a + others), x, a)
    both = [c for c in a if c in b]
    batch = [c for c in both if c in others]
    inner_ = [c for c in both if c not in others]

    def places(term: str, letters: Sequence[str]) -> tuple[int, ...]:
        return tuple(term.index(c) for c in letters)

    numbers = ((places(a, inner_), places(b, inner_)), (places(a, batch), places(b, batch)))
    result = product(x, y, numbers)
    term = "".join(batch) + "".join(c for c in a if c not in both) + "".join(c for c in b if c not in both)
    return result, term


def _squeezed(x: Any, a: str, y: Any, b: str) -> tuple[Any, str]:
    """An extent of 1 against a longer one is broadcast: the letter is dropped here."""
    gone = [i for i, c in enumerate(a) if c in b and shape_of(x)[i] == 1 and shape_of(y)[b.index(c)] != 1]
    shape = tuple(n for i, n in enumerate(shape_of(x)) if i not in gone)
    return (reshape(x, shape), "".join(c for i, c in enumerate(a) if i not in gone)) if gone else (x, a)
