"""Shardy, which jaxlib ships: modules with `sdy` shardings, and its propagation as a second opinion.

Sources: openxla/shardy, docs/sharding_representation.md; its passes `sdy-user-priority-propagate`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir.dialects import sdy, stablehlo

PROPAGATION = "builtin.module(sdy-user-priority-propagate{debug-sharding-origins=true debug-propagation-edge-sharding=true})"


@functools.cache
def _context() -> Any:
    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    sdy.register_dialect(context)
    return context


@dataclasses.dataclass(frozen=True)
class Shown:
    """What is written on a value: its sharding, as `[{"data"}, {}]`; whether as a constraint behind it; per axis where it came
    from; and on the op that makes it, which has so many operands of its own, Shardy's propagation edges."""

    sharding: str | None
    is_constraint: bool = False
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    edges: str = ""
    operands: int = 0


def sharded_module(
    text: str, mesh: str, arguments: Sequence[Shown], values: Sequence[Shown], results: Sequence[tuple[int, str | None]]
) -> tuple[Any, list[int | None]]:
    """A module with `sdy` shardings on a mesh, as `["data"=4]`; and which op of the function, by its
    number, makes each value (None: one with other results, or none).

    `text` is StableHLO whose function returns `values`; `results` are what it is to return, and their shardings: numbers of
    values, or of arguments, counted from -1 downwards."""
    with _context():
        module = ir.Module.parse(text.replace("{\n", f"{{\n  sdy.mesh @mesh = <{mesh}>\n", 1))
        main = next(op for op in module.body.operations if op.operation.name == "func.func")
        block = main.regions[0].blocks[0]
        final = list(block.operations)[-1]
        operands = list(final.operands)
        for operand, shown in zip(operands, values, strict=True):
            if shown.sharding is not None and shown.is_constraint:
                _constrain(operand, shown.sharding)
            elif not isinstance(operand, ir.BlockArgument):
                _show(operand, shown)
        operands = list(final.operands)
        returned = [operands[i] if i >= 0 else block.arguments[-1 - i] for i, _ in results]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([_attributes(s) for s in arguments])
        main.attributes["res_attrs"] = ir.ArrayAttr.get([_attributes(Shown(s)) for _, s in results])
        types = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in returned])
        main.attributes["function_type"] = ir.TypeAttr.get(types)
        numbers = {op.operation: i for i, op in enumerate(block.operations)}
        owners = [_owner(operand, numbers) for operand in operands]
        final.operation.erase()
        with ir.InsertionPoint(block), ir.Location.unknown():
            ir.Operation.create("func.return", operands=returned)
        module.operation.verify()
        return module, owners


def _owner(value: Any, numbers: dict[Any, int]) -> int | None:
    if isinstance(value, ir.BlockArgument) or len(value.owner.results) != 1:
        return None
    return numbers[value.owner]


def _attributes(shown: Shown) -> Any:
    named = {} if shown.sharding is None else {"sdy.sharding": ir.Attribute.parse(f"#sdy.sharding<@mesh, {shown.sharding}>")}
    if shown.origins:
        named["sdy.sharding_origins"] = _origins(shown.origins)
    return ir.DictAttr.get(named)


def _origins(origins: Mapping[str, str]) -> Any:
    return ir.DictAttr.get({axis: ir.StringAttr.get(origin) for axis, origin in origins.items()})


def _show(value: Any, shown: Shown) -> None:
    """On the op that makes it; its other results stay open where nothing was said of them."""
    op, place = value.owner, ir.OpResult(value).result_number
    if shown.sharding is not None:
        old = str(op.attributes["sdy.sharding"]) if "sdy.sharding" in op.attributes else ""
        parts = re.findall(r"<@mesh, \[[^\]]*\][^>]*>", old) or [_open(result) for result in op.results]
        parts[place] = f"<@mesh, {shown.sharding}>"
        op.attributes["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join(parts)}]>")
    if shown.origins:
        old = list(op.attributes["sdy.sharding_origins"]) if "sdy.sharding_origins" in op.attributes else []
        every = old or [_origins({})] * len(op.results)
        every[place] = _origins(shown.origins)
        op.attributes["sdy.sharding_origins"] = ir.ArrayAttr.get(every)
    if shown.edges and len(op.operands) >= shown.operands:
        op.attributes["sdy.propagation_edges"] = ir.Attribute.parse(f"#sdy.propagation_edges<{shown.edges}>")


def _constrain(value: Any, sharding: str) -> None:
    """All that reads the value reads it under a constraint."""
    attributes = {"sharding": ir.Attribute.parse(f"#sdy.sharding<@mesh, {sharding}>")}
    is_argument = isinstance(value, ir.BlockArgument)
    place = ir.InsertionPoint.at_block_begin(value.owner) if is_argument else ir.InsertionPoint.after(value.owner)
    with place, ir.Location.unknown():
        constraint = ir.Operation.create("sdy.sharding_constraint", [value.type], [value], attributes)
    value.replace_all_uses_except(constraint.results[0], constraint)


def _open(result: Any) -> str:
    return f"<@mesh, [{', '.join(['{?}'] * ir.RankedTensorType(result.type).rank)}]>"


def propagated(module: Any) -> list[tuple[str, str, str]]:
    """Let Shardy place what is open. For every argument, and for the results of every op of the function in order: the
    sharding, where each axis came from, and the steps that it took there, as the attributes' texts ("" where there is none)."""
    with _context():
        passmanager.PassManager.parse(PROPAGATION).run(module.operation)
        main = next(op for op in module.body.operations if op.operation.name == "func.func")
        rows = [_texts(attributes) for attributes in main.attributes["arg_attrs"]]
        return rows + [_texts(op.attributes) for op in main.regions[0].blocks[0].operations]


def _texts(attributes: Any) -> tuple[str, str, str]:
    names = ("sdy.sharding", "sdy.sharding_origins", "sdy.propagation_edges")
    sharding, origins, edges = (str(attributes[name]) if name in attributes else "" for name in names)
    return sharding, origins, edges


def module_text(module: Any) -> str:
    with _context():
        return str(module)


def parsed_module(text: str) -> Any:
    """A module of StableHLO and `sdy`, verified; jaxlib's MLIRError says what is wrong."""
    with _context():
        return ir.Module.parse(text)
