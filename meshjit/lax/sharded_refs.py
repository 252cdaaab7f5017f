"""Refs among the arguments of a shard_map: the function has Refs of their shards, and what it writes there is in the whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.ref import Lent, Ref
from meshjit.trace.refs import borrowed, check_distinct, lend, refs_in, store, type_of_ref
from meshjit.trees import USERS
from sharding.spec import PartitionSpec

Function = Callable[..., Any]


def has_sharded_refs(args: tuple[Any, ...]) -> bool:
    return Ref.made and bool(refs_in(args))


def with_shards_of_refs(f: Function, args: tuple[Any, ...]) -> tuple[Function, tuple[Any, ...]]:
    """The function and its arguments with contents in place of Refs; it gives the contents of their shards beside its value."""
    check_distinct("shard_map", (args, {}))

    @functools.wraps(f)
    def of_shards(*args: Any) -> Any:
        args, shards = borrowed(args)
        value = f(*args)
        return {"refs": [shard.content for shard in shards], "value": value}

    return of_shards, lend(args)


def specs_of_refs(lent: tuple[Any, ...], specs: Sequence[PartitionSpec | None]) -> list[PartitionSpec]:
    """Those of the Refs among `specs`, one per leaf; TypeError where one is None."""
    leaves = USERS.leaves(lent, lambda x: isinstance(x, Lent))
    of_refs = [(x, spec) for x, spec in zip(leaves, specs, strict=True) if isinstance(x, Lent)]
    for _, spec in of_refs:
        if spec is None:
            raise TypeError(
                "shard_map: in_specs are None for a Ref, whose shards the function changes\n"
                "  fix: P(...) as the Ref is to be cut, P() for all of it; or a function that closes over it and only reads it"
            )
    return [spec for _, spec in of_refs if spec is not None]


def store_shards(args: tuple[Any, ...], contents: Sequence[Any]) -> None:
    for ref, content in zip(refs_in(args), contents, strict=True):
        assert content.shape == ref.type.shape, type_of_ref(ref)
        store(ref, content)
