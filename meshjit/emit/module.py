"""Local Program → the text of a StableHLO module, ready for jaxlib."""

from __future__ import annotations

import json
from collections.abc import Mapping

from meshjit.core.program import Program, Source, Var
from meshjit.emit.emitter import MANUAL, Emitter, tensor
from sharding.mesh import BaseMesh


def emit(program: Program, mesh: BaseMesh, aliases: Mapping[int, int] | None = None) -> str:
    """The module of one per-device program for `mesh.size` devices.

    `aliases`: input position → output position whose buffer it becomes (donation); their local types must agree.
    """
    aliases = aliases or {}
    emitter = Emitter(mesh)
    names: dict[Var, str] = {}
    arguments: list[str] = []
    for i, var in enumerate(program.inputs):
        names[var] = emitter.fresh(var.type)
        alias = f", tf.aliasing_output = {aliases[i]} : i32" if i in aliases else ""
        arguments.append(f"{names[var]}: {tensor(var.type)} {{{MANUAL}{alias}}}")
    body = emit_body(emitter, program, names)
    types = [tensor(v.type) for v in program.outputs]
    results = ", ".join(f"{t} {{{MANUAL}}}" for t in types)
    returned = f"func.return {', '.join(body)} : {', '.join(types)}" if body else "func.return"
    lines = "\n    ".join([*emitter.lines, returned])
    return (
        f"module @{_symbol(program.name)} attributes "
        f"{{mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32}} {{\n"
        f"  func.func public @main({', '.join(arguments)}) -> ({results}) {{\n    {lines}\n  }}\n}}\n"
    )


def emit_body(emitter: Emitter, program: Program, names: dict[Var, str]) -> list[str]:
    """Emit a Program's equations; `names` holds its inputs and grows. Gives the names of its outputs."""
    for eqn in program.eqns:
        emitter.location = _location(eqn.source)
        operands = [names[v] for v in eqn.inputs]
        results = eqn.op.emit(emitter, operands, eqn.input_types, eqn.output_types, eqn.params)
        names.update(zip(eqn.outputs, results, strict=True))
    return [names[v] for v in program.outputs]


def _location(source: Source | None) -> str:
    """XLA carries these into its profiles and error messages."""
    if source is None:
        return ""
    return f" loc({json.dumps(source.function)}({json.dumps(source.file)}:{source.line}:0))"


def _symbol(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in name) or "main"
