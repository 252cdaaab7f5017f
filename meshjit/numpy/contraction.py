"""dot, matmul, einsum and their kin: every one of them is a few transposes around `dot_general`."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.stored import wide_of
from meshjit.core.types import STORED
from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import axis_number
from meshjit.numpy.dot_algorithms import DotAlgorithmPreset, algorithm_of, text_of
from meshjit.numpy.factor_dtypes import in_one_dtype
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    exactly,
    no_out,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.rearranging import diagonal
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import moveaxis, reshape, squeeze, transpose
from meshjit.trace import bind, line_of, user_source

Dims = tuple[tuple[int, ...], tuple[int, ...]]


@takes_out_sharding
def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: tuple[Dims, Dims],
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`jax.lax.dot_general`: dimension_numbers = ((x contracted, y contracted), (x batch, y batch)).

    Operands of two dtypes are multiplied in the greater of them, so int4 weights go with bfloat16 activations: complex before
    floating before integer, then the one of the larger range, of more bits, the signed one. With `preferred_element_type` no
    operand is rounded: float8_e4m3fn and float8_e5m2, of which neither holds the other's numbers, are multiplied in float16."""
    preferred = preferred_dtype(preferred_element_type)
    (lhs, rhs), weak = in_one_dtype(lhs, rhs, preferred)
    algorithm = algorithm_of(config.default_matmul_precision if precision is None else precision)
    if algorithm is not None:
        return _by_algorithm(algorithm, lhs, rhs, dimension_numbers, preferred or dtype_of(lhs))
    if preferred is not None and preferred in STORED:
        return cast(dot_general(lhs, rhs, dimension_numbers, precision, wide_of(preferred)), preferred)
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in dimension_numbers)
    return bind(
        ops("dot_general"), lhs, rhs,
        contract=contract, batch=batch, preferred=preferred, precision=_precision(precision), weak_type=weak,
    )  # fmt: skip


def _by_algorithm(algorithm: Any, lhs: Any, rhs: Any, numbers: tuple[Dims, Dims], result: np.dtype[Any]) -> Any:
    """The product with factors of a dtype that the algorithm takes, added up in its own dtype, as `result`."""
    own = algorithm.storage_types if isinstance(algorithm, DotAlgorithmPreset) else ()
    if own and dtype_of(lhs) not in own:
        lhs, rhs = exactly(lhs, own[0]), exactly(rhs, own[0])
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in numbers)
    added = preferred_dtype(algorithm.accumulation_type)
    preferred = None if added == dtype_of(lhs) else added or result
    product = bind(
        ops("dot_general"), lhs, rhs, contract=contract, batch=batch, preferred=preferred, precision=text_of(algorithm)
    )
    return cast(product, result)


def _of_one_dtype(a: Any, b: Any, numbers: tuple[Dims, Dims], precision: Any, preferred: Any) -> Any:
    """dot_general of operands that are promoted as in arithmetic, unless the dtype of the result is given."""
    if preferred is None:
        (a, b), _ = promoted(a, b)
    return dot_general(a, b, numbers, precision, preferred)


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
    if precision is None or algorithm_of(precision) is not None:  # a convolution has no algorithms
        return None
    word = str(getattr(precision, "name", precision)).lower()
    if word not in _PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(_PRECISIONS)}\n  at {line_of(user_source())}")
    return _PRECISIONS[word]


def preferred_dtype(dtype: Any) -> np.dtype[Any] | None:
    """What `preferred_element_type` asks to add up in, and to return."""
    return None if dtype is None else canonical(np.dtype(dtype), config.enable_x64)


