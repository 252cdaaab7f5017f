"""custom_partitioning: a function that says how it is cut up (`jax.experimental.custom_partitioning`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshjit import numpy as mnp
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.tracebacks import boundary
from meshjit.core.program import Program
from meshjit.core.region import Rule
from meshjit.core.types import TensorType
from meshjit.lax.custom_rules import CustomCall, CustomFunction, Function, custom_call, positional, with_constants
from meshjit.lax.regions import apply
from meshjit.lax.sharding_rule import SdyShardingRule, factor_rule_of, parsed, whole_rule_of
from meshjit.numpy.promote import ops
from meshjit.trace import Tracer, argument_of, trace_to_program
from meshjit.trace.members import device_axes, device_axis_names
from meshjit.trace.names import function_name
from meshjit.trace.tracer import leaked
from meshjit.transform.pipeline import simplify
from meshjit.trees import WORDS as tree
from sharding.current import manual_mesh
from sharding.mesh import BaseMesh, current_mesh
from sharding.named import NamedSharding
from sharding.rule import FactorRule
from sharding.spec import Placement, padded, placement_of, spec_of

Placements = tuple[Placement, ...]


class custom_partitioning(CustomFunction):  # noqa: N801 - JAX's name
    """A function whose computation on shards is what `def_partition` says (`jax.experimental.custom_partitioning`).

        @custom_partitioning
        def f(x): ...

        def partition(mesh, arg_shapes, result_shape):
            return mesh, f_of_shards, result_shardings, arg_shardings

        f.def_partition(partition, sharding_rule="... n -> ... n", need_replication_factors=("n",))

    static_argnums: positions of arguments that reach the functions as they are, `partition` before the mesh. It has no
    derivatives and no batches of its own: custom_jvp, custom_vjp and custom_vmap around it say what they are.
    """

    what = "custom_partitioning"

    def __init__(self, fun: Function, static_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun)
        self.static_argnums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        self.partition: Callable[..., Any] | None = None
        self.propagate_user_sharding: Any = None
        self.infer_sharding_from_operands: Any = None
        self.sharding_rule: Any = None

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Any = None,
        propagate_user_sharding: Any = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """How the function is cut up; gives `partition` back.

        partition(mesh, arg_shapes, result_shape) -> (mesh, function of shards, shardings of the results, of the arguments):
        shapes are ShapeDtypeStructs with the shardings that the planner suggests; the answer may have others, and arrays are
        moved there. It may be asked several times. The function of shards may use collectives over the mesh's axes. Shards of
        extents that do not divide are of one size; what lies behind the end is unspecified.

        sharding_rule: a text such as "i j, j k -> i k", an SdyShardingRule, or a function of the mesh, the types of the operands
        and those of the results, that gives either, or a text and a dict of the settings below. The factors named in the settings
        are those of a text. infer_sharding_from_operands and propagate_user_sharding are JAX's way without a rule, and not asked.
        """
        self.partition = partition
        self.infer_sharding_from_operands, self.propagate_user_sharding = infer_sharding_from_operands, propagate_user_sharding
        settings = {
            "reduction_factors": reduction_factors,
            "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors,
            **factor_sizes,
        }
        is_text = not (sharding_rule is None or isinstance(sharding_rule, SdyShardingRule) or callable(sharding_rule))
        self.sharding_rule = parsed(sharding_rule, **settings) if is_text else sharding_rule
        return partition

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = positional(self.fun, args, kwargs, self.what)
        name = function_name(self.fun)
        if self.partition is None:
            raise AttributeError(f"custom_partitioning: nobody has said how {name} is cut up\n  fix: {name}.def_partition(...)")
        if self.sharding_rule is None and (self.infer_sharding_from_operands or self.propagate_user_sharding):
            raise NotImplementedError(
                f"custom_partitioning: {name} has functions that propagate shardings, and no sharding_rule\n"
                '  fix: def_partition(..., sharding_rule="i j -> i j"), of the factors of its dims'
            )
        static = tuple(args[i] for i in self.static_argnums)
        if any(isinstance(leaf, Tracer) for leaf in tree.leaves(static)):
            raise leaked(next(leaf for leaf in tree.leaves(static) if isinstance(leaf, Tracer)))
        call = custom_call(self.fun, args, self.static_argnums, [])
        if call is None:
            return tree.map(mnp.asarray, self.fun(*args))
        return self._results(_Cut(call, self.partition, static), self._rule(call, static))

    def _rule(self, call: CustomCall, static: tuple[Any, ...]) -> FactorRule:
        types, rule = call.types[len(call.closed) :], self.sharding_rule
        if callable(rule):
            answer = rule(*static, current_mesh(), types, [*call.out_types])
            text, settings = answer if isinstance(answer, list | tuple) and len(answer) == 2 else (answer, {})
            rule = parsed(text, **settings) if isinstance(text, str) else text
            if not isinstance(rule, SdyShardingRule):
                raise ValueError(
                    "sharding_rule callable must produce either an SdyShardingRule object or an Einsum-like notation string."
                )
        made = whole_rule_of(types, call.out_types) if rule is None else factor_rule_of(rule, types, call.out_types)
        closed = tuple(tuple(() for _ in argument_of(x).type.shape) for x in call.closed)
        return FactorRule((*closed, *made.operands), made.results, made.kinds, made.sizes)

    def _results(self, cut: _Cut, rule: FactorRule) -> Any:
        call = cut.call
        params = {
            "name": call.name,
            "rule": str(rule),
            "sizes": tuple(sorted(rule.sizes.items())),
            "closed": len(call.closed),
            "results": tuple(call.out_types),
            "call": Rule(call.name, cut.program),
        }
        op = ops("custom_partitioning")
        results = apply(op, call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
        return tree.unflatten(call.out_tree, results)


@dataclass(frozen=True)
class _Cut:
    """One call of the function: what the op's rule answers."""

    call: CustomCall
    partition: Callable[..., Any]
    static: tuple[Any, ...]

    def program(self, what: str, *question: Any) -> Any:
        return simplify(self.call.body) if what == "whole" else self.of_shards(*question)

    def of_shards(
        self, mesh: BaseMesh, manual: frozenset[str], operands: Placements, results: Placements
    ) -> tuple[Program, Placements, Placements]:
        call, structure = self.call, self.call.leaves.structure
        arguments = tree.unflatten(structure, _structs(call.leaves.types, operands, mesh))
        result = tree.unflatten(call.out_tree, _structs(call.out_types, results, mesh))
        answer = self.partition(*self.static, mesh, arguments, result)
        if not isinstance(answer, tuple | list) or len(answer) != 4:
            raise TypeError(
                f"custom_partitioning: partition of {call.name} must return (mesh, function of shards, shardings of the results,"
                f" shardings of the arguments), it returned {type(answer).__name__}"
            )
        _, of_shards, given, asked = answer
        given = self._placements(given, call.out_tree, call.out_types, mesh, "results")
        asked = self._placements(asked, structure, call.leaves.types, mesh, "arguments")
        return self._traced(of_shards, mesh, manual, asked, given), asked, given

    def _placements(self, shardings: Any, structure: Any, types: Sequence[TensorType], mesh: BaseMesh, what: str) -> Placements:
        where = f"custom_partitioning: partition of {self.call.name}: shardings of the {what}"
        shardings = tuple(shardings) if isinstance(shardings, list) and what == "arguments" else shardings
        flat = tree.flatten_prefix(shardings, structure, where, is_leaf=lambda x: isinstance(x, NamedSharding))
        for sharding in flat:
            if not isinstance(sharding, NamedSharding):
                raise ValueError(f"Custom Partitioning rules must return Sharding. {where} hold {sharding!r:.60}")
            if sharding.mesh.shape != mesh.shape:
                raise ValueError(f"{where} are on a mesh {dict(sharding.mesh.shape)}, the program is for {dict(mesh.shape)}")
        return tuple([placement_of(s.spec, t.rank) for s, t in zip(flat, types, strict=True)])

    def _traced(
        self, of_shards: Function, mesh: BaseMesh, manual: frozenset[str], asked: Placements, given: Placements
    ) -> Program:
        """The user's function of shards, as a Program for every device."""
        call, name = self.call, function_name(of_shards)
        shards = [
            replace(a, type=a.type.with_shape(p.local_shape(a.type.shape, mesh)), sharding=None)
            for a, p in zip(call.leaves.arguments, asked, strict=True)
        ]
        structure, axes = call.leaves.structure, [(n, size) for n, size in mesh.shape_tuple if n not in manual]
        with device_axes(axes, checked=False), manual_mesh(mesh, {*mesh.axis_names, *device_axis_names()}):
            traced = trace_to_program(
                lambda *values: of_shards(*tree.unflatten(structure, values)),
                shards, tree.structure(((0,) * len(shards), {})), name,
            )  # fmt: skip
        expected = [t.with_shape(p.local_shape(t.shape, mesh)) for t, p in zip(call.out_types, given, strict=True)]
        if [*traced.program.output_types] != expected:
            have, want = (", ".join(map(str, types)) for types in (traced.program.output_types, expected))
            raise ValueError(f"Mismatch in result shapes. {name} gives {have}; shards of the results of {call.name} are {want}")
        return with_constants(traced.program, traced.captured)


def _structs(types: Sequence[TensorType], placements: Placements, mesh: BaseMesh) -> list[ShapeDtypeStruct]:
    return [
        ShapeDtypeStruct(t.shape, t.dtype, sharding=NamedSharding(mesh, padded(spec_of(p), t.rank)))
        for t, p in zip(types, placements, strict=True)
    ]
