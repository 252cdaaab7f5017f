"""What a function reads besides its arguments: variables of functions around it, globals, attributes of objects in either.

Only to notice that it would not read the same again. Behind attributes and in containers nobody looks: like every traced function
it is taken to be pure, and so is what it calls in other modules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

MISSING = object()
Read = tuple[Any, str | None, Any]  # a cell and None, or a dictionary and a name in it; and the value there
_OURS = ("builtins", "meshjit", "sharding", "numpy", "jaxlib")  # packages whose objects have no attributes of the user's


def reads_of(fun: Any) -> list[Read]:
    """What stands now in the variables of a function, and of functions of its module that it finds there."""
    reads: list[Read] = []
    seen: set[int] = set()
    waiting = [fun]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            own = list(_variables(value))
            reads += own
            waiting += [held for _, _, held in own if _may_read(held, value)]
        else:
            waiting += _functions_in(value)
            reads += _attributes(value)
    return reads


def is_current(read: Read) -> bool:
    """Whether the variable still holds that value."""
    place, name, value = read
    return (place.get(name, MISSING) if name is not None else _contents(place)) is value


def _variables(function: FunctionType) -> Iterator[Read]:
    for cell in function.__closure__ or ():
        yield cell, None, _contents(cell)
    scope = function.__globals__
    for name in _global_names(function.__code__):
        if name in scope:
            yield scope, name, scope[name]


def global_values(function: FunctionType) -> list[Any]:
    """What it names among globals: of functions, those of its own module."""
    scope = function.__globals__
    values = [scope[name] for name in _global_names(function.__code__) if name in scope]
    return [x for x in values if not isinstance(x, FunctionType) or x.__module__ == function.__module__]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


@functools.lru_cache(maxsize=4096)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Names that the code, and functions written inside of it, may look up among globals."""
    nested = [name for const in code.co_consts if isinstance(const, CodeType) for name in _global_names(const)]
    return tuple(dict.fromkeys([*code.co_names, *nested]))


def _may_read(value: Any, reader: FunctionType) -> bool:
    if isinstance(value, FunctionType):
        return value.__module__ == reader.__module__
    return isinstance(value, MethodType | functools.partial) or bool(_attributes(value))


def _functions_in(value: Any) -> list[Any]:
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    return [value.func, *value.args, *value.keywords.values()] if isinstance(value, functools.partial) else []


def _attributes(value: Any) -> list[Read]:
    """Those of an object of the user's."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in _OURS or kind is functools.partial or isinstance(value, type):
        return []
    attributes = getattr(value, "__dict__", None)
    return [(attributes, name, held) for name, held in attributes.items()] if type(attributes) is dict else []
