"""Looking at traced programs: breakpoints with a prompt, shardings told and drawn, tokens. Expected texts are JAX 0.10.2's."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as jnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

pytestmark = pytest.mark.device


def talk(run: Callable[[Callable[..., Any]], Any], *commands: str) -> list[str]:
    """What the prompt says to these commands; `run` is given `debug.breakpoint` on this conversation."""
    said, told = io.StringIO("\n".join(commands) + "\n"), io.StringIO()
    mj.block_until_ready(run(functools.partial(mj.debug.breakpoint, stdin=said, stdout=told)))
    mj.effects_barrier()
    return told.getvalue().split("(jdb) ")


def work(x: Any, stop: Callable[..., Any]) -> Any:
    y = jnp.sin(x)
    kept = {"y": y, "n": 3}
    stop(ordered=True)
    return y, kept["n"]


@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit, mj.grad])
def test_a_breakpoint_shows_values(wrap: Any) -> None:
    def run(stop: Callable[..., Any]) -> Any:
        return wrap(lambda x: work(x, stop)[0])(jnp.float32(2))

    said = talk(run, "p x", "y", "pp kept", "p zz", "1 + len(kept)", "", "c")
    assert said == [
        "Entering jdb:\n", "Array(2., dtype=float32)\n", "Array(0.9092974, dtype=float32)\n",
        "{'n': 3, 'y': Array(0.9092974, dtype=float32)}\n", "*** NameError: name 'zz' is not defined\n", "3\n", "", "",
    ]  # fmt: skip


def test_a_breakpoint_steps_through_frames() -> None:
    def run(stop: Callable[..., Any]) -> Any:
        outer = 7
        return mj.jit(lambda x: work(x, stop)[0] * outer)(jnp.float32(2))

    said = talk(run, "l", "u", "p outer", "d", "d", "bt", "c")
    line = work.__code__.co_firstlineno + 3
    assert f"test_api_debugging.py({line})\n" in said[1] and "->      stop(ordered=True)\n" in said[1]
    assert said[3] == "7\n" and said[5].startswith("At bottommost frame.\n> ")
    assert said[6].splitlines()[-2:] == [f'  File "{__file__}", line {line}', "    stop(ordered=True)"]
    assert not [text for text in said if "meshjit/" in text]


def test_a_breakpoint_for_each_member_and_with_a_token() -> None:
    said = talk(lambda stop: mj.vmap(lambda x: work(x, stop)[0])(jnp.arange(2.0)), "p x", "c", "p x", "c")
    assert said[1] == "Array(0., dtype=float32)\n" and said[3] == "Array(1., dtype=float32)\n"

    def f(x: Any, stop: Any) -> Any:
        return stop(token=x + 1)

    assert talk(lambda stop: mj.jit(lambda x: f(x, stop))(jnp.float32(2)), "p x", "c")[1] == "Array(2., dtype=float32)\n"
    assert talk(lambda stop: mj.jit(lambda x: (f(x, stop), x)[1])(jnp.float32(2))) == [""]  # nobody needs it
    with pytest.raises(ValueError, match="`ordered` and `token` are mutually exclusive"):
        mj.debug.breakpoint(ordered=True, token=1)
    with pytest.raises(ValueError, match='backend must be "cli"'):
        mj.debug.breakpoint(backend="web")


def test_quitting_ends_the_program() -> None:
    with pytest.raises(SystemExit):
        talk(lambda stop: work(jnp.float32(1), stop), "q")


# -- shardings


def grid() -> Mesh:
    return mj.make_mesh((4, 2), ("x", "y"))


def test_shardings_are_told_when_a_program_is_compiled() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = jnp.sin(x)
        mj.debug.inspect_array_sharding({"y": y}, callback=seen.append)
        return y * 2

    place = NamedSharding(grid(), P("x"))
    jitted = mj.jit(f, in_shardings=place, out_shardings=place)
    compiled = jitted.lower(jnp.zeros((8, 4))).compile()
    assert seen == [place]
    compiled(jnp.zeros((8, 4)))
    assert seen == [place]
    f(mj.device_put(jnp.zeros((8, 4)), place))
    assert seen == [place] * 2
    mj.jit(f)(jnp.zeros(3))
    assert seen[2:] == [SingleDeviceSharding(mj.devices()[0])]


def test_shardings_of_values_in_loops_are_told() -> None:
    seen: list[Any] = []

    def body(c: Any, x: Any) -> Any:
        mj.debug.inspect_array_sharding(c, callback=seen.append)
        return jnp.sin(c) * x, None

    place = NamedSharding(grid(), P("x"))
    f = mj.jit(lambda c, xs: mj.lax.scan(body, c, xs)[0], in_shardings=(place, None))
    f(jnp.ones(8), jnp.ones(3))
    assert seen == [place]


DRAWINGS = {
    ((8,), P("x")): """\
        ┌───────┬───────┬───────┬───────┐
        │CPU 0,1│CPU 2,3│CPU 4,5│CPU 6,7│
        └───────┴───────┴───────┴───────┘
        """,
    ((8, 8), P("x", "y")): """\
        ┌──────────┬──────────┐
        │  CPU 0   │  CPU 1   │
        ├──────────┼──────────┤
        │  CPU 2   │  CPU 3   │
        ├──────────┼──────────┤
        │  CPU 4   │  CPU 5   │
        ├──────────┼──────────┤
        │  CPU 6   │  CPU 7   │
        └──────────┴──────────┘
        """,
    ((8, 8), P("y", "x")): """\
        ┌───────┬───────┬───────┬───────┐
        │       │       │       │       │
        │ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │
        │       │       │       │       │
        │       │       │       │       │
        ├───────┼───────┼───────┼───────┤
        │       │       │       │       │
        │ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │
        │       │       │       │       │
        │       │       │       │       │
        └───────┴───────┴───────┴───────┘
        """,
}


@pytest.mark.parametrize(("shape", "spec"), DRAWINGS)
def test_drawings(shape: Any, spec: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mj.debug.visualize_sharding(shape, NamedSharding(grid(), spec))
    assert capsys.readouterr().out == textwrap.dedent(DRAWINGS[shape, spec])
    mj.debug.visualize_array_sharding(mj.device_put(jnp.zeros(shape), NamedSharding(grid(), spec)))
    assert capsys.readouterr().out == textwrap.dedent(DRAWINGS[shape, spec])


def test_drawings_of_uneven_shards_and_of_traced_values(capsys: pytest.CaptureFixture[str]) -> None:
    place = NamedSharding(grid(), P("x"))
    mj.jit(lambda x: (mj.debug.visualize_array_sharding(x * 2), x)[1], in_shardings=place)(jnp.zeros(6))
    assert "│CPU 0,1│CPU 2,3│CPU 4,5│" in capsys.readouterr().out
    with pytest.raises(ValueError, match="a scalar has no parts"):
        mj.debug.visualize_sharding((), place)


def test_more_than_two_dims_are_drawn_plane_by_plane(capsys: pytest.CaptureFixture[str]) -> None:
    mj.debug.visualize_sharding((5, 4, 6), NamedSharding(grid(), P("x", None, "y")))
    drawn = capsys.readouterr().out
    assert [line for line in drawn.splitlines() if line.startswith("[")] == [
        "[0:2, …]", "[2:4, …]", "[4:5, …]", "[5:5, …]",
    ]  # fmt: skip
    assert "CPU 0" in drawn and "CPU 7" in drawn


def test_placements_are_printed_when_they_are_decided(capsys: pytest.CaptureFixture[str]) -> None:
    x = mj.device_put(jnp.zeros((6, 2)), NamedSharding(grid(), P("x")))
    mj.debug.print_placement(x, "x")
    assert capsys.readouterr().out == "x: f32[6@x, 2]\n"
    double = mj.jit(lambda x: (mj.debug.print_placement({"doubled": x * 2}, "all"), x)[1])
    double(x), double(x)
    assert capsys.readouterr().out == "all['doubled']: f32[6@x, 2]\n"


def test_notebooks_see_meshes_shardings_arrays_plans_and_reports() -> None:
    mesh = grid()
    x = mj.device_put(jnp.zeros((4, 3, 2)), NamedSharding(mesh, P("x", None, "y")))
    assert "x=4" in mesh._repr_html_() and mesh._repr_html_().count("<tr>") == 4
    assert "hsl(" in x.sharding._repr_html_() and "without devices" in mesh.abstract_mesh._repr_html_()
    assert x._repr_html_().count("<table>") == 4 and "[0:1, …]" in x._repr_html_() and "CPU 7" in x._repr_html_()
    assert jnp.zeros(3)._repr_html_() == "<pre>Array([0., 0., 0.], dtype=float32)</pre>"
    planned = mj.jit(lambda x: x * 2).trace(x).plan()
    assert "f32[4@x, 3, 2@y]" in planned.plan._repr_html_()
    assert planned.report()._repr_html_().startswith("<iframe") and planned.report().why("x")._repr_html_().startswith("<pre>")


# -- tokens and barriers


def test_tokens_order_and_leave_jit() -> None:
    @mj.jit
    def f(token: Any) -> Any:
        return mj.lax.after_all(token, mj.lax.create_token())

    token = f(mj.lax.create_token())
    assert token.shape == (0,) and token.dtype == np.bool_
    with pytest.raises(TypeError, match="Arguments to after_all must be tokens"):
        mj.lax.after_all(jnp.ones(2))


def test_barriers_have_derivatives_and_batches() -> None:
    def f(x: Any) -> Any:
        y, z = mj.lax.optimization_barrier((x, jnp.sin(x)))
        return y * z

    for x in (0.5, 2.0):
        expected = np.sin(x) + x * np.cos(x)
        assert abs(float(mj.grad(f)(x)) - expected) < 1e-6
        assert abs(float(mj.jvp(f, (x,), (1.0,))[1]) - expected) < 1e-6
    np.testing.assert_allclose(mj.vmap(f)(np.arange(3.0)), np.arange(3) * np.sin(np.arange(3)), rtol=1e-6)
    assert "optimization_barrier" in mj.jit(mj.grad(f)).lower(1.0).as_text()
    assert mj.lax.optimization_barrier(()) == ()
