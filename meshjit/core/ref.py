"""Ref: an array that is changed in place, as the user sees it. What it holds at any place of a traced function is a value of the
Program like any other (`meshjit/trace/refs.py`): neither a pass nor the runtime knows of refs."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from meshjit.core.keys import KeyType
from meshjit.core.types import TensorType


class Handle:
    """What structures hold of a Ref: they are kept in caches, which must not keep its array. Equal to itself alone."""

    __slots__ = ("ref", "__weakref__")

    def __init__(self, ref: Ref) -> None:
        self.ref = weakref.ref(ref)


class Ref:
    """A reference to an array that may be changed in place (`jax.Ref`); `new_ref` makes one.

    `r[...]` is the array as it is now, `r[i]` a part of it; `r[i] = v` and `r[i] += v` change it. Arrays that were read before
    stay as they are, and what is written is brought to where the Ref was placed. Functions may close over a Ref or take it as an
    argument: the caller sees what they wrote.

    `home`: the Trace in which it was made, None outside of all; `content`: what it holds there now. Of keys the content is their
    words, and `keys` their dtype.

    A slot is a Ref that no user sees (`lax/written_back.py`): it belongs to the Ref `of`, and `mode` is how that is written,
    "add" or "set"."""

    __slots__ = (
        "type", "weak", "keys", "home", "content", "written", "freed", "source", "handle", "of", "mode", "__weakref__",
    )  # fmt: skip
    made = False  # whether there ever was one: who asks whether a tree has any, asks this first

    def __init__(self, type: TensorType, weak: bool, keys: KeyType | None, home: Any, content: Any, source: Any) -> None:
        self.type, self.weak, self.keys, self.home, self.content, self.source = type, weak, keys, home, content, source
        self.written, self.freed = False, ""
        self.of: Ref | None = None
        self.mode = ""
        self.handle = Handle(self)
        Ref.made = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape if self.keys is None else self.type.shape[:-1]

    @property
    def dtype(self) -> Any:
        return self.type.dtype if self.keys is None else self.keys

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self.type.size if self.keys is None else self.type.size // self.keys.words

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object: a Ref of a scalar")
        return self.shape[0]

    def __copy__(self) -> Ref:
        """Itself: what is copied is the array, by `r[...]`."""
        return self

    def __deepcopy__(self, memo: Any) -> Ref:
        return self


def slot_of(ref: Ref) -> Ref:
    """A slot; its content is zeros, of one element however large."""
    zeros = np.broadcast_to(np.zeros((), ref.type.dtype), ref.type.shape)
    slot = Ref(ref.type, False, None, None, zeros, ref.source)
    slot.of = ref
    return slot


class Lent:
    """Stands among arguments for a Ref whose content is an argument of its own: where functions are kept per kind of Ref."""

    __slots__ = ("content", "weak", "keys")

    def __init__(self, content: Any, weak: bool, keys: KeyType | None) -> None:
        self.content, self.weak, self.keys = content, weak, keys
