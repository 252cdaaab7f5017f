"""Which arguments of a function are static and which donated, as `jax.jit` documents it, and how arguments are named."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from meshjit.trace import Tracer, function_name
from meshjit.trace.tracer import origin
from meshjit.trees import WORDS as tree


@dataclass(frozen=True)
class Split:
    """One call's arguments: the static ones apart, the others as `(args, kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    statics: tuple[Any, ...]  # ((position or name, value), ...), hashable


class Parameters:
    """What jit was told about a function's parameters. Positions and names of one parameter imply each other."""

    def __init__(
        self,
        fun: Callable[..., Any],
        static_argnums: int | Sequence[int] | None,
        static_argnames: str | Iterable[str] | None,
        donate_argnums: int | Sequence[int] | None,
        donate_argnames: str | Iterable[str] | None,
    ) -> None:
        self.fun = fun
        self.signature = _signature(fun)
        self.names = _positional_names(self.signature)
        self.static_nums, self.static_names = self._resolve("static", static_argnums, static_argnames)
        self.donate_nums, self.donate_names = self._resolve("donate", donate_argnums, donate_argnames)
        both = [n for n in self.donate_nums if n in self.static_nums]
        if both or self.donate_names & self.static_names:
            raise ValueError(f"{self._title()}: argument {self._argument(both)} is both static and donated; drop one")

    def _resolve(
        self, what: str, numbers: int | Sequence[int] | None, names: str | Iterable[str] | None
    ) -> tuple[tuple[int, ...], frozenset[str]]:
        nums = tuple(self._position(what, n) for n in self._numbers(what, numbers))
        text = self._texts(what, names)
        for name in text:
            self._check_name(what, name)
        if names is None:
            text = tuple(self.names[n] for n in nums if n < len(self.names) and self._may_be_named(n))
        if numbers is None:
            nums = tuple(self.names.index(n) for n in text if n in self.names)
        return tuple(sorted(set(nums))), frozenset(text)

    def _numbers(self, what: str, entries: Any) -> tuple[int, ...]:
        every = () if entries is None else (entries,) if isinstance(entries, SupportsIndex) else entries
        if isinstance(every, str) or not isinstance(every, Iterable):
            fix = f"\n  fix: {what}_argnames={entries!r}" if isinstance(entries, str) else ""
            raise TypeError(f"{self._title()}: {what}_argnums must be an int or several, got {entries!r}{fix}")
        for n in every:
            if not isinstance(n, SupportsIndex):
                fix = f"\n  fix: {what}_argnames={tuple(every)!r}" if isinstance(n, str) else ""
                raise TypeError(f"{self._title()}: {what}_argnums must be ints, got {n!r}{fix}")
        return tuple(operator.index(n) for n in every)

    def _texts(self, what: str, entries: Any) -> tuple[str, ...]:
        every = () if entries is None else (entries,) if isinstance(entries, str) else entries
        if not isinstance(every, Iterable):
            fix = f"\n  fix: {what}_argnums={entries}" if isinstance(entries, int) else ""
            raise TypeError(f"{self._title()}: {what}_argnames must be a string or several, got {entries!r}{fix}")
        return tuple(every)

    def _position(self, what: str, number: int) -> int:
        count = len(self.names)
        if self.signature is None or self._takes_any_positional():
            return number
        if not -count <= number < count:
            raise ValueError(
                f"{self._title()}: {what}_argnums has {number}, but the function takes {count} positional arguments"
                f" ({', '.join(self.names)})\n  fix: use a number from {-count} to {count - 1}"
            )
        return number % count

    def _check_name(self, what: str, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{self._title()}: {what}_argnames must be strings, got {name!r}")
        if self.signature is None:
            return
        parameters = self.signature.parameters
        if name not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            raise ValueError(
                f"{self._title()}: {what}_argnames has {name!r}, which is not one of its parameters"
                f" ({', '.join(parameters)})\n  fix: use one of these names"
            )

    def _may_be_named(self, number: int) -> bool:
        """Whether a call may give this argument by name; a negative position may be that of a *args."""
        assert self.signature is not None
        if number < 0:
            return False
        return self.signature.parameters[self.names[number]].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD

    def _takes_any_positional(self) -> bool:
        assert self.signature is not None
        return any(p.kind is p.VAR_POSITIONAL for p in self.signature.parameters.values())

    def _title(self) -> str:
        return f"jit({function_name(self.fun)})"

    def _argument(self, numbers: Sequence[int]) -> str:
        return repr(self.names[numbers[0]]) if numbers and numbers[0] < len(self.names) else str(list(numbers))

    # -- calls

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Split:
        """Take the static arguments out of one call; ValueError for an unhashable one."""
        if not self.static_nums and not self.static_names:
            return Split(args, kwargs, ())
        statics: list[tuple[Any, Any]] = []
        for n in self.static_nums:
            position = n if n >= 0 else len(args) + n
            if 0 <= position < len(args):
                statics.append((position, args[position]))
        names = [k for k in kwargs if k in self.static_names]
        statics += [(name, kwargs[name]) for name in sorted(names)]
        for where, value in statics:
            self._check_hashable(where, value)
        positions = {where for where, _ in statics}
        dynamic = tuple(x for i, x in enumerate(args) if i not in positions)
        return Split(dynamic, {k: v for k, v in kwargs.items() if k not in self.static_names}, tuple(statics))

    def _check_hashable(self, where: int | str, value: Any) -> None:
        try:
            hash(value)
        except TypeError:
            if isinstance(value, Tracer):
                raise TypeError(self._traced(where, value)) from None
            name = self.static_name(where)
            raise ValueError(
                f"{self._title()}: static argument {name!r} is a {type(value).__name__}, which is not hashable\n"
                f"  static values are part of the cache key\n"
                f"  fix: pass a tuple or another hashable value, or do not mark {name!r} static"
            ) from None

    def _traced(self, where: int | str, value: Tracer) -> str:
        name = self.static_name(where)
        return (
            f"{self._title()}: static argument {name!r} is traced: {value!r}, {origin(value)}\n"
            "  a static argument is part of the program, so its value must be known when the program is made\n"
            f"  fix: mark it static in the outer function, too, or do not mark {name!r} static"
        )

    def check_comparable(self, split: Split) -> None:
        """ValueError for static values whose == fails: without it compiled functions cannot be found again."""
        for _, value in split.statics:
            try:
                bool(value == value)
            except Exception as error:
                raise ValueError(
                    f"{self._title()}: static arguments must compare with ==, but comparing one of type"
                    f" {type(value).__name__} raised {type(error).__name__}: {error}\n"
                    "  static values are part of the cache key\n"
                    "  fix: give the class an __eq__ that returns True or False"
                ) from error

    def static_name(self, where: int | str) -> str:
        """Of a static argument at a position, or given by name."""
        return self.argument_name(where) if isinstance(where, int) else where

    def join(self, args: tuple[Any, ...], kwargs: dict[str, Any], statics: tuple[Any, ...]) -> Any:
        """Call the function with the static arguments put back."""
        full = list(args)
        for where, value in statics:
            if isinstance(where, int):
                full.insert(where, value)
        return self.fun(*full, **kwargs, **{w: v for w, v in statics if isinstance(w, str)})

    def donated(self, split: Split) -> list[bool]:
        """One flag per leaf of `(args, kwargs)`."""
        kept, total = self._kept_positions(split)
        numbers = {n if n >= 0 else total + n for n in self.donate_nums}
        flags: list[bool] = []
        for i, x in zip(kept, split.args, strict=True):
            flags += [i in numbers] * len(tree.leaves(x))
        for name in sorted(split.kwargs):
            flags += [name in self.donate_names] * len(tree.leaves(split.kwargs[name]))
        return flags

    @staticmethod
    def _kept_positions(split: Split) -> tuple[list[int], int]:
        """Which positions the arguments that are not static had in the call, and how many there were."""
        taken = {where for where, _ in split.statics if isinstance(where, int)}
        total = len(split.args) + len(taken)
        return [i for i in range(total) if i not in taken], total

    def leaf_names(self, split: Split) -> list[str]:
        """`params['w1']` for every leaf of `(args, kwargs)`."""
        kept, _ = self._kept_positions(split)
        names: list[str] = []
        for i, x in zip(kept, split.args, strict=True):
            names += tree.path_names(x, self.argument_name(i))
        for name in sorted(split.kwargs):
            names += tree.path_names(split.kwargs[name], name)
        return names

    def argument_name(self, position: int) -> str:
        if position < len(self.names):
            return self.names[position]
        if self.signature is not None:
            for p in self.signature.parameters.values():
                if p.kind is p.VAR_POSITIONAL:
                    return f"{p.name}[{position - len(self.names)}]"
        return f"args[{position}]"


def _signature(fun: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def _positional_names(signature: inspect.Signature | None) -> list[str]:
    if signature is None:
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]
