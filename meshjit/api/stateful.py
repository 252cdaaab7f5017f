"""Calls of jitted functions that use refs: as a function without refs, of their contents, which gives what it wrote.

Refs among the arguments are lent: a call is found again for other refs of the same types. Those that the function closes over
are part of what was compiled. What runs is an ordinary jitted function, made of the Program that was traced."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from meshjit.api.arguments import Split
from meshjit.api.shardings import UNSPECIFIED
from meshjit.api.stages import Traced
from meshjit.core.ref import Lent, Ref
from meshjit.runtime.array import Array
from meshjit.trace import Traced as TracedProgram, active_trace, bind_program
from meshjit.trace.refs import borrowed, check_distinct, content_of, is_slot, lend, refs_in, store_outputs, type_of_ref
from meshjit.trees import USERS, WORDS as tree
from sharding.named import NamedSharding

if TYPE_CHECKING:
    from meshjit.api.compiled import Compiled
    from meshjit.api.wrapped import Wrapped

_lent: list[list[Ref]] = []  # of the calls that are being made, the innermost last


@contextlib.contextmanager
def lending(refs: list[Ref]) -> Generator[None, None, None]:
    """Inside, a call is made whose arguments are the contents of these."""
    _lent.append(refs)
    try:
        yield
    finally:
        _lent.pop()


def borrowing(arguments: Any) -> Any:
    """Inside a function that is being traced: the arguments with refs of its own where some were lent."""
    trace = active_trace()
    arguments, refs = borrowed(arguments)
    if trace is not None:
        trace.lent.extend(refs)
    return arguments


def is_stateful(traced: TracedProgram) -> bool:
    return Ref.made and bool(traced.writes or any(type(x) is Ref for x in traced.captured))


def plain(arguments: Any) -> Any:
    """Arguments with contents alone where refs are lent."""
    return USERS.map(lambda x: x.content if isinstance(x, Lent) else x, arguments, is_leaf=lambda x: isinstance(x, Lent))


class Stateful:
    """What a call that uses refs runs, in the place of a Compiled."""

    def __init__(self, wrapped: Wrapped, split: Split, traced: Traced) -> None:
        self.traced, self.title = traced.traced_program, traced.call.title
        self.closed = [x for x in self.traced.captured if type(x) is Ref and not is_slot(x)]
        self.in_tree = traced.call.in_tree
        self._is_placed = wrapped.device is not None
        self._jitted = self._maker(wrapped, split, traced)
        self._known: dict[tuple[Any, ...], Wrapped] = {}

    def pure(self, lent: Sequence[Ref]) -> Wrapped:
        """The function of (contents of the refs closed over, *args, **kwargs) that gives (result, what was written), the latter
        where these refs, and those closed over, have their contents now."""
        places = [self._place_of(lent[ref] if isinstance(ref, int) else ref) for ref in self.traced.writes]
        if tuple(places) not in self._known:
            self._known[tuple(places)] = self._jitted(places)
        return self._known[tuple(places)]

    def _place_of(self, ref: Ref) -> NamedSharding | None:
        content = content_of(ref)
        is_chosen = isinstance(content, Array) and content.committed and not self._is_placed
        return content.sharding if is_chosen and isinstance(content.sharding, NamedSharding) else None

    def _maker(self, wrapped: Wrapped, split: Split, traced: Traced) -> Callable[[list[Any]], Wrapped]:
        """Of where what was written shall be: the function, jitted as this one was."""
        donated = iter(traced.call.donated)
        given = [[next(donated) for _ in tree.leaves(x)] for x in split.args]
        ins, outs = (wrapped.meaning(s) for s in (wrapped.in_shardings, wrapped.out_shardings))
        spread = tuple(ins) if isinstance(ins, tuple | list) else (ins,) * len(split.args)
        jitted = functools.partial(
            type(wrapped),
            self._apart,
            in_shardings=ins if ins is UNSPECIFIED else (None, *spread),
            donate_argnums=[i + 1 for i, flags in enumerate(given) if flags and all(flags)],
            keep_unused=wrapped.keep_unused,
            device=wrapped.device,
            compiler_options=wrapped.compiler_options,
            automatic=wrapped.automatic,
        )
        return lambda places: jitted(
            out_shardings=outs if outs is UNSPECIFIED and not any(places) else (outs, places if any(places) else None)
        )

    @functools.cached_property
    def _apart(self) -> Callable[..., Any]:
        program = self.traced

        def pure(contents: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            rest = iter(contents)
            captured = [(x.content if is_slot(x) else next(rest)) if type(x) is Ref else x for x in program.captured]
            leaves = tree.leaves((args, kwargs))
            outputs = bind_program(program.program, [*leaves, *captured], program.out_weak, program.mesh)
            count = len(outputs) - len(program.writes)
            return tree.unflatten(program.out_tree, outputs[:count]), outputs[count:]

        pure.__name__ = pure.__qualname__ = self.title[4:-1]
        return pure

    def spelt(self, keys: Any) -> Stateful:
        return self

    def needs_moving(self, keys: Any) -> bool:
        """Always: C++ cannot run it by itself."""
        return True

    def run(self, leaves: Sequence[Any], placed: bool = False) -> Any:
        lent = _lent[-1] if _lent else []
        return self.applied(self.pure(lent), plain(tree.unflatten(self.in_tree, leaves)), lent)

    def applied(self, pure: Any, arguments: Any, lent: Sequence[Ref]) -> Any:
        """What the function of contents gives for (args, kwargs), and what it wrote stored."""
        self._check_apart(lent)
        args, kwargs = arguments
        result, written = pure([content_of(ref) for ref in self.closed], *args, **kwargs)
        store_outputs(self.traced.writes, written, lent)
        return result

    def _check_apart(self, lent: Sequence[Ref]) -> None:
        both = next((ref for ref in self.closed if any(ref is x for x in lent)), None)
        if both is not None:
            raise ValueError(
                f"when calling {self.title}, a mutable array reference of type {type_of_ref(both)} was both closed over and"
                " passed as an argument\n  fix: use the argument alone in the function"
            )


class LoweredWithRefs:
    """What `lower` gives for a function that uses refs: the Lowered of the function of their contents, and `compile`."""

    def __init__(self, wrapped: Wrapped, stateful: Stateful, split: Split, lent: Sequence[Ref]) -> None:
        args, kwargs = plain((split.args, split.kwargs))
        self._wrapped, self._stateful = wrapped, stateful
        self._lowered = stateful.pure(lent).lower([content_of(ref) for ref in stateful.closed], *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Lowered {self._stateful.title} with refs>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lowered, name)

    def compile(self, *args: Any, **kwargs: Any) -> CompiledWithRefs:
        return CompiledWithRefs(self._wrapped, self._stateful, self._lowered.compile(*args, **kwargs))


class CompiledWithRefs:
    """The last stage: called with refs, or arrays, as the function was lowered for."""

    def __init__(self, wrapped: Wrapped, stateful: Stateful, compiled: Compiled) -> None:
        self._wrapped, self._stateful, self._compiled = wrapped, stateful, compiled

    def __repr__(self) -> str:
        return f"<Compiled {self._stateful.title} with refs>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_distinct(self._stateful.title, (args, kwargs))
        lent = refs_in((args, kwargs))
        return self._stateful.applied(self._compiled, plain(lend((args, kwargs))), lent)
