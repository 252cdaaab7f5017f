"""Which classes are nodes of trees, in both views of them (`meshjit/trees.py`), and how users register their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from meshjit.core.keys import PRNGKeyArray
from meshjit.core.ref import Lent, Ref
from meshjit.runtime import _jaxlib


def keystr(keys: Iterable[Any], *, simple: bool = False, separator: str = "") -> str:
    """A path as a person writes it: `['layers'][0].weight`; simple with separator "/": `layers/0/weight`."""
    if not simple:
        return separator.join([str(key) for key in keys])
    return separator.join(str(next((getattr(k, a) for a in ("key", "idx", "name") if hasattr(k, a)), k)) for k in keys)


def register_node(nodetype: type, flatten_func: Any, unflatten_func: Any, flatten_with_keys_func: Any = None) -> None:
    """Make instances of a class nodes: flatten_func(x) -> (children, hashable aux), unflatten_func(aux, children) -> x.

    flatten_with_keys_func(x) -> ((key, child) pairs, aux) names the children in paths."""
    _jaxlib.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_node_with_keys(nodetype: type, flatten_with_keys: Any, unflatten_func: Any, flatten_func: Any = None) -> None:
    """`register_node` for classes that name their children."""

    def without_keys(x: Any) -> tuple[list[Any], Any]:
        pairs, aux = flatten_with_keys(x)
        return [child for _, child in pairs], aux

    register_node(nodetype, without_keys if flatten_func is None else flatten_func, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Any) -> Any:
    """A class decorator: the class has tree_flatten() and, a classmethod, tree_unflatten(aux, children)."""
    register_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: Any) -> Any:
    """A class decorator: the class has tree_flatten_with_keys() and, a classmethod, tree_unflatten(aux, children)."""
    plain = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_node_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, plain)
    return cls


def register_dataclass(
    nodetype: Any,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a node: data_fields are children, meta_fields (hashable) part of the structure. A decorator.

    What is left out is taken from the class: fields with metadata static=True are meta, the others data. drop_fields are
    neither: a tree that is put together again has their defaults. Of another class, whose fields are its attributes and
    keywords of its __init__, both must be given.  Source: jax.tree_util.register_dataclass."""
    if dataclasses.is_dataclass(nodetype):
        data_fields, meta_fields = _fields(nodetype, data_fields, meta_fields, drop_fields)
    elif data_fields is None or meta_fields is None:
        raise TypeError(f"register_dataclass: {nodetype.__name__} is no dataclass, so data_fields and meta_fields must be given")
    _jaxlib.register_dataclass(cast(type, nodetype), tuple(data_fields), tuple(meta_fields))
    return nodetype


def _fields(
    kind: Any, data: Sequence[str] | None, meta: Sequence[str] | None, dropped: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The data and the meta fields of a dataclass; ValueError if they are not all that its __init__ takes."""
    fields = [f for f in dataclasses.fields(kind) if f.init and f.name not in dropped]
    if data is None:
        statics = [f.name for f in fields if f.metadata.get("static", False)] if meta is None else meta
        data = [f.name for f in fields if f.name not in statics]
    if meta is None:
        meta = [f.name for f in fields if f.name not in data]
    missing = {f.name for f in fields} ^ {*data, *meta}
    if missing:
        raise ValueError(
            f"register_dataclass: data_fields {tuple(data)} and meta_fields {tuple(meta)} must be all fields"
            f" of {kind.__name__} that its __init__ takes; {sorted(missing)} differ"
        )
    return data, meta


def register_static(cls: Any) -> Any:
    """A class decorator: instances, which must be hashable, are part of the structure and have no leaves."""
    register_node(cls, lambda x: ((), x), lambda x, children: x)
    return cls


def static(**keywords: Any) -> Any:
    """`dataclasses.field` of a field that is part of the structure: `register_dataclass` makes it no child."""
    return dataclasses.field(metadata={**(keywords.pop("metadata", None) or {}), "static": True}, **keywords)


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A partial function that functools does not look into."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)


class Partial(functools.partial):  # pyright: ignore[reportMissingTypeArgument]
    """functools.partial as a node: its arguments are children, the function is part of the structure, whole if it is itself a
    partial one."""

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **keywords: Any) -> Partial:
        whole = _Whole(func) if isinstance(func, functools.partial) else func  # functools would merge the two
        return super().__new__(cls, whole, *args, **keywords)


register_node(
    Partial, lambda p: ((p.args, p.keywords), p.func), lambda func, children: Partial(func, *children[0], **children[1])
)

class _Nothing:
    """The step from an array of keys to its words, which paths do not mention."""

    def __str__(self) -> str:
        return ""


_jaxlib.register_words(
    PRNGKeyArray,
    lambda keys: ((keys.words,), keys.dtype),
    lambda dtype, children: PRNGKeyArray(dtype, *children),
    lambda keys: (((_Nothing(), keys.words),), keys.dtype),
)
# A Ref is a leaf of users' trees. Where arrays enter Programs it is part of the structure, as something that is closed over.
_jaxlib.register_words(Ref, lambda ref: ((), ref.handle), lambda handle, _: handle.ref(), lambda ref: ((), ref.handle))
register_node(
    Lent,
    lambda lent: ((lent.content,), (lent.weak, lent.keys)),
    lambda aux, children: Lent(*children, *aux),
    lambda lent: (((_Nothing(), lent.content),), (lent.weak, lent.keys)),
)
