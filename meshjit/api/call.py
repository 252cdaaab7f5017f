"""What one call (or one `lower`) asks for, and what every stage can tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.api.axes import Symbols
from meshjit.api.captured import CapturedNames
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.shardings import cut
from meshjit.core.program import Source
from meshjit.core.types import TensorType
from meshjit.plan.automatic.limits import Limits
from meshjit.runtime.array import LeafKey
from meshjit.trace import Traced as TracedProgram
from meshjit.trace.explicit import without_devices
from meshjit.trace.types import ShapedArray
from meshjit.tree_views import about_leaves, key_types, users_treedef
from sharding.mesh import BaseMesh


@dataclass(frozen=True)
class Context:
    """What a traced function depends on besides its arguments."""

    mesh: Any
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Automatic:
    """A search for the best plan. `meshes`: the mesh of the call, or several among which one is chosen; none where the mesh is
    that of shardings or of the context."""

    limits: Limits = Limits()
    meshes: tuple[BaseMesh, ...] = ()

    @property
    def mesh(self) -> BaseMesh | None:
        """The only one."""
        return self.meshes[0] if len(self.meshes) == 1 else None


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
    automatic: Automatic | None = None  # where the compiler places what nobody placed
    device: Any = None
    options: Mapping[str, Any] | None = None
    statics: Sequence[tuple[str, Any]] = ()  # (name, value)
    context: Context | None = None
    source: Source | None = None  # where jit was called
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
    """Type of one argument, and whether it is donated (`jax.stages.ArgInfo`)."""

    _aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """NumPy's, or that of keys."""
        return self._aval.dtype


def infos_of(treedef: Any, leaves: Sequence[tuple[TensorType, bool, Any]]) -> list[ShapeDtypeStruct]:
    """What users see of arrays of these types, weak flags and shardings: keys, where they are the words of keys."""
    kinds = zip(leaves, key_types(treedef), strict=True)
    return [
        ShapeDtypeStruct(t.shape, t.dtype, s, w) if dtype is None else ShapeDtypeStruct(t.shape[:-1], dtype, cut(s, t.rank - 1))
        for (t, w, s), dtype in kinds
    ]


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
        return users_treedef(self.call.in_tree)

    @property
    def out_tree(self) -> Any:
        return users_treedef(self.traced_program.out_tree)

    @property
    def args_info(self) -> Any:
        """An ArgInfo per argument."""
        avals = [ShapedArray(i.shape, i.dtype, i.weak_type) for i in self._in_info()]
        infos = [ArgInfo(aval, donated) for aval, donated in zip(avals, self.call.donated, strict=True)]
        return about_leaves(self.call.in_tree, infos)

    @property
    def in_avals(self) -> Any:
        """A ShapedArray per argument."""
        return about_leaves(self.call.in_tree, [ShapedArray(i.shape, i.dtype, i.weak_type) for i in self._in_info()])

    def _in_info(self) -> list[ShapeDtypeStruct]:
        return infos_of(self.call.in_tree, [(k.type, k.weak, None) for k in self.call.keys])

    @property
    def out_info(self) -> Any:
        """A ShapeDtypeStruct per result, with the sharding of its type in explicit axes; compiled functions know it in any."""
        return about_leaves(self.traced_program.out_tree, self._out_info())

    out_avals = out_info

    def _out_info(self, shardings: Sequence[Any] | None = None) -> list[ShapeDtypeStruct]:
        results = self.traced_program.out_arguments
        places = [without_devices(r.sharding) for r in results] if shardings is None else shardings
        return infos_of(self.traced_program.out_tree, [(r.type, r.weak, s) for r, s in zip(results, places, strict=True)])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the donated leaves."""
        return tuple(i for i, donated in enumerate(self.call.donated) if donated)