@takes_out_sharding
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.dot`: last dim of a with the last but one of b."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        if preferred_element_type is None:
            return ufuncs.multiply(a, b)
        return dot_general(a, b, (((), ()), ((), ())), precision, preferred_element_type)
    numbers = (((m - 1,), (max(n - 2, 0),)), ((), ()))
    _check_contracted("dot", a, b, m - 1, max(n - 2, 0))
    return _of_one_dtype(a, b, numbers, precision, preferred_element_type)


def _check_contracted(name: str, x: Any, y: Any, i: int, j: int, error: type[Exception] = TypeError) -> None:
    if shape_of(x)[i] != shape_of(y)[j]:
        raise error(
            f"{name}: dim {i} of {shape_of(x)} and dim {j} of {shape_of(y)} are contracted,"
            f" but have extents {shape_of(x)[i]} and {shape_of(y)[j]}\n  at {line_of(user_source())}"
        )


@takes_out_sharding
def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.matmul`: batch dims are broadcast; vectors are rows on the left and columns on the right."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        raise ValueError(
            f"matmul: operands need at least one dim, got {shape_of(a)} and {shape_of(b)}\n  at {line_of(user_source())}"
        )
    if m == 1 or n <= 2:
        if n <= 2:
            return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)
        row = matmul(reshape(a, (1, -1)), b, precision=precision, preferred_element_type=preferred_element_type)
        return squeeze(row, -2)
    _check_contracted("matmul", a, b, m - 1, n - 2)
    lead = broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    a = broadcast_to(a, (*lead, *shape_of(a)[-2:]))
    b = broadcast_to(b, (*lead, *shape_of(b)[-2:]))
    k = len(lead)
    batch = tuple(range(k))
    return _of_one_dtype(a, b, (((k + 1,), (k,)), (batch, batch)), precision, preferred_element_type)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.vdot`: both as vectors, the first conjugated."""
    a, b = ufuncs.conjugate(reshape(a, -1)), reshape(b, -1)
    _check_contracted("vdot", a, b, 0, 0)
    return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.vecdot`: products along one dim, the first operand conjugated; the others are broadcast."""
    axis = axis_number(axis)
    x1, x2 = (moveaxis(x, axis, -1) for x in (ufuncs.conjugate(x1), x2))
    lead = broadcast_shapes(shape_of(x1)[:-1], shape_of(x2)[:-1])
    _check_contracted("vecdot", x1, x2, len(shape_of(x1)) - 1, len(shape_of(x2)) - 1, ValueError)
    x1, x2 = (broadcast_to(x, (*lead, shape_of(x)[-1])) for x in (x1, x2))
    batch = tuple(range(len(lead)))
    return _of_one_dtype(x1, x2, (((len(lead),), (len(lead),)), (batch, batch)), precision, preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.inner`: the last dims are contracted."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        if preferred_element_type is None:
            return ufuncs.multiply(a, b)
        return dot_general(a, b, (((), ()), ((), ())), precision, preferred_element_type)
    _check_contracted("inner", a, b, m - 1, n - 1)
    return _of_one_dtype(a, b, (((m - 1,), (n - 1,)), ((), ())), precision, preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Any:
    """`numpy.outer`: every element of a times every element of b."""
    no_out("outer", out)
    return ufuncs.multiply(reshape(a, (-1, 1)), reshape(b, (1, -1)))


@takes_out_sharding
def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.tensordot`."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if isinstance(axes, int):
        if not 0 <= axes <= min(m, n):
            raise TypeError(
                f"tensordot: {axes} dims are contracted of arrays of {m} and {n} dims\n  at {line_of(user_source())}"
            )
        left, right = tuple(range(m - axes, m)), tuple(range(axes))
    else:
        if isinstance(axes, str) or not hasattr(axes, "__len__") or len(axes) != 2:
            raise TypeError(
                f"tensordot: axes are a number, or two lists of dims, got {type(axes).__name__} {axes!r:.60}\n"
                f"  at {line_of(user_source())}\n  fix: axes=((dims of a), (dims of b))"
            )
        left, right = ((s,) if isinstance(s, int) else tuple(s) for s in axes)
    left, right = tuple(normal_axis(d, m) for d in left), tuple(normal_axis(d, n) for d in right)
    for i, j in zip(left, right, strict=True):
        _check_contracted("tensordot", a, b, i, j)
    return _of_one_dtype(a, b, ((left, right), ((), ())), precision, preferred_element_type)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """`numpy.trace`."""
    no_out("trace", out)
    return total(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def kron(a: Any, b: Any) -> Any:
    """`numpy.kron`: every element of a times all of b."""
    a, b = asarray(a), asarray(b)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    a, b = (reshape(v, (1,) * (rank - len(shape_of(v))) + shape_of(v)) for v in (a, b))
    rows, columns = sum(((n, 1) for n in shape_of(a)), ()), sum(((1, n) for n in shape_of(b)), ())
    return reshape(
        ufuncs.multiply(reshape(a, rows), reshape(b, columns)),
        tuple(m * n for m, n in zip(shape_of(a), shape_of(b), strict=True)),
    )


# -- einsum


@takes_out_sharding
def einsum(
    subscripts: Any, *operands: Any, out: None = None, optimize: Any = None, precision: Any = None,
    preferred_element_type: Any = None,
    _dot_general: Callable[..., Any] = dot_general,
) -> Any:  # fmt: skip
    """`numpy.einsum` with a subscripts string or lists of numbers, or of words.

    A character names a dim: a letter, or as in JAX any other than `,`, `-`, `>` and the dots of `...`. The output is implicit or
    explicit. Operands are contracted in pairs, those that give the smallest intermediate first; `optimize` is accepted.
    _dot_general: contracts each pair, called as `lax.dot_general` is, with the result's dtype.  Source: jax.numpy.einsum.
    """
    no_out("einsum", out)
    del optimize
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists([subscripts, *operands])
    terms, output = _parse(subscripts, [len(shape_of(x)) for x in operands])
    _check_extents(subscripts, terms, operands)
    preferred = preferred_element_type
    values = promoted(*operands)[0] if preferred is None else [asarray(x) for x in operands]
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
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) as "ab,bc->ac" and (x, y). Dims are named by numbers, words or whatever else can be
    ordered; an output that is not named has them in their order."""
    pairs = [(arguments[i], arguments[i + 1]) for i in range(0, len(arguments) - 1, 2)]
    named = {name for _, names in pairs for name in names if name is not Ellipsis}
    try:
        letters = dict(zip(sorted(named), _letters(), strict=False))
    except TypeError:
        raise TypeError(
            f"einsum: dims are named by numbers or by words, not by both: {', '.join(sorted(map(repr, named)))}\n"
            f"  at {line_of(user_source())}\n  fix: einsum(x, [0, 1], y, [1, 2]) or einsum(x, ['i', 'j'], y, ['j', 'k'])"
        ) from None

    def word(names: Sequence[Any]) -> str:
        strange = next((n for n in names if n is not Ellipsis and n not in letters), None)
        if strange is not None:
            raise ValueError(f"einsum: no operand has a dim {strange!r}\n  at {line_of(user_source())}")
        return "".join("..." if n is Ellipsis else letters[n] for n in names)

    text = ",".join(word(names) for _, names in pairs)
    return text + (f"->{word(arguments[-1])}" if len(arguments) % 2 else ""), tuple(x for x, _ in pairs)


