"""Arrays of keys in functions that move elements and do not compute with them.

Such a function is applied to the words, whose dim is that of a batch: it sees arrays of the shape that the keys have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.keys import KeyType, NotNumbersError, PRNGKeyArray
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.promote import broadcast_shapes
from meshjit.trace import (
    Argument,
    Traced,
    Tracer,
    argument_of,
    array_paths,
    bind_program,
    concrete_info,
    line_of,
    trace_to_program,
    user_source,
)
from meshjit.trace.once import traced_once
from meshjit.transform.batch import batch
from meshjit.transform.inline_calls import inline_calls
from meshjit.trees import USERS, WORDS

Function = Callable[..., Any]


def is_keys(x: Any) -> bool:
    return isinstance(x, PRNGKeyArray)


def takes_keys(function: Function, positions: Sequence[int] = (0,)) -> Function:
    """The function, which also takes keys for the parameters at these positions: all of them must be keys then."""
    names = list(inspect.signature(function).parameters)
    held = [names[i] for i in positions]

    @functools.wraps(function)
    def of_any(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NotNumbersError:
            if not any(map(is_keys, USERS.leaves(_at(function, held, args, kwargs)))):
                raise
        dtype = _common_type(function.__name__, USERS.leaves(_at(function, held, args, kwargs)))
        return _on_words(function, dtype, args, kwargs)

    return of_any


def _at(function: Function, names: Iterable[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments of these names."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    return [given[name] for name in names if name in given]


def _common_type(name: str, values: Iterable[Any]) -> KeyType:
    """The dtype of values that must all be keys of one; ValueError, as in JAX."""
    kinds = {x.dtype if is_keys(x) else None for x in values}
    if len(kinds) > 1:
        shown = " and ".join(sorted("numbers" if kind is None else str(kind) for kind in kinds))
        raise ValueError(
            f"{name}: {shown} promote to no common dtype\n  at {line_of(user_source())}\n"
            "  fix: random.key_data(keys) are the words of keys, random.wrap_key_data(words) keys of words"
        )
    return kinds.pop()  # pyright: ignore[reportReturnType]


def _on_words(function: Function, dtype: KeyType, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    leaves, structure = USERS.flatten((args, kwargs))
    inputs = [x.words if is_keys(x) else x for x in leaves if _is_input(x)]
    arguments = [argument_of(x) for x in inputs]
    settings = [None if is_keys(x) or _is_input(x) else (type(x), x) for x in leaves]
    key = ("keys", function.__name__, structure, dtype, tuple(settings), tuple(map(is_keys, leaves)), tuple(arguments))
    traced = traced_once(function, key, lambda: _traced(function, dtype, leaves, structure, arguments), share=True)
    outputs = bind_program(traced.program, [*inputs, *traced.captured], None, traced.mesh)
    return WORDS.map(lambda x: PRNGKeyArray(dtype, x), WORDS.unflatten(traced.out_tree, outputs))


def _is_input(x: Any) -> bool:
    """Whether a leaf is a value of the Program; of the others Python may ask what they are."""
    return is_keys(x) or isinstance(x, Tracer) or concrete_info(x) is not None


def _traced(function: Function, dtype: KeyType, leaves: Sequence[Any], structure: Any, arguments: Sequence[Argument]) -> Traced:
    """The function of one word of every key, for a batch of all words."""
    values = [x for x in leaves if _is_input(x)]
    dims = [a.type.rank - 1 if is_keys(x) else None for x, a in zip(values, arguments, strict=True)]

    def of_one_word(*inputs: Any) -> Any:
        rest = iter(inputs)
        given, named = USERS.unflatten(structure, [next(rest) if _is_input(x) else None if x is dtype else x for x in leaves])
        return function(*given, **named)

    members = [a if d is None else a.without_dim(d) for a, d in zip(arguments, dims, strict=True)]
    flat = WORDS.structure(((0,) * len(values), {}))
    known = [None if is_keys(x) else x for x in values]
    traced = trace_to_program(of_one_word, members, flat, function.__name__, array_paths(), known)
    places = [*dims, *[None] * len(traced.captured)]
    results = [t.rank for t in traced.program.output_types]
    return replace(traced, program=batch(inline_calls(traced.program), places, dtype.words, results))


def makes_keys(function: Function, position: int) -> Function:
    """A function of a shape, or of an array like which the result is, which also makes keys where the dtype at this position of
    its parameters is that of keys."""
    name = list(inspect.signature(function).parameters)[position]

    @functools.wraps(function)
    def of_any(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            given = inspect.signature(function).bind(*args, **kwargs)
            dtype = given.arguments.get(name)
            if not isinstance(dtype, KeyType):
                raise
        given.arguments[name] = np.uint32
        first = next(iter(given.arguments))
        given.arguments[first] = (*shape_tuple(given.arguments[first]), dtype.words)
        return PRNGKeyArray(dtype, function(*given.args, **given.kwargs))

    return of_any


def compares_keys(function: Function) -> Function:
    """A comparison, which also compares keys: where all words are equal, or one is not."""
    everywhere = "any" if function.__name__ in ("ne", "not_equal") else "all"

    @functools.wraps(function)
    def of_any(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(x, y, *args, **kwargs)
        except NotNumbersError:
            _refuse_numbers(function.__name__, x, y)
        broadcast_shapes(x.shape, y.shape)  # whose error names the shapes of keys
        words = function(x.words, y.words, *args, **kwargs)
        return words if not words.ndim else getattr(words, everywhere)(-1)

    return of_any


def _refuse_numbers(name: str, x: Any, y: Any) -> None:
    """TypeError, as in JAX, where only one is keys, or they are of two dtypes."""
    try:
        _common_type(name, [x, y])
    except ValueError as error:
        raise TypeError(str(error)) from None


def asks_keys(function: Function, compare: Function) -> Function:
    """A function that asks whether elements are numbers, which also asks keys: all are what they are."""

    @functools.wraps(function)
    def of_any(x: Any, *args: Any, **kwargs: Any) -> Any:
        return compare(x, x) if is_keys(x) else function(x, *args, **kwargs)

    return of_any


# Functions that move elements, or leave integers as they are, by the parameters that are keys where one of them is.
_NUMPY = {
    (0,): """array asarray copy array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_to column_stack
        concatenate concat conj conjugate delete diag diagflat diagonal dsplit dstack empty_like expand_dims flip fliplr flipud
        hsplit hstack ix_ matrix_transpose meshgrid moveaxis nan_to_num ones_like permute_dims positive ravel real repeat reshape
        resize roll rollaxis rot90 split squeeze stack swapaxes take take_along_axis tile transpose tril triu unstack vsplit
        vstack zeros_like""",
    (1,): "choose compress extract full",
    (0, 1): "append fill_diagonal full_like",
    (0, 2): "insert piecewise place put put_along_axis",
    (1, 2): "select where",
}
_LAX = {
    (0,): """broadcast broadcast_in_dim broadcast_to_rank collapse concatenate dynamic_index_in_dim dynamic_slice
        dynamic_slice_in_dim expand_dims gather index_in_dim index_take reshape rev slice slice_in_dim split squeeze tile
        transpose""",
    (1,): "full select_n",
    (0, 1): "dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim full_like pad",
    (0, 2): "scatter",
    (1, 2): "select",
}
_MAKERS = {"empty": 1, "zeros": 1, "ones": 1}
_QUESTIONS = {"isnan": "not_equal", "isfinite": "equal"}
_COMPARISONS = ("equal", "not_equal", "array_equal", "array_equiv", "allclose", "isclose", "eq", "ne")


def install(module: dict[str, Any]) -> None:
    """Let the functions of `meshjit.numpy` or `meshjit.lax` take arrays of keys."""
    table = _NUMPY if module["__name__"] == "meshjit.numpy" else _LAX
    for positions, names in table.items():
        for name in names.split():
            if name in module:
                module[name] = takes_keys(module[name], positions)
    for name, position in _MAKERS.items():
        if table is _NUMPY:
            module[name] = makes_keys(module[name], position)
    for name in _COMPARISONS:
        if name in module:
            module[name] = compares_keys(module[name])
    for name, comparison in _QUESTIONS.items():
        if name in module:
            module[name] = asks_keys(module[name], module[comparison])
