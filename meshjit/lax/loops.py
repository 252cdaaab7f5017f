"""Loops under `jax.lax`'s names: scan, while_loop, fori_loop, map."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.promotion import is_python_number, promote
from meshjit.core.types import TensorType
from meshjit.errors import ConcretizationTypeError
from meshjit.lax.carries import fixed_carry
from meshjit.lax.regions import (
    Leaves,
    apply,
    captured_first,
    check_callable,
    in_python,
    kind_of_result,
    leaves_of,
    on_one_mesh,
    split_captured,
    trace_region,
    written_first,
)
from meshjit.lax.sliced_refs import has_sliced_refs, scan_of_slices
from meshjit.lax.unchanged import with_invariants_apart
from meshjit.numpy.promote import cast, dtype_of, lifted, ops, promoted, value, weak_of
from meshjit.trace import Argument, Traced, bind_program, function_name, line_of, user_source
from meshjit.trace.float0 import with_float0_shapes
from meshjit.trace.refs import store_outputs
from meshjit.trace.tracer import is_known
from meshjit.transform.batch import batch
from meshjit.transform.inline_calls import inline_calls
from meshjit.tree_views import hidden_dims
from meshjit.trees import WORDS as tree

Function = Callable[..., Any]


# -- scan


def scan(
    f: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Carry a value through f(carry, x) -> (carry, y) for every slice x of xs along dim 0 (`jax.lax.scan`).

    Args:
      f: gets the carry and one slice of xs (None where xs is None); gives the next carry, of the same structure, shapes
        and dtypes, and a pytree y of anything. Traced once.
      xs: pytree of arrays of one leading extent; None to run `length` times without. Of a Ref f gets one of its slice.
      reverse: from the last slice to the first; ys stay in the order of xs.
      unroll: so many iterations become one step of the compiled loop; True for all.
      _split_transpose: how JAX cuts the loop's derivative; changes nothing here.

    Returns: (last carry, ys stacked along dim 0).
    TypeError where f gives back another carry than it was given, with the leaf's path and both types.
    """
    check_callable("scan", f)
    return _scanned("scan", f, f, init, xs, length, reverse, unroll)


def _scanned(
    what: str, f: Function, of: Function, init: Any, xs: Any, length: int | None, reverse: bool, unroll: int | bool
) -> tuple[Any, Any]:
    """`what`: the function that the user called, for messages; `of`: the function that f was made of for it."""
    if has_sliced_refs(xs):
        return scan_of_slices(what, f, xs, lambda g, x: _scanned(what, g, of, init, x, length, reverse, unroll))
    carry, slices = leaves_of(init, "init"), leaves_of(xs, "xs")
    count, steps = _length(slices, length), _unrolled(unroll)
    if in_python():
        return _scan_in_python(f, init, xs, count, reverse)
    inner = [_slice_of(what, a) for a in slices.arguments]
    one = with_float0_shapes(slices.structure, lambda shape: shape[1:])
    carry, traced = fixed_carry(what, carry, lambda c: _traced_step(what, f, of, c, inner, one))
    carry_tree, ys_tree = tree.structures(traced.out_tree)
    consts, refs = split_captured(traced)  # refs that it writes are carried
    body, places = captured_first(traced, [*consts, *refs]), len(refs) + len(carry.values)
    params = {"length": count, "reverse": bool(reverse), "num_consts": len(consts), "num_carry": places}
    params["unroll"] = max(1, count) if steps is None else steps
    operands = [*consts, *refs, *carry.values, *slices.values]
    types = [*body.input_types[: len(consts) + len(refs)], *carry.types, *slices.types]
    weak = written_first(traced, traced.out_weak)
    results = apply(ops("scan"), operands, types, weak, traced.mesh, body=body, **params)
    store_outputs(refs, results[: len(refs)])
    results, ys = results[len(refs) : places], results[places:]
    stacked = with_float0_shapes(ys_tree, lambda shape: (count, *shape))
    return tree.unflatten(carry_tree, results), tree.unflatten(stacked, ys)


def _slice_of(what: str, argument: Argument) -> Argument:
    """One iteration's part of it; ValueError where an explicit axis shards the dim that the loop goes along."""
    if argument.axes[0]:
        raise ValueError(
            f"{what}: {argument.name} is {argument}, sharded along the dim that the loop takes slices of\n"
            f"  at {line_of(user_source())}\n  fix: reshard({argument.name}, ...) to another dim before"
        )
    return argument.without_dim(0)


def _length(slices: Leaves, length: int | None) -> int:
    """How often the loop runs; ValueError where leading extents or `length` differ."""
    lengths: dict[int, str] = {}
    for argument, hidden in zip(slices.arguments, hidden_dims(slices.structure), strict=True):
        if argument.type.rank == hidden:
            single = "a single key" if hidden else argument.type
            raise ValueError(
                f"scan: {argument.name} is {single}, which has no leading dim to take slices of\n"
                "  fix: close over values that are the same in every iteration instead of passing them as xs"
            )
        lengths.setdefault(argument.type.shape[0], argument.name)
    if length is not None:
        lengths.setdefault(int(length), "length")
    if len(lengths) > 1:
        shown = ", ".join(f"{name} has {extent}" for extent, name in lengths.items())
        raise ValueError(f"scan: leading extents differ: {shown}\n  fix: give all xs the same leading extent")
    if not lengths:
        raise ValueError("scan: there are neither xs nor a length\n  fix: scan(f, init, None, length=10)")
    return next(iter(lengths))


