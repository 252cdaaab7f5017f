"""What one call (or one `lower`) asks for, and what every stage can tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.api.axes import Symbols
from meshjit.api.captured import CapturedNames
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.runtime.array import LeafKey
from meshjit.trace import Traced as TracedProgram


@dataclass(frozen=True)
class Context:
    """What a traced function depends on besides its arguments."""

    mesh: Any
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """The leaves' keys, their names (`params['w1']`), and what the user said about placement."""

    title: str
    names: Sequence[str]
    keys: Sequence[LeafKey]
    in_tree: Any
    in_shardings: Any  # pytree prefix of the positional arguments, or UNSPECIFIED
    out_shardings: Any
    donated: Sequence[bool]
    keep_unused: bool = False
    device: Any = None
    options: Mapping[str, Any] | None = None
    statics: Sequence[tuple[str, Any]] = ()  # (name, value)
    context: Context | None = None
    symbols: Sequence[Symbols] = ()  # of abstracted_axes: per leaf; () where there are none

    captured: CapturedNames | Sequence[str] = ()  # names of the arrays that the function closed over

    def input_name(self, i: int) -> str:
        """`params['w1']`, or `captured array w`."""
        return self.names[i] if i < len(self.names) else f"captured array {self.captured[i - len(self.names)]}"

    def titled_name(self, i: int) -> str:
        """`argument params['w1']`, or `captured array w`."""
        return f"argument {self.names[i]}" if i < len(self.names) else self.input_name(i)


@dataclass(frozen=True)
class ArgInfo:
    """Shape and dtype of one argument, and whether it is donated (`jax.stages.ArgInfo`)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    donated: bool


class Stage:
    """What every stage from Traced on knows of its arguments and results. Trees are those of `(args, kwargs)`."""

    call: Call
    traced_program: TracedProgram

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {key.type}" for name, key in zip(self.call.names, self.call.keys, strict=True))
        return f"<{type(self).__name__} {self.call.title} of ({types})>"

    @property
    def fun_name(self) -> str:
        return self.traced_program.program.name

    @property
    def in_tree(self) -> Any:
        """The structure of `(args, kwargs)` without static arguments."""
        return self.call.in_tree

    @property
    def out_tree(self) -> Any:
        return self.traced_program.out_tree

    @property
    def args_info(self) -> Any:
        """An ArgInfo per argument."""
        pairs = zip(self.call.keys, self.call.donated, strict=True)
        return tree.unflatten(self.in_tree, [ArgInfo(k.type.shape, k.type.dtype, d) for k, d in pairs])

    @property
    def in_avals(self) -> Any:
        """A ShapeDtypeStruct per argument."""
        return tree.unflatten(
            self.in_tree, [ShapeDtypeStruct(k.type.shape, k.type.dtype, weak_type=k.weak) for k in self.call.keys]
        )

    @property
    def out_info(self) -> Any:
        """A ShapeDtypeStruct per result; compiled functions know its sharding, too."""
        return tree.unflatten(self.out_tree, self._out_info())

    out_avals = out_info

    def _out_info(self) -> list[ShapeDtypeStruct]:
        results = self.traced_program.out_arguments
        return [ShapeDtypeStruct(r.type.shape, r.type.dtype, weak_type=r.weak) for r in results]

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the donated leaves."""
        return tuple(i for i, donated in enumerate(self.call.donated) if donated)
