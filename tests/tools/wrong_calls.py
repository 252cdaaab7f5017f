"""Wrong calls of jit and its kin, by parameter: what people write, and what they are told. docs/errors.md is made of it.

    python -m tests.tools.wrong_calls      writes docs/errors.md anew

Each entry is a line of Python, to be read with the names below, and the whole text of its error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"

# What the lines may use; `x` is f32[8,4], `params` {"w1": f32[10,4]}.
SETUP = """\
import numpy as np
import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

mesh = Mesh(np.array(mj.devices()[:8]).reshape(4, 2), ("data", "model"))
small = Mesh(np.array(mj.devices()[:4]), ("data",))
x = np.ones((8, 4), np.float32)
params = {"w1": np.ones((10, 4), np.float32)}
rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "data"))

def f(x, n=2): return x * n
def use(params): return params
"""

CALLS: dict[str, list[str]] = {
    "fun": [
        "mj.jit(3)",
        "mj.jit(f(x))",
        "mj.jit(lambda x: {'name': 'adam', 'x': x})(x)",
        "mj.jit(use)({'w1': 'adam'})",
        "mj.jit(use)(np.array(['a']))",
        "mj.jit(use)(mj.ShapeDtypeStruct((8,), np.float32))",
        "mj.jit(f)(2**40)",
    ],
    "in_shardings": [
        "mj.jit(use, in_shardings=P('modle'))(params)  # with mesh",
        "mj.jit(use, in_shardings=P('model', 'model'))(params)  # with mesh",
        "mj.jit(use, in_shardings=P('data', None, 'model'))(params)  # with mesh",
        "mj.jit(use, in_shardings=P('data'))(params)",
        "mj.jit(use, in_shardings='data')",
        "mj.jit(use, in_shardings=mesh)",
        "mj.jit(use, in_shardings=mj.devices()[0])",
        "mj.jit(f, in_shardings=(rows, rows))(x)",
        "mj.jit(use, in_shardings=({'w2': rows},))(params)",
        "mj.jit(use, in_shardings={'w1': rows})(params)",
        "mj.jit(f, in_shardings=rows)(x=x)",
        "mj.jit(use, in_shardings=columns)({'w1': mj.device_put(params['w1'], rows)})",
        "mj.jit(f, in_shardings=(rows, NamedSharding(small, P('data'))))(x, x)",
    ],
    "arguments on several meshes": [
        "mj.jit(f)(mj.device_put(x, rows), mj.device_put(x, NamedSharding(small, P('data'))))",
        "mj.jit(f)(mj.device_put(x, mj.devices()[1]), mj.device_put(x, mj.devices()[2]))",
        "mj.jit(lambda x: mj.lax.with_sharding_constraint(x, rows))(mj.device_put(x, mj.devices()[1]))",
    ],
    "out_shardings": [
        "mj.jit(use, out_shardings=P('modle'))(params)  # with mesh",
        "mj.jit(use, out_shardings={'w1': 'data'})",
        "mj.jit(use, out_shardings={'w1': [rows]})(params)",
        "mj.jit(f, out_shardings=SingleDeviceSharding(mj.devices()[1]))(mj.device_put(x, rows))",
    ],
    "static_argnums, static_argnames": [
        "mj.jit(f, static_argnums=1)(x, [2])",
        "mj.jit(f, static_argnums=1)(x, np.ones(2))",
        "mj.jit(f, static_argnums=2)",
        "mj.jit(f, static_argnums='n')",
        "mj.jit(f, static_argnames='m')",
        "mj.jit(f, static_argnames=1)",
        "mj.jit(lambda n: mj.jit(f, static_argnames='n')(x, n))(3)",
        "mj.jit(f)(x, n='two')",
    ],
    "donate_argnums, donate_argnames": [
        "mj.jit(f, donate_argnums=2)",
        "mj.jit(f, donate_argnames='m')",
        "mj.jit(f, static_argnums=1, donate_argnames='n')",
        "y = mj.device_put(x, rows); mj.jit(f, donate_argnums=0)(y); y + 1",
        "y = mj.device_put(x, rows); mj.jit(f, donate_argnums=0)(y); mj.jit(use)({'w1': y})",
        "y = mj.device_put(x, rows); mj.jit(lambda a, b: (a + b, b), donate_argnums=(0, 1))(y, y)",
    ],
    "device, backend": [
        "mj.jit(f, device='cpu')",
        "mj.jit(f, device=mj.devices()[0], backend='cpu')",
        "mj.jit(f, device=mj.devices()[0], in_shardings=rows)",
        "mj.jit(f, backend='abacus')",
    ],
    "abstracted_axes": [
        "mj.jit(f, abstracted_axes=3)",
        "mj.jit(f, abstracted_axes=({2: 'batch'}, None))(x, 2)",
        "mj.jit(f, abstracted_axes=({0: 'batch'}, {0: 'batch'}))(x, np.ones(4, np.float32))",
    ],
    "compiler_options": [
        "mj.jit(f, compiler_options=3)",
        "mj.jit(f, compiler_options={'xla_nope': True})(x)",
        "mj.jit(f, compiler_options={'xla_embed_ir_in_executable': 'maybe'})(x)",
        "mj.jit(mj.jit(f, compiler_options={'xla_embed_ir_in_executable': True}))(x)",
    ],
    "values that are traced": [
        "mj.jit(lambda n: 1 if n > 0 else 2)(3)",
        "mj.jit(lambda n: list(range(n)))(3)",
        "mj.jit(lambda n: float(n))(3)",
        "mj.jit(lambda n: np.asarray(n))(3.0)",
        "mj.jit(lambda n: np.isnat(n))(3.0)",
        "mj.grad(lambda n: n * float(n))(3.0)",
        "kept = []; mj.jit(lambda n: kept.append(n * 2))(3); kept[0] + 1",
    ],
    "with_sharding_constraint, reshard": [
        "mj.jit(lambda p: mj.lax.with_sharding_constraint(p, P('modle')))(params)  # with mesh",
        "mj.lax.with_sharding_constraint(params, P('data'))",
        "mj.lax.with_sharding_constraint(params, 'data')",
        "mj.reshard(params, NamedSharding(mesh, P('data', None, 'model')))",
        "mj.jit(lambda x: mj.reshard(mj.reshard(x, rows), NamedSharding(small, P())))(x)",
    ],
    "stages": [
        "mj.jit(use).lower(params).compile()({'w1': x})",
        "mj.jit(use).lower(params).compile()({'w2': x})",
        "mj.jit(use).lower(params).compile()({'w1': mj.device_put(params['w1'], rows)})",
        "mj.jit(f, static_argnums=1).lower(x, 3).compile()(x, 3)",
        "c = mj.jit(f).lower(x).compile(); mj.jit(lambda x: c(x))(x)",
        "mj.jit(f).lower(x).as_text('mlir')",
        "mj.jit(f).trace(x).lower(lowering_platforms=('tpu',)).compile()",
        "mj.jit(f).lower(mj.ShapeDtypeStruct((8,), np.float32, NamedSharding(AbstractMesh((4,), ('data',)), P('data')))).compile()",
    ],
    "device_put, make_array_from_...": [
        "mj.device_put(x, 'cpu')",
        "mj.device_put(params, P('data'))",
        "mj.device_put(params, {'w2': rows})",
        "mj.device_put(params, NamedSharding(mesh, P('data', None, 'model')))",
        "mj.device_put({'w1': 'adam'}, rows)",
        "mj.device_put(params, rows, donate={'w2': True})",
        "mj.device_put(params, rows, donate=True, may_alias=True)",
        "mj.make_array_from_callback((8, 4), P('data'), lambda index: x[index])",
        "mj.make_array_from_callback((8, 4), rows, x)",
        "mj.make_array_from_callback((8, 4), rows, lambda index: x)",
        "mj.make_array_from_single_device_arrays((8, 4), rows, [x] * 8)",
        "mj.make_array_from_single_device_arrays((8, 4), rows, [mj.device_put(x[:2], d) for d in mj.devices()[:4]])",
        "mj.make_array_from_process_local_data(rows, x, (16, 4))",
        "mj.ShapeDtypeStruct((8, 4), np.float32, sharding='data')",
    ],
    "vmap and its axis": [
        "mj.vmap(f, in_axes=(0,))(x, x)",
        "mj.vmap(use, in_axes=2)(params)",
        "mj.vmap(f)(x, np.ones(3, np.float32))",
        "mj.vmap(f, in_axes=None)(x)",
        "mj.vmap(lambda a: a, out_axes=None)(x)",
        "mj.vmap(lambda a: mj.lax.psum(a, 'i'))(x)",
        "mj.jit(lambda a: mj.lax.psum(a, 'data'))(x)  # with mesh",
        "mj.vmap(lambda a: mj.lax.all_to_all(a, 'i', 0, 0), axis_name='i')(x)",
        "mj.vmap(lambda a: mj.lax.ppermute(a, 'i', [(0, 1), (2, 1)]), axis_name='i')(x)",
        "mj.vmap(lambda a: mj.lax.with_sharding_constraint(a, NamedSharding(mesh, P('data'))), spmd_axis_name='data')(x)",
    ],
    "shard_map": [
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: a * 2, mesh=mesh, in_specs=P('data', 'model'), out_specs=P('data'))(x)",
        "mj.shard_map(lambda a: a.sum(), mesh=mesh, in_specs=P('data'), out_specs=P('data'))(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs=P(None, ('data', 'model')), out_specs=P())(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs=P('data', None, 'model'), out_specs=P())(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs='data', out_specs=P())(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs=P('stage'), out_specs=P())(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs=P('model'), out_specs=P(), axis_names={'data'})(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, in_specs={'a': P()}, out_specs=P())(x)",
        "mj.shard_map(lambda a: a, in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: a, mesh=mesh, out_specs=P())(x)",
        "mj.shard_map(lambda a: mj.lax.psum(a, ('data', 'model')), mesh=mesh, in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: mj.lax.psum(a, 'stage'), mesh=mesh, in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: mj.lax.pcast(a, 'data', to='varying'), mesh=mesh, in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: mj.lax.psum_scatter(a, 'data', scatter_dimension=0), mesh=mesh, in_specs=P(), out_specs=P('data'))(x)",
        "mj.shard_map(lambda a: mj.lax.scan(lambda c, _: (c + a.sum(), None), 0.0, None, length=3)[0], mesh=mesh,"
        " in_specs=P('data'), out_specs=P())(x)",
        "mj.shard_map(lambda a: mj.lax.cond(True, lambda: a, lambda: mnp.zeros((2, 4))), mesh=mesh, in_specs=P('data'), out_specs=P())(x)",
    ],
    "shapes, axes and dtypes": [
        "mj.jit(lambda n: mnp.zeros(n))(3)",
        "mnp.zeros((3.0,))",
        "mnp.zeros((-1, 3))",
        "mnp.zeros(3, 4)",
        "mj.random.normal(mj.random.key(0), 3, 4)",
        "mnp.asarray(x).reshape(3, 5)",
        "mnp.sum(x, axis=1.0)",
        "mnp.sum(x, axis=2)",
        "mj.lax.conv(x, x, (1, 1), 'SAME')",
    ],
    "loops and branches": [
        "mj.lax.scan(lambda c, row: c, 0.0, x)",
        "mj.lax.fori_loop(0, 3.5, lambda i, c: c, 0.0)",
        "mj.lax.cond(True, lambda a: a, lambda a: a + 1)",
    ],
    "derivatives": [
        "mj.grad(lambda p: p['w1'].sum())({'w1': x, 'name': 'adam'})",
        "mj.grad(lambda p: p['w1'].sum())({'w1': x, 'step': 3})",
        "mj.grad(lambda a: a.sum(), has_aux=True)(x)",
        "mj.grad(lambda a: a * 2)(x)",
        "mj.checkpoint(lambda a, mode: a)(x, 'train')",
    ],
    "names": [
        "mj.numpy.int1",
        "from meshjit.experimental import control_deps",
        "mj.devicse",
    ],
    "arrays": [
        "y = mnp.asarray(x); y[0] = 1",
        "y = mnp.asarray(x); y.dtype = np.int32",
        "mnp.asarray(x).at[0] + 1",
        "mnp.asarray(x).at[0].plus(1)",
        "f'{mnp.asarray(x):.3f}'",
        "mj.jit(lambda a: f'{a:.3f}')(1.0)",
        "list(mnp.sum(x))",
        "mj.random.key(0) + 1",
        "bool(mnp.asarray(x))",
        "hash(mnp.asarray(x))",
        "float(mnp.asarray(x))",
        "mnp.asarray(x).item()",
        "mnp.ones(3, 'float16').view('float32')",
        "mnp.sum(x, out=x)",
        "mnp.asarray(np.ma.masked_array([1, 2], [False, True]))",
        "mj.Array([1, 2])",
        "mnp.asarray(x) + mnp.ones(3)",
        "mnp.zeros((2, 3)) @ mnp.zeros((2, 3))",
        "mj.jit(lambda a: a.addressable_shards)(x)",
        "mj.jit(lambda a: mnp.arange(a.sum()))(x)",
    ],
    "config": [
        "mj.config.update('enable_x32', True)",
        "mj.config.update('debug_nans', 'maybe')",
        "mj.config.debug_nans = True",
    ],
}


def said(line: str) -> str:
    """`TypeError: …`, what running the line says; it is run as a file of its own so that lines are line 1."""
    scope: dict[str, Any] = {}
    exec(compile(SETUP, "setup.py", "exec"), scope)
    call, _, note = line.partition("  # ")
    *statements, last = call.split("; ")
    try:
        with scope["mesh"] if note == "with mesh" else _nothing():
            for statement in statements:
                exec(compile(statement, "train.py", "exec"), scope)
            exec(compile(last, "train.py", "exec"), scope)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"nothing was raised by {line}")


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def page() -> str:
    parts = [
        "# Wrong calls and what they say\n",
        "Made by `python -m tests.tools.wrong_calls`; a test holds every text to what is raised. An error says where (the argument's path,"
        " the line), what was found and what was expected, and a fix. The lines below are run after\n",
        f"```python\n{SETUP}```\n",
    ]
    for parameter, lines in CALLS.items():
        parts.append(f"## {parameter}\n")
        parts += [entry(line) for line in lines]
    parts.append(INSIDE)
    return "\n".join(parts)


def entry(line: str) -> str:
    return f"```python\n{_shown(line)}\n```\n```\n{said(line)}\n```\n"


def _shown(line: str) -> str:
    call, _, note = line.partition("  # ")
    statements = call.replace("; ", "\n")
    return f"with mesh:\n    {statements}" if note == "with mesh" else statements


INSIDE = """## When something inside breaks

A failure that no call should cause is an `InternalError`. It names a file that holds the versions, the mesh, the Program with its plan,
the per-device Program and what XLA was given. `meshjit reproduce FILE` does it again, and `meshjit.core.parser.parse_program` reads
the Programs back. The file holds the values of the program's constants, which it says at its head: look whether they may be sent.
`meshjit reproduce` runs nothing of it as Python, and leaves out options that have XLA read or write files. XLA's messages are never
shown bare.
"""


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