def _unrolled(unroll: Any) -> int | None:
    """Iterations per step of the compiled loop, None for all; ValueError for what is no number of iterations."""
    if unroll is True:
        return None
    if not isinstance(unroll, int | np.integer) or unroll < 0:
        raise ValueError(
            f"scan: unroll must be True or an int of 0 or more, it is {unroll!r}\n  at {line_of(user_source())}\n"
            "  fix: unroll=True for all iterations, or how many become one step"
        )
    return max(1, int(unroll))


def _traced_step(
    what: str, f: Function, of: Function, carry: Leaves, inner: Sequence[Argument], structure: Any
) -> Traced:
    def step(c: Any, x: Any) -> tuple[Any, Any]:
        result = f(c, x)
        if not (isinstance(result, tuple | list) and len(result) == 2):
            raise TypeError(
                f"scan: {function_name(f)} must return a pair (carry, y), it returned {kind_of_result(result)}\n"
                f"  at {line_of(user_source())}\n"
                "  fix: return (carry, None) where there is no y"
            )
        return result[0], result[1]

    name = function_name(f)
    return trace_region(step, [*carry.arguments, *inner], carry.structure, structure, name=name, of=of, what=what, writes=True)


def _scan_in_python(f: Function, init: Any, xs: Any, length: int, reverse: bool) -> tuple[Any, Any]:
    if length == 0:
        raise ValueError("scan of length 0 under disable_jit: the types of its results are not known without tracing")
    carry, xs, ys = tree.map(mnp.asarray, init), tree.map(mnp.asarray, xs), [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        carry, ys[i] = f(carry, tree.map(lambda x, i=i: x[i], xs))
    return carry, tree.map(lambda *pieces: mnp.stack(pieces), *ys)


# -- while_loop, fori_loop


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """body_fun applied as long as cond_fun of the value is true (`jax.lax.while_loop`).

    Both are traced once. TypeError where cond_fun gives no scalar bool, or body_fun another type than it is given.
    Forward mode works; reverse mode does not, since nobody knows how many iterations there will be.
    """
    check_callable("while_loop", cond_fun)
    check_callable("while_loop", body_fun)
    return _while_loop(cond_fun, body_fun, body_fun, init_val)


def _while_loop(cond_fun: Function, body_fun: Function, of: Function, init_val: Any) -> Any:
    """`of`: the function that body_fun was made of, for a fori_loop."""
    what = "while_loop" if of is body_fun else "fori_loop"
    carry = leaves_of(init_val, "init_val")
    if in_python():
        with contextlib.suppress(ConcretizationTypeError):  # a condition that differs between the members of a batch
            return _while_in_python(cond_fun, body_fun, init_val)
    carry, body = fixed_carry(
        "while_loop", carry, lambda c: trace_region(body_fun, c.arguments, c.structure, of=of, what=what, writes=True)
    )
    cond = trace_region(cond_fun, carry.arguments, carry.structure)
    _check_condition(cond)
    (cond, body), mesh = on_one_mesh(cond, body)
    refs = [*body.writes]  # which are carried
    cond_consts, body_consts = ([x for x in t.captured if not any(x is r for r in refs)] for t in (cond, body))
    loop = with_invariants_apart(captured_first(cond, [*cond_consts, *refs]), captured_first(body, [*body_consts, *refs]))
    state = [*refs, *carry.values]
    cond_consts += [state[i] for i in loop.of_cond]
    body_consts += [state[i] for i in loop.of_body]
    results = apply(
        ops("while"),
        [*cond_consts, *body_consts, *(state[i] for i in loop.changing)],
        [*loop.cond.input_types[: len(cond_consts)], *loop.body.input_types],
        written_first(body, body.out_weak),
        mesh,
        {i: state[i] for i in loop.invariant},
        cond=loop.cond,
        body=loop.body,
        cond_consts=len(cond_consts),
        body_consts=len(body_consts),
    )
    store_outputs(refs, results[: len(refs)])
    return tree.unflatten(carry.structure, results[len(refs) :])


def _check_condition(cond: Traced) -> None:
    types = cond.program.output_types
    if cond.out_tree.num_leaves != 1 or types != (TensorType((), np.dtype(np.bool_)),):
        shown = ", ".join(str(t) for t in types) or "nothing"
        raise TypeError(
            f"while_loop: {cond.program.name} must return a scalar bool, it returned {shown}\n"
            "  fix: return a comparison such as x < 10; for arrays jnp.any(...) or jnp.all(...)"
        )


def _while_in_python(cond_fun: Function, body_fun: Function, value: Any) -> Any:
    value = _as_arrays(value)
    while bool(cond_fun(value)):
        value = _as_arrays(body_fun(value))
    return value


def _as_arrays(value: Any) -> Any:
    """As a loop that is traced hands values on: Python's numbers and NumPy's arrays are arrays."""
    return tree.map(lambda x: lifted(x) if is_python_number(x) or isinstance(x, np.ndarray | np.generic) else x, value)


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """body_fun(i, value) -> value for i from lower to upper - 1 (`jax.lax.fori_loop`).

    With known bounds the loop is a scan, through which reverse mode works, and i adapts to what it is combined with, as
    Python ints do: `x + i` has the dtype of x. Else it is a while_loop.
    """
    check_callable("fori_loop", body_fun)
    _check_bounds(lower, upper)
    if in_python() and is_known(lower) and is_known(upper):
        for i in range(int(lower), int(upper)):
            init_val = body_fun(i, init_val)
        return init_val
    if _is_static(lower) and _is_static(upper):

        def step(carry: Any, _: Any) -> Any:
            i, value = carry
            return (i + 1, body_fun(i, value)), None

        step.__name__ = function_name(body_fun)
        count = max(0, int(upper) - int(lower))
        steps = 1 if unroll is None else unroll
        return _scanned("fori_loop", step, body_fun, (int(lower), init_val), None, count, False, steps)[0][1]
    weak, dtype = weak_of(lower), dtype_of(lower)
    (lower, upper), _ = promoted(lower, upper)
    lower = lifted(cast(lower, dtype_of(lower), weak and dtype_of(lower) == dtype))

    def body(carry: Any) -> Any:
        i, last, value = carry
        return i + 1, last, body_fun(i, value)

    first = (lower, upper, init_val)
    return _while_loop(_is_before_last, body, body_fun, first)[2]


def _is_before_last(carry: Any) -> Any:
    return carry[0] < carry[1]


def _check_bounds(lower: Any, upper: Any) -> None:
    """TypeError where the bounds are no scalars, or have two dtypes and the one that differs is no Python int, or the other
    is unsigned: as in JAX."""
    bounds = [value(x, name)[1:] for x, name in ((lower, "lower"), (upper, "upper"))]
    types = [type for type, _ in bounds]
    common, _ = promote([(type.dtype, weak) for type, weak in bounds])
    adapts = [type.dtype == common or (weak and common.kind == "i") for type, weak in bounds]
    if all(adapts) and types[0].shape == types[1].shape == ():
        return
    if types[0].shape or types[1].shape:
        raise TypeError(
            f"fori_loop: bounds are scalars, lower is {types[0]} and upper {types[1]}\n  at {line_of(user_source())}\n"
            "  fix: index it, or lax.map over its elements"
        )
    raise TypeError(
        f"fori_loop: lower and upper must have one dtype, lower is {types[0]} and upper {types[1]}\n"
        f"  at {line_of(user_source())}\n"
        f"  fix: {'int(upper), or n // 2 for n / 2' if types[1].dtype.kind == 'f' else 'convert one: x.astype(jnp.int32)'}"
    )


def _is_static(bound: Any) -> bool:
    """A Python int, or an integer whose value is known."""
    return isinstance(bound, int | np.integer) or (
        not mnp.ndim(bound) and np.dtype(mnp.result_type(bound)).kind in "iu" and is_known(bound)
    )


# -- map


def map(f: Function, xs: Any, *, batch_size: int | None = None) -> Any:  # noqa: A001
    """f of every slice of xs along dim 0, one after another, stacked (`jax.lax.map`); `batch_size` at a time by vmap."""
    if not batch_size or has_sliced_refs(xs):
        return _map(f, f, xs)
    count = _length(leaves_of(xs, "xs"), None)
    whole = count - count % batch_size
    parts = []
    if whole:
        blocks = tree.map(lambda x: x[:whole].reshape((whole // batch_size, batch_size, *x.shape[1:])), xs)
        done = _map(lambda x: _all_at_once(f, x), f, blocks)
        parts.append(tree.map(lambda y: y.reshape((whole, *y.shape[2:])), done))
    if whole < count or not count:
        parts.append(_all_at_once(f, tree.map(lambda x: x[whole:], xs)))
    return parts[0] if len(parts) == 1 else tree.map(lambda *ys: mnp.concatenate(ys), *parts)


def _map(g: Function, of: Function, xs: Any) -> Any:
    """g, made of the function `of`, of every slice of xs."""
    what = "map" if g is of else "map of batches"
    return _scanned(what, lambda _, x: (None, g(x)), of, None, xs, None, False, 1)[1]


def _all_at_once(f: Function, xs: Any) -> Any:
    """f of every slice of xs by its batch rules."""
    flat = leaves_of(xs, "xs")
    inner = [a.without_dim(0) for a in flat.arguments]
    traced = trace_region(f, inner, flat.structure)
    places = [*[0] * len(inner), *[None] * len(traced.captured)]
    program = batch(inline_calls(traced.program), places, _length(flat, None), [0] * len(traced.out_weak))
    return tree.unflatten(traced.out_tree, bind_program(program, [*flat.values, *traced.captured], traced.out_weak, traced.mesh))
