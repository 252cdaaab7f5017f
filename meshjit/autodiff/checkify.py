"""checkify: errors of traced programs as results (`jax.experimental.checkify`).

    def f(x):
        checkify.check(x > 0, "{x} needs to be positive!", x=x)
        return 1 / x

    err, y = jit(checkify.checkify(f))(-3.0)
    err.get()                                       '-3.0 needs to be positive! (`check` failed)'
    err.throw()                                     raises JaxRuntimeError, a ValueError
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import check_function, named_leaves, run
from meshjit.core.host import HostFunction, host_function
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.trace import (
    Tracer,
    argument_of,
    array_paths,
    as_operand,
    concrete_info,
    trace_for,
    trace_to_program,
    user_source,
)
from meshjit.trace.float0 import without_float0
from meshjit.trace.names import function_name, wraps
from meshjit.transform.checkify import Kind, checkify as checkify_program, first_error, next_code, values_of
from meshjit.transform.checks import (
    CATEGORIES,
    DivisionByZeroError,
    FailedCheckError,
    JaxException,
    JaxRuntimeError,
    NaNError,
    OOBError,
    Wording,
)
from meshjit.trees import WORDS as tree

ErrorCategory = type[JaxException]
_Value = tuple[Any, Any, tuple[Any, ...]]  # pred, code, payload

user_checks: Final = frozenset[ErrorCategory]({FailedCheckError})
nan_checks: Final = frozenset[ErrorCategory]({NaNError})
index_checks: Final = frozenset[ErrorCategory]({OOBError})
div_checks: Final = frozenset[ErrorCategory]({DivisionByZeroError})
float_checks: Final = nan_checks | div_checks
automatic_checks: Final = float_checks | index_checks
all_checks: Final = automatic_checks | user_checks


class BatchedError(JaxException):
    """The errors of the members of a batch, by their places in it (`error_mapping`)."""

    def __init__(self, errors: Mapping[tuple[int, ...], JaxException]) -> None:
        super().__init__("\n".join(f"at mapped index {', '.join(map(str, i))}: {e}" for i, e in errors.items()))
        self.error_mapping = errors
        self.source = next(iter(errors.values())).source


class Error:
    """What a checkified function found, first of its results: a tree of arrays, so that it leaves jit and is mapped by vmap.

    Of several errors it tells of the one that stands first in the program."""

    def __init__(self, values: Mapping[Kind, _Value], messages: Mapping[int, HostFunction]) -> None:
        self.values, self.messages = dict(values), dict(messages)

    def get(self) -> str | None:
        """The message, if there was an error."""
        error = self.get_exception()
        return None if error is None else str(error)

    def get_exception(self) -> JaxException | None:
        """The exception that says what happened, if anything did."""
        shape = max((np.shape(pred) for pred, _, _ in self.values.values()), key=len, default=())
        if not shape:
            return self._at(())
        errors = {index: error for index in np.ndindex(*shape) if (error := self._at(index)) is not None}
        return BatchedError(errors) if errors else None

    def _at(self, index: tuple[int, ...]) -> JaxException | None:
        """That of one member of the batch."""
        if not index:
            return first_error(self.values, self.messages)
        values = {kind: tree.map(lambda x: _part(x, index), value) for kind, value in self.values.items()}
        return first_error(values, self.messages)

    def throw(self) -> None:
        """Raise JaxRuntimeError if there was an error. In a function that is checkified this is a check again."""
        check_error(self)

    def __str__(self) -> str:
        return f"Error({self.get()})"


def _part(value: Any, index: tuple[int, ...]) -> Any:
    return mnp.asarray(np.asarray(value)[index])


def _flatten(error: Error) -> tuple[tuple[Any, ...], Any]:
    kinds = tuple(error.values)
    return tuple(error.values[k] for k in kinds), (kinds, tuple(error.messages.items()))


tree.register_node(Error, _flatten, lambda known, values: Error(dict(zip(known[0], values, strict=True)), dict(known[1])))
init_error: Final = Error({}, {})


def checkify(f: Callable[..., Any], errors: Collection[ErrorCategory] = user_checks) -> Callable[..., tuple[Error, Any]]:
    """A function that gives (Error, the result of f), and never raises for what it checks (`jax.experimental.checkify`).

    Args:
      f: may hold `check`s, also in what it calls, jitted or not, in loops, branches and vmaps.
      errors: what is checked: user_checks, nan_checks (of the result of every operation), div_checks, index_checks,
        float_checks (of both numbers), automatic_checks, all_checks, or a union of them.

    Arrays among the arguments are traced; what else there is reaches f as it is."""
    check_function(f, "checkify")
    categories = [kind.__name__ for kind in errors]
    unknown = [name for name in categories if name not in CATEGORIES]
    if unknown:
        raise ValueError(f"checkify: errors has {unknown[0]}\n  fix: some of user_checks, nan_checks, div_checks, index_checks")

    @boundary
    @wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        args, kwargs = without_float0((args, kwargs))
        leaves, structure, names = named_leaves(f, args, kwargs)
        taken = [isinstance(x, Tracer | np.ndarray | np.generic) or concrete_info(x) is not None for x in leaves]
        arguments = [argument_of(x, n) for x, n, flag in zip(leaves, names, taken, strict=True) if flag]
        operands = [x for x, flag in zip(leaves, taken, strict=True) if flag]
        operands = [as_operand(x, a) for x, a in zip(operands, arguments, strict=True)]

        def of_arrays(*arrays: Any) -> Any:
            rest = iter(arrays)
            full = [next(rest) if flag else x for x, flag in zip(leaves, taken, strict=True)]
            given, named = tree.unflatten(structure, full)
            return f(*given, **named)

        flat = tree.structure(((0,) * len(operands), {}))
        traced = trace_to_program(of_arrays, arguments, flat, function_name(f), array_paths(), operands)
        whole = checkify_program(traced.program, categories)
        count = len(whole.program.outputs) - len(traced.program.outputs)
        weak = [False] * count + list(traced.out_weak)
        results = run(whole.program, [*operands, *traced.captured], weak, traced.mesh)
        return Error(values_of(whole.kinds, results), whole.messages), tree.unflatten(traced.out_tree, results[count:])

    return checked


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """An error with this message unless `pred`, a bool or bool[], holds. Message and arguments are `str.format`'s.

    Outside of traced functions it raises JaxRuntimeError; a traced function has to be checkified, or jit raises ValueError.
    `debug`: as `debug_check`. The arguments are trees of arrays."""
    _check(pred, msg, debug, fmt_args, fmt_kwargs)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """`check` in functions that are checkified; in others nothing."""
    _check(pred, msg, True, fmt_args, fmt_kwargs)


def _check(pred: Any, text: str, debug: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if argument_of(pred).type != _BOOL:
        raise TypeError(f"{'debug_check' if debug else 'check'} takes a scalar pred as argument, got {pred}")
    leaves, structure = tree.flatten((args, kwargs))
    for x in leaves:
        if not isinstance(x, Tracer | np.ndarray | np.generic) and concrete_info(x) is None:
            raise TypeError(
                f"Formatting arguments to checkify.check need to be PyTrees of arrays, but got {x!r} of type {type(x)}."
            )
    arguments = [argument_of(x) for x in leaves]
    code, kind = next_code(), ("FailedCheckError", tuple(a.type for a in arguments))
    wording = Wording(kind[0], f"{text} (`check` failed)", user_source(), structure)
    payload = tuple(as_operand(x, a) for x, a in zip(leaves, arguments, strict=True))
    failed = mnp.logical_not(pred)
    _raise(Error({kind: (failed, np.int32(code), payload)}, {code: host_function(wording, "check", len(leaves), ())}), debug)


_BOOL = argument_of(True).type


def check_error(error: Error) -> None:
    """Raise JaxRuntimeError if this holds an error; in a function that is checkified a check, as `check` is one."""
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    _raise(error, False)


def _raise(error: Error, debug: bool) -> None:
    leaves = tree.leaves(error)
    if trace_for(leaves) is None:
        exception = None if debug else error.get_exception()
        if exception is not None:
            raise JaxRuntimeError.of(exception) from exception
        return
    for (category, _), value in error.values.items():
        pred, code, *payload = tree.leaves(value)
        operands = list(_last([pred, code, *payload]))
        params = {"category": category, "messages": tuple(error.messages.items()), "debug": debug}
        arguments = [argument_of(x) for x in operands]
        with Builder("check") as builder, builder.at(user_source()):
            builder.emit(REGISTRY["check"], [builder.input(a.type) for a in arguments], params)
            program = builder.build([])
        run(program, [as_operand(x, a) for x, a in zip(operands, arguments, strict=True)], [], None)


def _last(values: Sequence[Any]) -> Iterator[Any]:
    """Those of the last member of a batch that has an error."""
    pred = values[0]
    for _ in range(np.ndim(pred)):
        place = mnp.argsort(pred.reshape(pred.shape[0], -1).any(1))[-1]
        values, pred = [x[place] for x in values], pred[place]
    return iter(values)