def _letters() -> Iterator[str]:
    """As many characters as anybody needs, in their order."""
    yield from sorted(string.ascii_letters)
    yield from map(chr, range(192, 0x3000))


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

    rest_of_a, rest_of_b = ("".join(c for c in term if c not in both) for term in (a, b))
    if rest_of_a and rest_of_b and others == "".join(batch) + rest_of_b + rest_of_a:  # then nothing is left to transpose
        (x, a, rest_of_a), (y, b, rest_of_b) = (y, b, rest_of_b), (x, a, rest_of_a)

    def places(term: str, letters: Sequence[str]) -> tuple[int, ...]:
        return tuple(term.index(c) for c in letters)

    numbers = ((places(a, inner_), places(b, inner_)), (places(a, batch), places(b, batch)))
    return product(x, y, numbers), "".join(batch) + rest_of_a + rest_of_b


def _squeezed(x: Any, a: str, y: Any, b: str) -> tuple[Any, str]:
    """An extent of 1 against a longer one is broadcast: the letter is dropped here."""
    gone = [i for i, c in enumerate(a) if c in b and shape_of(x)[i] == 1 and shape_of(y)[b.index(c)] != 1]
    shape = tuple(n for i, n in enumerate(shape_of(x)) if i not in gone)
    return (reshape(x, shape), "".join(c for i, c in enumerate(a) if i not in gone)) if gone else (x, a)
