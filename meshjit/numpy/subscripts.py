"""einsum: contractions that subscripts describe, in pairs of operands."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy.contraction import dot_general
from meshjit.numpy.promote import asarray, cast, dtype_of, no_out, promoted, shape_of
from meshjit.numpy.rearranging import diagonal
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import reshape, transpose
from meshjit.trace import line_of, user_source


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
