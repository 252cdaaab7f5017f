"""What Python's own protocols ask of an Array: a number, a length, elements one by one, a text. All by way of the host."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from meshjit.core.types import TensorType, is_integer
from meshjit.trace import line_of, user_source
from sharding.drawing import parts_html
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec, entry_axes, spec_text


def iteration_over(type: TensorType, origin: str = "") -> str:
    """Of the error where an array without dims is iterated over."""
    return (
        f"iteration over {type}, an array of 0 dims{origin}\n  at {line_of(user_source())}\n"
        "  fix: x.reshape(-1) has one element to iterate over; x.item() is the number, outside of traced functions"
    )


class ArrayValues:
    """Methods of `meshjit.runtime.array.Array` that need its elements or say what it is."""

    if TYPE_CHECKING:
        type: TensorType
        shape: tuple[int, ...]
        dtype: np.dtype[Any]
        ndim: int
        size: int
        weak_type: bool
        sharding: Sharding
        committed: bool
        device: Any
        is_fully_addressable: bool
        _is_readable: bool
        is_fully_replicated: bool

        def numpy(self) -> np.ndarray[Any, Any]: ...
        def is_deleted(self) -> bool: ...

    def item(self, *index: int) -> Any:
        """The only element, or the one at `index`, as a Python scalar."""
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The elements' bytes, as NumPy's."""
        return self.numpy().tobytes(order)  # pyright: ignore[reportArgumentType]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of {self.size} elements, {self.type}, is ambiguous\n"
                "  fix: use x.any() or x.all(); x.size > 0 asks whether there are elements"
            )
        return bool(self.numpy().item())

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if not is_integer(self.dtype):
            raise TypeError(f"only integer scalar arrays can be used as an index or size, got {self.type}")
        return int(self._scalar("index"))

    def _scalar(self, kind: str) -> Any:
        if self.shape:
            raise TypeError(f"{kind}() needs an array without dims, got {self.type}\n  fix: index it first, or use x.item()")
        return self.numpy().item()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self.type}, an array without dims")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """The elements along the first dim, all placed alike. They come from the host: one program for each would be slow."""
        if not self.shape:
            raise TypeError(iteration_over(self.type))
        whole = self._with_whole_rows()
        if whole is not self:
            return iter(whole)
        first = self[0] if self.shape[0] else None  # pyright: ignore[reportIndexIssue] - attached by numpy.methods
        if first is None or (type(first) is type(self) and self.is_fully_addressable):
            return self._rows(first)
        return (self[i] for i in range(self.shape[0]))  # pyright: ignore[reportIndexIssue] - traced, or shared by processes

    def _with_whole_rows(self) -> Any:
        """The array, with its first dim whole where its type says that it is sharded: `x[0]` would be an error there."""
        from meshjit.runtime.placing import move

        sharding: Any = self.sharding
        entry = sharding.spec[0] if isinstance(sharding, NamedSharding) and sharding.spec else None
        if not any(axis in sharding.mesh.explicit_axes for axis in entry_axes(entry)):
            return self
        return move(cast(Any, self), sharding.with_spec(PartitionSpec(None, *sharding.spec[1:])))

    def _rows(self, first: Any) -> Iterator[Any]:
        from meshjit.runtime.placing import place

        if first is not None:
            yield first
            for row in self.numpy()[1:]:
                yield place(np.asarray(row), first.sharding, committed=first.committed, weak=first.weak_type)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(list(self))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())  # pyright: ignore[reportAttributeAccessIssue] - attached by numpy.methods

    def __hash__(self) -> int:
        raise TypeError(
            "Arrays cannot be hashed: they have no identity beyond their elements; use id(x) or a tuple key"
        )

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(shape={self.shape}, dtype={self.dtype}, deleted)"
        weak = ", weak_type=True" if self.weak_type else ""
        if self._is_unreduced() or not self._is_readable:
            return f"Array(shape={self.shape}, dtype={self.dtype}{weak}{self._place_text()})"
        body = np.array2string(self.numpy(), separator=", ", prefix="Array(", threshold=1000)
        shape = f", shape={self.shape}" if self.size == 0 and self.shape != (0,) else ""
        return f"Array({body}{shape}, dtype={self.dtype}{weak}{self._place_text()})"

    def _repr_html_(self) -> str:
        """In a notebook: the values, and which device holds which part."""
        text = f"<pre>{escape(repr(self))}</pre>"
        if self.is_deleted() or not self.ndim or len(self.sharding.device_set) == 1:
            return text
        return text + parts_html(self.shape, self.sharding.devices_indices_map(self.shape))

    def _place_text(self) -> str:
        """Where it lies, if anybody chose the place: `, P("x") on Mesh('x': 4)`."""
        sharding = self.sharding
        if isinstance(sharding, NamedSharding):
            spec = repr(sharding.spec) if self._is_unreduced() else spec_text(sharding.spec)
            return f", {spec} on {sharding.mesh}"
        return f", on {self.device}" if self.committed else ""

    def _is_unreduced(self) -> bool:
        """Whether devices hold addends, and nobody the value."""
        return isinstance(self.sharding, NamedSharding) and bool(self.sharding.spec.unreduced)

    def __str__(self) -> str:
        if self.is_deleted() or self._is_unreduced() or not self._is_readable:
            return repr(self)
        return str(self.numpy())

    def __format__(self, spec: str) -> str:
        if not (spec or self.is_deleted() or self._is_readable):
            return repr(self)
        if spec and self.ndim:
            raise TypeError(
                f"the format {spec!r} is for one number, not for {self.type}\n"
                "  fix: format an element, f'{x[0]:.3f}', or np.array2string(np.asarray(x), precision=3)"
            )
        return format(self.numpy()[()] if self.ndim == 0 else self.numpy(), spec)
