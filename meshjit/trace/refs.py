"""What a Ref holds, where functions are traced: its content at any place is a value of the Program, no more.

A function that uses a Ref made outside of it captures its content at the start, under the Ref itself: where the function is
applied, that operand is what the Ref then holds. What it writes are further outputs (`Traced.writes`), which whoever applies it
stores: loops carry them, branches all give them back, derivatives and batches pass them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshjit.core.keys import PRNGKeyArray, type_text
from meshjit.core.ref import Lent, Ref
from meshjit.trace.source import line_of, user_source
from meshjit.trace.thread import innermost, traces
from meshjit.trace.tracer import Tracer, leaked
from meshjit.trees import USERS

if TYPE_CHECKING:
    from meshjit.trace.tracing import Trace


class Held:
    """A Ref in a function that it was made outside of: what it holds where the function now is, and whether that was written.

    `apart`: in a rule, of which it has to be seen what it adds."""

    __slots__ = ("ref", "value", "written", "apart")

    def __init__(self, ref: Ref, value: Any, apart: bool = False) -> None:
        self.ref, self.value, self.written, self.apart = ref, value, False, apart


def content_of(ref: Ref) -> Any:
    """What it holds now: an array, or a value of the function that is being traced."""
    trace = innermost()
    return content_around(ref, None) if trace is None else content_in(trace, ref)


def content_in(trace: Trace, ref: Ref) -> Any:
    return ref.content if ref.home is trace else _held(trace, ref).value


def adds_apart(ref: Ref) -> bool:
    """Whether it is in a rule of custom_vjp, whose additions go back as cotangents."""
    trace = innermost()
    return trace is not None and id(ref) in trace.refs and trace.refs[id(ref)].apart


def store(ref: Ref, content: Any) -> None:
    """From now on it holds this, of its type, and outside of traces where its content was."""
    trace = innermost()
    if trace is None or ref.home is trace:
        before = content_around(ref, None)  # which is an error for one whose trace has ended
        ref.content, ref.written = content if trace is not None or ref.of else content.in_place_of(before), True
    else:
        held = _held(trace, ref)
        held.value, held.written = trace.lift(content), True


def content_around(ref: Ref, trace: Trace | None) -> Any:
    """What it holds outside of a trace; None: as far in as there is one. UnexpectedTracerError for one whose trace has ended."""
    if ref.home is not None and ref.home not in traces.stack:
        raise leaked(ref.content)
    stack = [t for t in traces.stack if t is not None]
    below = stack if trace is None else stack[: stack.index(trace)]
    for outer in reversed(below):
        if outer is ref.home:
            break
        if id(ref) in outer.refs:
            return outer.refs[id(ref)].value
    return ref.content


def _held(trace: Trace, ref: Ref) -> Held:
    held = trace.refs.get(id(ref))
    if held is None:
        outside = content_around(ref, trace)
        var = trace.capture(ref, ref.type, outside)
        if trace.values is not None:
            trace.values.put_outer(var, outside)
        held = trace.refs[id(ref)] = Held(ref, Tracer(var, trace, ref.weak, None))
    return held


def resolved(values: Sequence[Any]) -> list[Any]:
    """Refs among captured values as what they hold now; slots are zeros."""
    return [(content_of(x) if x.of is None else x.content) if type(x) is Ref else x for x in values]


def is_slot(x: Any) -> bool:
    return type(x) is Ref and x.of is not None


# -- what a traced function wrote


def written_in(trace: Trace, may_write: bool) -> tuple[tuple[Ref | int, ...], list[Any]]:
    """The Refs that it wrote, and what they hold at its end; a Ref that was lent to it by its number."""
    lent = {i: ref.content for i, ref in enumerate(trace.lent) if ref.written}
    held = [held for held in trace.refs.values() if held.written]
    if held and not may_write:
        raise TypeError(
            f"{trace.name} writes to a {type_of_ref(held[0].ref)} that was made outside of it, which can only be done in"
            " functions under jit, grad, vmap, checkpoint, and in bodies of loops and branches\n"
            f"  the Ref was made at {line_of(held[0].ref.source)}\n  fix: return the value, and write it outside"
        )
    return (*lent, *(h.ref for h in held)), [*lent.values(), *(h.value for h in held)]


def check_without_refs(title: str, traced: Any) -> None:
    """NotImplementedError for a traced function that uses refs, which no Plan and no file has."""
    used = [x for x in (*traced.writes, *traced.captured) if isinstance(x, Ref | int)]
    if used:
        raise NotImplementedError(
            f"{title} uses refs, and is planned, exported and lowered in steps only without\n"
            "  fix: call it, or .lower(...).compile() of it; for the others a function of ref[...] that returns the new value"
        )


def store_outputs(writes: Sequence[Ref | int], outputs: Sequence[Any], lent: Sequence[Ref] = ()) -> None:
    """Store what a function wrote: `outputs` are its results, the last of which belong to `writes`."""
    for ref, content in zip(writes, outputs[len(outputs) - len(writes) :], strict=True):
        store(lent[ref] if isinstance(ref, int) else ref, content)


def check_no_refs(name: str, result: Any, args: Any, kwargs: Any) -> None:
    """ValueError for a function that returns a Ref."""
    for path, leaf in USERS.leaves_with_path(result):
        if isinstance(leaf, Ref):
            where = USERS.keystr(path)
            passed = [USERS.keystr(p) for p, x in USERS.leaves_with_path((args, kwargs)) if x is leaf]
            origin = "was passed in as an argument" if passed else f"was created on line {line_of(leaf.source)}"
            raise ValueError(
                f"function {name} returned a mutable array reference of type {type_of_ref(leaf)}"
                f"{f' at output tree path result{where}' if where else ''}, but mutable array references cannot be returned.\n"
                f"  the returned mutable array {origin}\n  fix: return {'ref[...]' if passed else 'freeze(ref)'}, its value"
            )


# -- Refs as arguments


def refs_in(tree: Any) -> list[Ref]:
    """The Refs among the leaves."""
    return [x for x in USERS.leaves(tree) if type(x) is Ref]


def check_distinct(name: str, tree: Any) -> None:
    """ValueError where one Ref is passed twice: what is written to one would not be seen in the other."""
    seen: dict[int, str] = {}
    for path, leaf in USERS.leaves_with_path(tree):
        if type(leaf) is Ref and id(leaf) in seen:
            raise ValueError(
                f"only one reference to a mutable array may be passed as an argument to a function, but when calling {name} the"
                f" mutable array reference of type {type_of_ref(leaf)} appeared at both {seen[id(leaf)]} and {_shown(path)}\n"
                f"  at {line_of(user_source())}\n  fix: pass it once, or another Ref: new_ref(ref[...])"
            )
        if type(leaf) is Ref:
            seen[id(leaf)] = _shown(path)


def _shown(path: Any) -> str:
    """`args[0]['w']`, of a path in (args, kwargs)."""
    return ("args", "kwargs")[path[0].idx] + USERS.keystr(path[1:])


def lend(tree: Any, which: Any = None) -> Any:
    """The tree with the content of every Ref (of those in `which`, by id) as an argument of its own, for `borrowed`."""

    def lent(x: Any) -> Any:
        return Lent(content_of(x), x.weak, x.keys) if type(x) is Ref and (which is None or id(x) in which) else x

    return USERS.map(lent, tree)


def borrowed(tree: Any) -> tuple[Any, list[Ref]]:
    """Inside the function that they were lent to: the tree with Refs of this trace in their place, and these."""
    trace, refs = innermost(), list[Ref]()

    def borrow(x: Any) -> Any:
        if not isinstance(x, Lent):
            return x
        refs.append(Ref(x.content.type, x.weak, x.keys, trace, x.content, user_source()))
        return refs[-1]

    return USERS.map(borrow, tree, is_leaf=lambda x: isinstance(x, Lent)), refs


def type_of_ref(ref: Ref) -> str:
    """`Ref{float32[3]}`."""
    name = type_text(ref.dtype, ref.shape) if ref.keys is not None else f"{ref.dtype.name}[{','.join(map(str, ref.shape))}]"
    return f"Ref{{{name}}}"


def value_of(ref: Ref) -> Any:
    """What it holds, as users see it."""
    content = content_of(ref)
    return content if ref.keys is None else PRNGKeyArray(ref.keys, content)
