"""What `make_jaxpr` gives as text: JAX's notation, to the character where the equations are JAX's."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.report.layout import LINE, SOFT, group, laid_out, nest

X, W = np.arange(3, dtype=np.float32), np.ones((3, 3), np.float32)


def text(f: Callable[..., Any], *args: Any) -> str:
    return str(mj.make_jaxpr(f)(*args))


TEXTS: dict[str, tuple[Callable[..., Any], str]] = {
    "one equation": (mnp.sin, "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"),
    "two on one line": (
        lambda x: mnp.sin(x) * 2, "{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }"
    ),
    "none": (lambda x: (x, 3), "{ lambda ; a:f32[3]. let  in (a, 3:i32[]) }"),
    "params on one line": (mnp.sum, """\
        { lambda ; a:f32[3]. let
            b:f32[] = reduce_sum[axes=(0,) out_sharding=None] a
          in (b,) }"""),
    "params on lines of their own": (lambda x: x @ x, """\
        { lambda ; a:f32[3]. let
            b:f32[] = dot_general[
              dimension_numbers=(([0], [0]), ([], []))
              preferred_element_type=float32
            ] a a
          in (b,) }"""),
    "an array that is closed over": (
        lambda x: x + np.array([1, 2, 3], np.float32), "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }"
    ),
    "a jitted function": (lambda x: mj.jit(lambda y: y * 2)(x) + 1, """\
        { lambda ; a:f32[3]. let
            b:f32[3] = jit[
              name=<lambda>
              jaxpr={ lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }
            ] a
            c:f32[3] = add b 1.0:f32[]
          in (c,) }"""),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, x), """\
        { lambda ; a:f32[3]. let
            _:i32[] b:f32[3] = scan[
              jaxpr={ lambda ; c:i32[] d:f32[3]. let
                  e:i32[] = add c 1:i32[]
                  f:f32[3] = add d 1.0:f32[]
                in (e, f) }
              length=3
              num_carry=2
              num_consts=0
              reverse=False
              unroll=1
            ] 0:i32[] a
          in (b,) }"""),
    "branches": (lambda x: lax.cond(True if x is None else x.sum() > 0, mnp.sin, mnp.cos, x), """\
        { lambda ; a:f32[3]. let
            b:f32[] = reduce_sum[axes=(0,) out_sharding=None] a
            c:bool[] = gt b 0.0:f32[]
            d:i32[] = convert_element_type[new_dtype=int32 weak_type=False] c
            e:f32[3] = cond[
              branches=(
                { lambda ; f:f32[3]. let g:f32[3] = cos f in (g,) }
                { lambda ; h:f32[3]. let i:f32[3] = sin h in (i,) }
              )
            ] d a
          in (e,) }"""),
    "a shape": (lambda x: mnp.broadcast_to(x.reshape(3, 1).T, (2, 1, 3)), """\
        { lambda ; a:f32[3]. let
            b:f32[3,1] = reshape[dimensions=None new_sizes=(3, 1) sharding=None] a
            c:f32[1,3] = transpose[permutation=(1, 0)] b
            d:f32[2,1,3] = broadcast_in_dim[broadcast_dimensions=(1, 2)] c
          in (d,) }"""),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    f, expected = TEXTS[name]
    assert text(f, X) == textwrap.dedent(expected)


def test_no_arguments_and_many_names() -> None:
    assert text(lambda: mnp.ones(3)) == "{ lambda ; . let a:f32[3] = broadcast_in_dim 1.0:f32[] in (a,) }"

    def deep(x: Any) -> Any:
        for _ in range(28):
            x = mnp.sin(x)
        return x

    lines = text(deep, X).splitlines()
    assert lines[-4:] == ["    ba:f32[3] = sin z", "    bb:f32[3] = sin ba", "    bc:f32[3] = sin bb", "  in (bc,) }"]


def test_what_is_called_twice_stands_once() -> None:
    inner = mj.jit(lambda y: mnp.sin(y) * 2)
    assert text(lambda x: inner(inner(x)), X) == textwrap.dedent("""\
        let <lambda> = { lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) } in
        { lambda ; d:f32[3]. let
            e:f32[3] = jit[name=<lambda> jaxpr=<lambda>] d
            f:f32[3] = jit[name=<lambda> jaxpr=<lambda>] e
          in (f,) }""")


def test_keys_effects_and_other_stages() -> None:
    assert text(lambda k: mj.random.key_data(k), mj.random.key(0)).startswith("{ lambda ; a:key<fry>[]. let")
    assert "debug_callback[" in text(lambda x: mj.debug.print("{}", x), X)
    closed = mj.jit(mnp.sin).trace(X).jaxpr
    assert str(closed) == repr(closed) == closed.pretty_print(use_color=False) == str(closed.jaxpr) == text(mnp.sin, X)
    two = mj.make_jaxpr(lambda x: mnp.sin(x) * 2)(X)
    assert [str(e) for e in two.eqns] == ["a:f32[3] = sin b", "a:f32[3] = mul b 2.0:f32[]"]


def test_a_derivative_and_the_programs_own_text() -> None:
    gradient = mj.make_jaxpr(mj.grad(lambda x: mnp.sum(mnp.tanh(x @ W))))(X)
    assert str(gradient).startswith("{ lambda a:f32[3,3]; b:f32[3]. let\n    c:f32[3] = dot_general[\n")
    assert str(gradient.program).startswith("program ") or gradient.program.eqns


def test_a_large_program_is_printed_in_time_that_grows_with_it() -> None:
    layer = mj.jit(lambda x: twenty(x))
    closed = mj.make_jaxpr(lambda x: functools.reduce(lambda x, _: layer(x), range(64), x))(X)
    assert len(str(closed).splitlines()) < 200


def twenty(x: Any) -> Any:
    for _ in range(20):
        x = mnp.sin(x) + 1
    return x


def test_groups_break_as_a_whole() -> None:
    inner = group("[", nest(2, SOFT, "one", LINE, "two"), SOFT, "]")
    whole = group("head(", nest(4, SOFT, inner, LINE, "tail"), SOFT, ")")
    assert laid_out(whole, 80) == "head([one two] tail)"
    assert laid_out(whole, 16) == "head(\n    [one two]\n    tail\n)"
    assert laid_out(whole, 9) == "head(\n    [\n      one\n      two\n    ]\n    tail\n)"
