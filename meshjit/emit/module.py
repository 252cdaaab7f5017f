"""Local Program → the text of a StableHLO module, ready for jaxlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from meshjit.core.effects import is_ordered
from meshjit.core.host import host_calls
from meshjit.core.program import Program, Source, Var
from meshjit.core.region import run_programs
from meshjit.core.target import Target
from meshjit.emit.emitter import TOKEN, TWO_BITS, Emitter, tensor
from meshjit.targets import target_of
from sharding.memory import DEVICE
from sharding.mesh import BaseMesh


def emit(
    program: Program,
    mesh: BaseMesh,
    aliases: Mapping[int, int] | None = None,
    target: Target | None = None,
    leading: int = 0,
    memories: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> str:
    """The module of one per-device program for `mesh.size` devices.

    To XLA the devices are replicas, not partitions, so its partitioner does not run and no value needs a sharding. As
    partitions, every value would have to be marked `manual`; XLA drops the mark where it expands an op (erf, top_k), and
    then aborts the process (docs/xla.md, expanded_beside_branch).

    `aliases`: input position → output position whose buffer it becomes (donation); their local types must agree.
    `target`: the machine that the text is for; by default that of the mesh's devices, without kernels, so that the text is
    legal on all platforms.
    `memories`: those of the inputs and of the outputs, where some are not the devices' own.
    The last `leading` inputs are the first parameters of the module. Before them, and before the results, stands the token of a
    Program with ordered effects. Functions of the host's are numbered as `host_calls(program)` has them.
    """
    ordered = is_ordered(program)
    aliases = {i: o + ordered for i, o in (aliases or {}).items()}
    emitter = Emitter(mesh, target or target_of(mesh))
    emitter.hosts.update({call: i for i, call in enumerate(host_calls(program))})
    names: list[str] = []
    arguments: list[str] = []
    for i, var in enumerate(program.inputs):
        names.append(emitter.fresh(var.type))
        marks = [f"tf.aliasing_output = {aliases[i]} : i32"] if i in aliases else []
        arguments.append(f"{names[-1]}: {tensor(var.type)}{_marked(memories[0], i, marks)}")
    arguments = arguments[len(arguments) - leading :] + arguments[: len(arguments) - leading]
    if ordered:
        emitter.token = emitter.fresh(TOKEN)
        arguments.insert(0, f"{emitter.token}: {tensor(TOKEN)}")
    body = emitter.program(program, names)
    if emitter.target.lacks_two_bits and any(type.dtype in TWO_BITS for type in emitter.types.values()):
        _refuse_two_bits(program)
    types = [tensor(v.type) for v in program.outputs]
    if ordered:
        body, types = [emitter.token, *body], [tensor(TOKEN), *types]
    marks = [""] * ordered + [_marked(memories[1], i) for i in range(len(program.outputs))]
    results = ", ".join(type + mark for type, mark in zip(types, marks, strict=True))
    returned = f"func.return {', '.join(body)} : {', '.join(types)}" if body else "func.return"
    lines = "\n    ".join([*emitter.lines, returned])
    functions = "".join(emitter.functions.values())
    return (
        f"{emitter.declarations}module @jit_{_symbol(program.name)} attributes "
        f"{{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {mesh.size} : i32}} {{\n"
        f"  func.func public @main({', '.join(arguments)}) -> ({results}) {{\n    {lines}\n  }}\n{functions}}}\n"
    )


def _refuse_two_bits(program: Program) -> NoReturn:
    """Name the first value that has them, with the line that made it."""
    kind, source = next((var.type, source) for var, source in _values(program) if var.dtype in TWO_BITS)
    at = f" at {source.file}:{source.line}" if source is not None else ""
    raise NotImplementedError(
        f"{program.name}: {kind}{at}: XLA computes elements of 2 bits wrongly on GPUs\n"
        "  fix: x.astype('int8') on devices('cpu') first, and int8 on the GPU"
    )


def _values(program: Program) -> Iterator[tuple[Var, Source | None]]:
    """All that a Program and those in it compute, each with its line, after what they are given."""
    yield from ((var, None) for var in program.inputs)
    for eqn in program.eqns:
        yield from ((var, eqn.source) for var in eqn.outputs)
        yield from (value for inner in run_programs(eqn) for value in _values(inner))


def _marked(memories: Sequence[str], i: int, marks: Sequence[str] = ()) -> str:
    """The attributes of an argument or result."""
    marks = [*marks, f'mhlo.memory_kind = "{memories[i]}"'] if memories and memories[i] != DEVICE else marks
    return f" {{{', '.join(marks)}}}" if marks else ""


def _symbol(name: str) -> str:
    return "".join(c if (c.isascii() and c.isalnum()) or c in "_.-" else "_" for c in name) or "main"
