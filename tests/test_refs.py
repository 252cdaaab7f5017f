"""Refs, arrays that are changed in place: values as JAX 0.10.2 gives them, in and around everything that traces; errors."""

import gc
import weakref

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.errors import ShardingError
from meshjit.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P


def value(ref):
    return np.asarray(ref[...])


# -- outside of traced functions


def test_read_and_written_in_parts():
    r = mj.new_ref(mnp.arange(12.0).reshape(3, 4))
    assert isinstance(r, mj.Ref) and mj.ref.Ref is mj.Ref and not isinstance(r, mj.Array)
    assert (r.shape, r.dtype, r.ndim, r.size, len(r)) == ((3, 4), np.float32, 2, 12, 3)
    before = r[...]
    r[1:, 2] += 1
    r[0, :2] *= 3
    r[np.array([0, 2]), np.array([1, 1])] = mnp.full(2, 9.0)
    r[-1, 3] = 7.0
    np.testing.assert_array_equal(value(r), [[0, 9, 2, 3], [4, 5, 7, 7], [8, 9, 11, 7]])
    np.testing.assert_array_equal(before, np.arange(12.0).reshape(3, 4))  # what was read stays
    np.testing.assert_array_equal(r[:, ::2], [[0, 2], [4, 7], [8, 11]])
    np.testing.assert_array_equal(r[..., 0], [0, 4, 8])
    assert float(mj.jit(lambda i, j: r[i, j])(mnp.int32(7), mnp.int32(-1))) == 7.0  # outside: the nearest


@pytest.mark.parametrize("number", [int, np.int64, np.array, np.uint8, mnp.int32, mnp.uint8])
def test_numbers_outside(number):
    r = mj.new_ref(mnp.zeros((2, 3)))
    r[number(1), number(2)] = 4.0
    for use in (
        lambda: r[number(5)], lambda: r.__setitem__((0, number(3)), 1.0), lambda: mj.ref.swap(r, (..., number(5)), mnp.ones(2)),
        lambda: mj.ref.addupdate(r, number(2), mnp.ones(3)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"Out of bound indexer: idx=\d, dim=[23]\."):
            use()
    np.testing.assert_array_equal(value(r), [[0, 0, 0], [0, 0, 4]])
    np.testing.assert_array_equal(r[number(0)], [0, 0, 0])
    assert float(mj.jit(lambda i: r[i, i])(number(7))) == 4.0  # not known: the nearest


def test_functions():
    r = mj.new_ref(mnp.zeros(3))
    np.testing.assert_array_equal(mj.ref.swap(r, (), mnp.ones(3)), np.zeros(3))
    assert float(mj.ref.swap(r, 0, 7.0)) == 1.0
    mj.ref.set(r, 2, 5.0)
    mj.ref.addupdate(r, mnp.array([0, 0]), mnp.ones(2))
    mj.ref.addupdate(r, ..., mnp.ones(3))
    np.testing.assert_array_equal(mj.ref.get(r), [10, 2, 6])
    assert float(mj.ref.get(r, 1)) == 2.0
    np.testing.assert_array_equal(mj.freeze(r), [10, 2, 6])
    assert value(mj.empty_ref(mj.ShapeDtypeStruct((2, 0), np.int8))).shape == (2, 0)


def test_printed():
    r = mj.new_ref(mnp.zeros(3))
    assert repr(r) == str(r) == "Ref([0., 0., 0.], dtype=float32)"
    assert repr(mj.new_ref(1.0)) == "Ref(1., dtype=float32, weak_type=True)"
    assert str(r.aval) == str(mj.typeof(r)) == "Ref{float32[3]}"
    assert r.aval.inner_aval == mj.typeof(r[...]) and isinstance(r.aval, mj.ref.AbstractRef)
    seen = []
    mj.jit(lambda r: seen.append(repr(r)))(r)
    assert seen == ["Tracer(Ref{float32[3]})"]


@pytest.mark.parametrize(("first", "new", "dtype"), [(mnp.zeros((), np.int8), 1, np.int8), (mnp.bfloat16(0), 2.0, mnp.bfloat16)])
def test_numbers_take_the_dtype(first, new, dtype):
    r = mj.new_ref(first)
    r[...] = new
    assert r[...].dtype == dtype and not r[...].weak_type and float(r[...]) == new


def test_keys():
    r = mj.new_ref(mj.random.key(0))

    @mj.jit
    def draw():
        key, r[...] = mj.random.split(r[...])
        return mj.random.uniform(key)

    key, rest = mj.random.split(mj.random.key(0))
    assert float(draw()) == float(mj.random.uniform(key))
    assert bool(r[...] == rest) and r.shape == () and str(r.dtype) == "key<fry>"
    many = mj.new_ref(mj.random.split(mj.random.key(0), 3))
    many[1] = mj.random.key(5)
    assert bool(many[1] == mj.random.key(5)) and many.shape == (3,)


# -- under jit


def test_argument_of_jit_is_found_again_for_other_refs():
    traces = []

    @mj.jit
    def add(r, x):
        traces.append(1)
        r[...] += x

    first, second = mj.new_ref(mnp.zeros(3)), mj.new_ref(mnp.ones(3))
    add(first, 1.0), add(first, 2.0), add(second, 3.0)
    np.testing.assert_array_equal(value(first), [3, 3, 3])
    np.testing.assert_array_equal(value(second), [4, 4, 4])
    assert traces == [1]
    add(mj.new_ref(mnp.zeros(2)), 1.0)
    assert traces == [1, 1]


def test_refs_are_let_go():
    @mj.jit
    def add(r):
        r[0] += 1.0

    r = mj.new_ref(mnp.zeros(3))
    add(r), add(r)
    gone = weakref.ref(r)
    del r
    gc.collect()
    assert gone() is None


def test_closed_over_by_jit():
    r, traces = mj.new_ref(0.0), []

    @mj.jit
    def f(x):
        traces.append(1)
        r[...] += x
        return r[...] * 2

    assert (float(f(1.0)), float(f(2.0)), float(r[...]), traces) == (2.0, 6.0, 3.0, [1])
    r[...] = 10.0
    assert float(f(1.0)) == 22.0


def test_read_between_writes_and_in_trees():
    state = {"a": mj.new_ref(mnp.zeros(3)), "b": 1.0}

    @mj.jit
    def f(state):
        before = state["a"][...]
        state["a"][0] = state["b"]
        return before, state["a"][...]

    before, after = f(state)
    np.testing.assert_array_equal(before, [0, 0, 0])
    np.testing.assert_array_equal(after, [1, 0, 0])
    np.testing.assert_array_equal(value(state["a"]), [1, 0, 0])


def test_nested_jit_static_and_donated():
    r = mj.new_ref(1.0)

    @mj.jit
    def inner(r, x):
        r[...] += x

    @mj.jit
    def outer(x):
        inner(r, x), inner(r, x)
        return r[...]

    assert float(outer(1.0)) == float(r[...]) == 3.0
    times = mj.jit(lambda r, n, x: r.__setitem__(..., r[...] * n + x), static_argnums=1, donate_argnums=2)
    x = mnp.ones(())
    times(r, 3, x)
    assert float(r[...]) == 10.0 and x.is_deleted()


def test_made_inside():
    @mj.jit
    def f(x):
        r = mj.new_ref(x)
        r[0] += 1
        return mj.freeze(r)

    np.testing.assert_array_equal(f(mnp.ones(3)), [2, 1, 1])
    assert mj.eval_shape(f, mnp.ones(3)).shape == (3,)


def test_eval_shape_and_disable_jit():
    r = mj.new_ref(1.0)
    mj.eval_shape(lambda: r.__setitem__(..., 5.0))
    assert float(r[...]) == 1.0
    with mj.disable_jit():
        mj.jit(lambda r: r.__setitem__(..., 5.0))(r)
        lax.fori_loop(0, 3, lambda i, _: r.__setitem__(..., r[...] + i), None)
    assert float(r[...]) == 8.0


def test_functions_without_refs_are_called_by_cpp():
    mj.new_ref(0.0)
    f = mj.jit(lambda x: x + 1)
    f(mnp.ones(())), f(mnp.ones(()))
    assert f.__call__ is f.fast


# -- loops and branches


def test_scan():
    r = mj.new_ref(0)

    def body(_, x):
        r[...] += x
        return None, x * 2

    _, ys = lax.scan(body, None, mnp.arange(10))
    np.testing.assert_array_equal(ys, np.arange(10) * 2)
    assert int(r[...]) == 45
    lax.scan(body, None, mnp.arange(10))  # the trace that is kept reads it anew
    assert int(r[...]) == 90


@pytest.mark.parametrize("jitted", [False, True])
def test_loops_with_carries_beside(jitted):
    r, seen = mj.new_ref(mnp.zeros(4)), mj.new_ref(100.0)

    def f(n):
        def body(i, c):
            r[i] += i
            return c + r[2] + seen[...]  # one written, one read

        return lax.fori_loop(0, n, body, 0.0)

    f = mj.jit(f) if jitted else f
    assert float(f(3)) == 302.0
    np.testing.assert_array_equal(value(r), [0, 1, 2, 0])


def test_while_loop_whose_condition_reads():
    r = mj.new_ref(0)

    def body(c):
        r[...] += 3
        return c + 1

    assert int(lax.while_loop(lambda c: c + r[...] < 20, body, 0)) == 5
    assert int(r[...]) == 15


def test_branches():
    r, other = mj.new_ref(0.0), mj.new_ref(mnp.ones(2))

    def one():
        r[...] = 5.0
        return 1

    def two():
        other[0] = 3.0
        return 2

    assert int(lax.cond(False, one, two)) == 2
    assert float(r[...]) == 0.0 and float(other[0]) == 3.0
    assert int(mj.jit(lambda p: lax.cond(p, one, two))(True)) == 1
    assert float(r[...]) == 5.0
    lax.switch(1, [lambda: None, lambda: r.__setitem__(..., 9.0)])
    lax.cond(True, lambda r: r.__setitem__(..., r[...] + 1), lambda r: None, r)
    assert float(r[...]) == 10.0


def test_nested_loops_and_branches():
    r = mj.new_ref(mnp.zeros(3))

    @mj.jit
    def f(xs):
        def body(c, x):
            def inner(i, c):
                lax.cond(x > 1, lambda: mj.ref.addupdate(r, i, x), lambda: None)
                return c + r[i]

            return lax.fori_loop(0, 3, inner, c), r[0]

        return lax.scan(body, 0.0, xs)

    total, firsts = f(mnp.arange(4.0))
    np.testing.assert_array_equal(value(r), [5, 5, 5])
    np.testing.assert_array_equal(firsts, [0, 0, 2, 5])
    assert float(total) == 21.0


# -- vmap


def test_vmap_of_refs():
    r = mj.new_ref(mnp.arange(3.0))

    def f(r, x):
        r[...] += x
        return r[...] * 2

    np.testing.assert_array_equal(mj.vmap(f)(r, mnp.arange(3.0)), [0, 4, 8])
    np.testing.assert_array_equal(value(r), [0, 2, 4])
    m = mj.new_ref(mnp.arange(6.0).reshape(2, 3))
    mj.jit(mj.vmap(f, in_axes=(1, 0)))(m, mnp.arange(3.0))
    np.testing.assert_array_equal(value(m), [[0, 2, 4], [3, 5, 7]])


def test_vmap_with_refs_inside_and_shared():
    shared = mj.new_ref(10.0)

    def f(x):
        r = mj.new_ref(0.0)
        r[...] += x
        return r[...] * 2 + shared[...]

    np.testing.assert_array_equal(mj.vmap(f)(mnp.arange(3.0)), [10, 12, 14])
    np.testing.assert_array_equal(mj.vmap(lambda r, x: r[...] + x, in_axes=(None, 0))(shared, mnp.arange(2.0)), [10, 11])


def test_members_values_in_a_shared_ref():
    r = mj.new_ref(0.0)
    with pytest.raises(ValueError, match=r"vmap: all members write to one Ref\{float32\[\]\}, made at .*test_refs"):
        mj.vmap(lambda x: r.__setitem__(..., x))(mnp.arange(3.0))
    assert float(r[...]) == 0.0


# -- derivatives


def through(x):
    r = mj.new_ref(0.0)
    r[...] = x
    r[...] *= x
    return mj.freeze(r)


def test_derivatives_through_refs_made_inside():
    assert float(mj.grad(through)(3.0)) == float(mj.jit(mj.grad(through))(3.0)) == 6.0
    assert [float(x) for x in mj.jvp(through, (3.0,), (1.0,))] == [9.0, 6.0]
    assert float(mj.hessian(through)(3.0)) == 2.0
    assert float(mj.grad(mj.checkpoint(through))(3.0)) == 6.0

    def in_loops(x):
        r = mj.new_ref(mnp.zeros_like(x))
        lax.fori_loop(0, 4, lambda i, _: r.__setitem__(i, x[i] ** 2 * i), None)
        return mnp.sum(r[...])

    np.testing.assert_array_equal(mj.grad(in_loops)(mnp.arange(4.0)), [0, 2, 8, 18])

    def in_scan(x):
        r = mj.new_ref(x)

        def body(c, _):
            r[...] *= 2.0
            return c, r[...]

        return lax.scan(body, None, None, length=3)[1].sum()

    assert float(mj.grad(in_scan)(1.0)) == 14.0
    np.testing.assert_array_equal(mj.vmap(mj.grad(in_scan))(mnp.arange(3.0)), [14, 14, 14])


@pytest.mark.parametrize("jitted", [False, True])
def test_plumbing_around_derivatives(jitted):
    count, last = mj.new_ref(0), mj.new_ref(mnp.zeros(()))

    def loss(x, count):
        count[...] += 1
        last[...] = lax.stop_gradient(mnp.sin(x))
        return x * x * count[...]

    step = mj.value_and_grad(loss)
    step = mj.jit(step) if jitted else step
    assert [float(x) for x in step(3.0, count)] == [9.0, 6.0]
    assert [float(x) for x in step(3.0, count)] == [18.0, 12.0]
    assert int(count[...]) == 2 and abs(float(last[...]) - 0.14112) < 1e-5
    _, pull = mj.vjp(lambda x: loss(x, count), 1.0)
    assert float(pull(1.0)[0]) == 6.0 and int(count[...]) == 3  # written once, when the function ran
    mj.linearize(lambda x: loss(x, count), 1.0)
    mj.jvp(lambda x: loss(x, count), (1.0,), (1.0,))
    assert int(count[...]) == 5


def test_values_of_refs_outside_of_jit():
    r = mj.new_ref(3.0)
    assert float(mj.grad(lambda x: x * 2 if r[...] > 1 else x)(1.0)) == 2.0


def test_a_derivative_may_not_be_lost_in_a_ref():
    r = mj.new_ref(0.0)
    for derivative in (mj.grad(lambda x: (r.__setitem__(..., x), x)[1]), mj.jit(mj.grad(lambda x: (r.__setitem__(..., x * 2), x)[1]))):
        with pytest.raises(TypeError, match="differentiated value on a non-differentiated array reference of type Ref"):
            derivative(3.0)
    assert float(r[...]) == 0.0
    with pytest.raises(TypeError, match=r"grad: argument 0 has a Ref\{float32\[\]\}, with respect to which"):
        mj.grad(lambda r: r[...] ** 2)(r)


# -- sharded


def test_sharded():
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    r = mj.new_ref(mj.device_put(mnp.arange(8.0), sharding))
    step = mj.jit(lambda r: r.__setitem__(..., r[...] * 2))
    step(r), step(r)
    assert r.sharding == sharding
    np.testing.assert_array_equal(value(r), np.arange(8.0) * 4)
    uneven = mj.new_ref(mj.device_put(mnp.arange(10.0), sharding))
    mj.jit(lambda x: mj.ref.addupdate(uneven, slice(3, 6), x))(mnp.ones(3))
    np.testing.assert_array_equal(value(uneven), [0, 1, 2, 4, 5, 6, 6, 7, 8, 9])
    placed = mj.jit(lambda r, x: (r.__setitem__(..., r[...] + x), x)[1], in_shardings=(sharding, None), out_shardings=sharding)
    out = placed(r, mnp.ones(8))
    assert out.sharding == sharding == r.sharding


def test_read_and_made_in_shard_map():
    mesh, scale = Mesh(np.array(mj.devices()[:4]), ("x",)), mj.new_ref(2.0)

    def f(x):
        r = mj.new_ref(mnp.zeros_like(x))
        r[...] += x * scale[...]
        return r[...]

    mapped = mj.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(mj.jit(mapped)(mnp.arange(8.0)), np.arange(8.0) * 2)


# -- errors


def test_returned():
    r = mj.new_ref(1.0)
    with pytest.raises(ValueError, match=r"returned a mutable array reference of type Ref\{float32\[\]\}, but .* cannot be returned"):
        mj.jit(lambda: mj.new_ref(1.0))()
    with pytest.raises(ValueError, match="cannot be returned"):
        mj.jit(lambda r: {"r": r})(r)
    with pytest.raises(ValueError, match=r"at output tree path result\[0\]"):
        lax.scan(lambda c, x: (c, x), r, mnp.arange(3.0))


def test_two_names_of_one_ref():
    r = mj.new_ref(1.0)
    with pytest.raises(ValueError, match=r"only one reference .* appeared at both args\[0\] and args\[1\]\['b'\]"):
        mj.jit(lambda a, b: a[...] + b["b"][...])(r, {"b": r})
    with pytest.raises(ValueError, match="both closed over and passed as an argument"):
        mj.jit(lambda a: a[...] + r[...])(r)


def test_used_after_its_trace_or_its_end():
    kept = []
    mj.jit(lambda: kept.append(mj.new_ref(1.0)))()
    with pytest.raises(mj.errors.UnexpectedTracerError):
        kept[0][...]

    def frozen(x):
        r = mj.new_ref(x)
        mj.freeze(r)
        r[...] = 2.0

    with pytest.raises(ValueError, match=r"`swap` of a Ref\{float32\[\]\} that was frozen at .*test_refs"):
        mj.jit(frozen)(1.0)


@pytest.mark.parametrize(
    ("write", "error", "text"),
    [
        (lambda r: r.__setitem__(..., 1.0), ValueError, "Invalid shape for `swap`. Ref shape: (3,). Expected shape: (3,). Value shape: ()."),
        (lambda r: r.__setitem__(0, 1), ValueError, "Invalid dtype for `swap`. Ref dtype: float32. Value dtype: int32."),
        (lambda r: mj.ref.addupdate(r, ..., np.ones(3, int)), ValueError, "Invalid dtype for `addupdate`. Ref dtype: float32."),
        (lambda r: r[5], ValueError, "Out of bound indexer: idx=5, dim=3."),
        (lambda r: r[0, 0], ValueError, "`indices` must not be longer than `shape`"),
        (lambda r: r[::-1], ValueError, "slice must have a step >= 1 (found: -1)"),
        (lambda r: r + 1, TypeError, "unsupported operand type(s) for +: 'Ref' and 'int'"),
        (lambda r: mnp.sin(r), TypeError, "is not an array"),
        (lambda r: mj.new_ref(r), TypeError, "fix: new_ref(ref[...])"),
        (lambda r: mj.new_ref([1.0]), TypeError, "new_ref needs an array or a number, was given [1.0]"),
        (lambda r: mj.ref.get(mnp.ones(3)), ValueError, "`get` must be called on `Ref` types"),
        (lambda r: mj.jit(lambda: mj.freeze(r))(), ValueError, "only where it was made"),
    ],
)
def test_wrong_uses(write, error, text):
    r = mj.new_ref(mnp.zeros(3))
    with pytest.raises(error) as caught:
        write(r)
    assert text in str(caught.value)


def test_written_where_nobody_could_see_it():
    r = mj.new_ref(0)

    def condition(c):
        r[...] += 1
        return c < 3

    with pytest.raises(TypeError, match=r"condition writes to a Ref\{int32\[\]\} that was made outside of it"):
        lax.while_loop(condition, lambda c: c + 1, 0)


# -- where a Ref lies


def on_two(spec, types=None):
    return NamedSharding(Mesh(mj.devices()[:2], ("x",), axis_types=types), spec)


def of_ones(r):
    r[...] = mnp.ones(4)


def of_ones_in_a_loop(r):
    def body(c, x):
        r[...] = x * mnp.ones(4)
        return c, None

    lax.scan(body, 0, mnp.ones(3))


@pytest.mark.parametrize(
    "write",
    [
        of_ones, mj.jit(of_ones), lambda r: mj.jit(lambda: of_ones(r))(), lambda r: mj.jit(of_ones).lower(r).compile()(r),
        lambda r: mj.ref.swap(r, ..., mnp.ones(4)), lambda r: mj.ref.set(r, ..., np.ones(4, np.float32)), of_ones_in_a_loop,
        lambda r: mj.jit(lambda r, v: r.__setitem__(..., v))(r, np.ones(4, np.float32)), mj.jit(of_ones_in_a_loop),
        lambda r: mj.grad(lambda x: of_ones(r) or x)(1.0), lambda r: mj.jit(mj.checkpoint(of_ones))(r),
        lambda r: r.__setitem__(..., mj.device_put(mnp.ones(4), on_two(P()))),
    ],
)  # fmt: skip
def test_it_stays_where_it_was_made(write):
    """Assigned as a whole it took the place of the value."""
    for place in (on_two(P("x")), on_two(P())):
        r = mj.new_ref(mj.device_put(np.zeros(4, np.float32), place))
        write(r)
        assert r[...].sharding == place and r[...].committed and r[...].tolist() == [1, 1, 1, 1]


def test_it_stays_on_its_devices():
    r = mj.new_ref(mj.device_put(np.zeros(4, np.float32), mj.devices()[1]))
    r[...] = mnp.ones(4)
    assert r[...].devices() == {mj.devices()[1]} and r[...].committed
    with pytest.raises(ShardingError, match="device=.*is assigned to a Ref on .*\n  a Ref stays on its devices\n  fix: "):
        r[...] = mj.device_put(mnp.zeros(4), mj.devices()[2])
    assert r[...].tolist() == [1, 1, 1, 1]


def test_it_keeps_its_type():
    place = on_two(P("x"), types=(AxisType.Explicit,))
    with mj.set_mesh(place.mesh):
        for write in (of_ones, mj.jit(of_ones), mj.jit(of_ones_in_a_loop), lambda r: mj.grad(lambda x: of_ones(r) or x)(1.0)):
            r = mj.new_ref(mj.device_put(np.zeros(4, np.float32), P("x")))
            write(r)
            assert str(mj.typeof(r)) == "Ref{float32[4@x]}" and r[...].sharding == place
        seen = []
        mj.jit(lambda r: seen.append(str(mj.typeof((of_ones(r), r[...])[1]))))(r)
        assert seen == ["float32[4@x]"]
        whole = mj.new_ref(mnp.zeros(4))
        whole[...] = r[...]
        assert str(mj.typeof(whole)) == "Ref{float32[4]}"


# -- written to by rules, on the way back


def stash(write):
    """An identity whose bwd writes the cotangent to a Ref, as JAX's guide has it."""

    @mj.custom_vjp
    def identity(ref, x):
        return x

    def bwd(ref, g):
        write(ref, g)
        return None, g

    identity.defvjp(lambda ref, x: (x, ref), bwd)
    return identity


put = stash(lambda ref, g: ref.__setitem__(..., g))
add = stash(lambda ref, g: ref.__setitem__(..., ref[...] + g))


def test_a_gradient_set_aside():
    def f(x, ref):
        return put(ref, mnp.sin(x)) * 2

    r = mj.new_ref(0.0)
    np.testing.assert_allclose(mj.grad(f)(1.0, r), 1.0806046)
    assert float(r[...]) == 2.0
    r[...] = 0.0
    np.testing.assert_allclose(mj.jit(mj.grad(f))(2.0, r), -0.8322937, rtol=1e-6)
    assert float(r[...]) == 2.0
    _, pull = mj.vjp(lambda x: f(x, r), 3.0)
    r[...] = 0.0
    pull(3.0)
    assert float(r[...]) == 6.0  # when it is pulled back
    np.testing.assert_allclose([f(1.0, r), mj.jit(f)(1.0, r)], [1.6829419] * 2)
    assert float(r[...]) == 6.0


def test_a_rule_that_closes_over_its_ref_and_trees_of_them():
    r = mj.new_ref(0.0)
    identity = mj.custom_vjp(lambda x: x)
    identity.defvjp(lambda x: (x, None), lambda _, g: (r.__setitem__(..., g), (g,))[1])
    assert float(mj.grad(lambda x: identity(x * 2) * 3)(1.0)) == 6.0 and float(r[...]) == 3.0
    refs = {"a": mj.new_ref(mnp.zeros(2)), "b": mj.new_ref(mnp.zeros(()))}

    def loss(w, refs):
        return put(refs["b"], mnp.sum(put(refs["a"], w * 2) ** 2))

    np.testing.assert_array_equal(mj.jit(mj.grad(loss))(mnp.arange(2.0), refs), [0, 8])
    np.testing.assert_array_equal(value(refs["a"]), [0, 4])
    assert float(refs["b"][...]) == 1.0


@pytest.mark.parametrize("transform", [lambda f: f, mj.jit])
def test_gradients_added_up_in_loops_branches_and_checkpoints(transform):
    r = mj.new_ref(0.0)

    def in_scan(x):
        return lax.scan(lambda c, _: (add(r, c) * 1.5, None), x, None, length=3)[0]

    assert float(transform(mj.grad(in_scan))(1.0)) == 3.375 and float(r[...]) == 7.125
    transform(mj.grad(in_scan))(1.0)
    assert float(r[...]) == 14.25
    r[...] = 0.0
    step = transform(mj.grad(mj.checkpoint(lambda x: mnp.sin(add(r, x * 2)))))
    np.testing.assert_allclose([step(1.0), r[...]], [-0.8322937, -0.41614684], rtol=1e-6)
    r[...] = 0.0
    branch = transform(mj.grad(lambda x: lax.cond(x > 0, lambda x: add(r, x) * 2, lambda x: x * 3, x)))
    assert [float(branch(x)) for x in (1.0, -1.0)] == [2.0, 3.0] and float(r[...]) == 2.0


def test_several_additions_of_parts():
    part = stash(lambda ref, g: mj.ref.addupdate(ref, 1, g))
    r = mj.new_ref(mnp.full(3, 10.0))
    assert float(mj.grad(lambda x: part(r, part(r, x) * 3) * 2)(1.0)) == 6.0
    np.testing.assert_array_equal(value(r), [10, 18, 10])


def test_gradients_of_members_go_to_their_refs():
    r = mj.new_ref(mnp.zeros(3))
    slopes = mj.vmap(mj.grad(lambda x, r: add(r, x) * x))(mnp.arange(3.0), r)
    np.testing.assert_array_equal(slopes, [0, 2, 4])
    np.testing.assert_array_equal(value(r), [0, 1, 2])
    shared = mj.new_ref(0.0)
    with pytest.raises(ValueError, match="vmap: all members write to one Ref"):
        mj.grad(lambda x: mj.vmap(lambda x: add(shared, x) * x)(x).sum())(mnp.arange(3.0))


def test_what_does_not_reach_the_value_is_not_written():
    r = mj.new_ref(7.0)
    assert float(mj.grad(lambda x: (put(r, x), x * x)[1])(1.0)) == 2.0 and float(r[...]) == 7.0


def test_rules_that_read():
    scale = mj.new_ref(3.0)
    f = mj.custom_vjp(lambda x: x * scale[...])
    f.defvjp(lambda x: (x * scale[...], None), lambda _, g: (g * scale[...],))
    assert [float(mj.grad(f)(1.0)), float(mj.jit(f)(2.0))] == [3.0, 6.0]
    scale[...] = 5.0
    assert [float(mj.jit(mj.grad(f))(1.0)), float(f(1.0)), float(mj.jit(f)(2.0))] == [5.0, 5.0, 10.0]


def test_sharded_gradients_set_aside():
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    w, r = (mj.device_put(mnp.arange(10.0), sharding) for _ in range(2))
    r = mj.new_ref(r)
    mj.jit(mj.grad(lambda w: mnp.sum(add(r, w * 2) ** 2)))(w)
    np.testing.assert_array_equal(value(r), np.arange(10.0) * 5)
    assert r.sharding == sharding


def test_orders_that_are_not_known():
    r = mj.new_ref(0.0)
    with pytest.raises(NotImplementedError, match="sets a Ref.* which is the last to do so is not known"):
        mj.grad(lambda x: lax.scan(lambda c, _: (put(r, c) * 1.5, None), x, None, length=3)[0])(1.0)
    with pytest.raises(NotImplementedError, match="sets a Ref"):
        mj.grad(lambda x: put(r, put(r, x) * 2))(1.0)
    decay = stash(lambda ref, g: ref.__setitem__(..., ref[...] * 0.5 + g))
    with pytest.raises(NotImplementedError, match="may add to a Ref.*, or set all of it without reading it"):
        mj.grad(lambda x: decay(r, x))(1.0)
    assert float(r[...]) == 0.0


# -- ahead of time


def test_lowered_and_compiled():
    r, scale = mj.new_ref(mnp.zeros(2)), mj.new_ref(3.0)

    @mj.jit
    def f(r, x):
        r[...] += x * scale[...]
        return r[0]

    lowered = f.lower(r, 1.0)
    assert "stablehlo" in lowered.as_text() and float(r[0]) == 0.0
    compiled = lowered.compile()
    assert float(compiled(r, 2.0)) == 6.0
    scale[...] = 1.0
    other = mj.new_ref(mnp.ones(2))
    assert float(compiled(other, 2.0)) == 3.0
    np.testing.assert_array_equal(value(r), [6, 6])
    np.testing.assert_array_equal(value(other), [3, 3])
    with pytest.raises(NotImplementedError, match="uses refs, and is planned, exported and lowered in steps only without"):
        f.trace(r, 1.0).lower()


# -- cotangents that are added to refs


def test_cotangents_go_into_refs():
    value_, vjp = mj.vjp(lambda x, d: x * d["a"] + d["b"], 2.0, {"a": 3.0, "b": 1.0})
    total = mj.new_ref(mnp.float32(10))
    wanted = (total, {"a": mj.ad.GradValue(), "b": mj.ad.DontWant()})
    for turn in range(2):
        x, d = vjp.with_refs(*wanted)(2.0)
        assert (x, d["a"], d["b"]) == (mj.ad.GradRef(), 4.0, mj.ad.DidntWant())
        assert float(total[...]) == 16 + 6 * turn
    with pytest.raises(TypeError, match="with_refs: the arguments have the structure"):
        vjp.with_refs(total)


def test_cotangents_go_into_refs_in_loops():
    @mj.jit
    def accumulated(x):
        total = mj.new_ref(mnp.zeros(3))
        _, vjp = mj.vjp(mnp.sin, x)

        def body(carry, row):
            vjp.with_refs(total)(row)
            return carry, None

        lax.scan(body, None, mnp.ones((4, 3)))
        return total[...]

    x = mnp.arange(3.0)
    np.testing.assert_allclose(accumulated(x), 4 * np.cos(np.arange(3.0)), rtol=1e-5)
    outside = mj.new_ref(mnp.ones(3))
    mj.jit(lambda x, r: mj.vjp(mnp.sin, x)[1].with_refs(r)(mnp.ones(3)))(x, outside)
    np.testing.assert_allclose(value(outside), 1 + np.cos(np.arange(3.0)), rtol=1e-5)


# -- slices of refs


def add_number(c, ix):
    i, x = ix
    x[...] += i
    return c + x[...].sum(), x[...]


def whole():
    return mj.new_ref(mnp.arange(12.0).reshape(4, 3))


ADDED = np.arange(12.0).reshape(4, 3) + np.arange(4.0)[:, None]


@pytest.mark.parametrize("more", [{}, {"reverse": True}, {"unroll": 3}])
@pytest.mark.parametrize("jitted", [False, True])
def test_an_iteration_has_a_ref_of_its_slice(jitted, more):
    r = whole()

    def run(r):
        return lax.scan(add_number, 0.0, (mnp.arange(4.0), r), **more)

    total, ys = (mj.jit(run) if jitted else run)(r)
    assert float(total) == ADDED.sum()
    np.testing.assert_array_equal(ys, ADDED)
    np.testing.assert_array_equal(value(r), ADDED)


def test_slices_without_jit_of_keys_and_by_map():
    r, keys, s = whole(), mj.new_ref(mj.random.split(mj.random.key(0), 3)), mj.new_ref(mnp.arange(4.0))
    with mj.disable_jit():
        lax.scan(add_number, 0.0, (mnp.arange(4.0), r))
    np.testing.assert_array_equal(value(r), ADDED)
    before = keys[...]

    def fold(c, k):
        k[...] = mj.random.fold_in(k[...], 1)
        return c, None

    lax.scan(fold, None, keys)
    expected = mj.vmap(lambda k: mj.random.fold_in(k, 1))(before)
    np.testing.assert_array_equal(mj.random.key_data(keys[...]), mj.random.key_data(expected))

    def count(x):
        x[...] += 1
        return x[...]

    np.testing.assert_array_equal(lax.map(count, s), [1, 2, 3, 4])
    np.testing.assert_array_equal(lax.map(count, s, batch_size=2), [2, 3, 4, 5])
    np.testing.assert_array_equal(value(s), [2, 3, 4, 5])


def test_slices_of_slices_and_derivatives():
    r = mj.new_ref(mnp.arange(6.0).reshape(2, 3))

    def square(c, x):
        x[...] = x[...] ** 2
        return c, None

    lax.scan(lambda c, row: lax.scan(square, c, row), None, r)
    np.testing.assert_array_equal(value(r), np.arange(6.0).reshape(2, 3) ** 2)

    def f(x):
        r = mj.new_ref(mnp.arange(4.0) * x)
        lax.scan(square, None, r)
        return r[...].sum()

    for g in (mj.grad(f), mj.jit(mj.grad(f)), mj.grad(mj.checkpoint(f))):
        assert float(g(2.0)) == 56
    np.testing.assert_array_equal(mj.vmap(f)(mnp.arange(3.0)), [0, 14, 56])


def test_slices_of_a_sharded_ref():
    mesh = Mesh(np.array(mj.devices()[:4]), ("x",))
    r = mj.new_ref(mj.device_put(mnp.arange(24.0).reshape(3, 8), NamedSharding(mesh, P(None, "x"))))

    @mj.jit
    def run(r):
        return lax.scan(lambda c, x: (c, x.__setitem__(..., x[...] + 1)), None, r)[1]

    run(r)
    np.testing.assert_array_equal(value(r), np.arange(24.0).reshape(3, 8) + 1)


def test_a_ref_is_sliced_or_used_whole():
    r = mj.new_ref(mnp.arange(4.0))
    with pytest.raises(ValueError, match=r"(?s)scan: the function uses a Ref\{float32\[4\]\} that it gets slices of, too.*fix:"):
        lax.scan(lambda c, x: (c, x[...] + r[0]), None, r)
    with pytest.raises(ValueError, match=r"only one reference .*appeared at both args\[0\]\[0\] and args\[0\]\[1\]"):
        lax.scan(lambda c, x: (c, x[0][...]), None, (r, r))
    with pytest.raises(TypeError, match="scan: no_pair must return a pair"):
        lax.scan(no_pair, None, r)
    with pytest.raises(ValueError, match="mutable array references cannot be returned"):
        lax.scan(lambda c, x: (c, x), None, r)
    np.testing.assert_array_equal(value(r), np.arange(4.0))


def no_pair(c, x):
    return c


# -- shards of refs


LINE = Mesh(np.array(mj.devices()[:4]), ("x",))


AXIS = P("x")


def sharded(f, in_specs=AXIS, out_specs=None):
    return mj.shard_map(f, mesh=LINE, in_specs=in_specs, out_specs=out_specs)


@pytest.mark.parametrize("transform", [lambda f: f, mj.jit])
def test_code_for_single_devices_has_a_ref_of_its_shard(transform):
    r, s = mj.new_ref(mnp.arange(8.0)), mj.new_ref(1.0)

    def f(d, s, x):
        assert d["r"].shape == (2,)
        d["r"][0] += s[...] * lax.axis_index("x")
        s[...] += 1
        return d["r"][...] + x

    run = transform(sharded(f, (P("x"), P(), P("x")), P("x")))
    np.testing.assert_array_equal(run({"r": r}, s, mnp.ones(8)), [1, 2, 4, 4, 7, 6, 10, 8])
    np.testing.assert_array_equal(value(r), [0, 1, 3, 3, 6, 5, 9, 7])
    assert float(s[...]) == 2
    run({"r": r}, s, mnp.ones(8))
    np.testing.assert_array_equal(value(r), [0, 1, 5, 3, 10, 5, 15, 7])


def test_shards_of_refs_on_explicit_axes_of_keys_and_under_derivatives():
    mesh = mj.make_mesh((4,), ("x",), axis_types=mj.sharding.AxisType.Explicit, devices=mj.devices()[:4])
    with mj.set_mesh(mesh):
        r = mj.new_ref(mnp.zeros(8, out_sharding=P("x")))

        @mj.jit
        @mj.shard_map(out_specs=None)
        def count(r):
            r[...] += lax.axis_index("x")

        count(r)
        np.testing.assert_array_equal(value(r), [0, 0, 1, 1, 2, 2, 3, 3])
        assert r.sharding.spec == P("x")

    keys = mj.new_ref(mj.random.split(mj.random.key(0), 4))
    expected = mj.vmap(lambda k: mj.random.fold_in(k, 1))(keys[...])
    sharded(lambda k: k.__setitem__(0, mj.random.fold_in(k[0], 1)))(keys)
    np.testing.assert_array_equal(mj.random.key_data(keys[...]), mj.random.key_data(expected))

    def f(x):
        r = mj.new_ref(x * 1.0)
        sharded(lambda r: r.__setitem__(..., mnp.sin(r[...])))(r)
        return r[...].sum()

    x = np.arange(8, dtype=np.float32)
    for g in (mj.grad(f), mj.jit(mj.grad(f))):
        np.testing.assert_allclose(g(x), np.cos(x), rtol=1e-5)
    np.testing.assert_allclose(mj.vmap(f)(x.reshape(2, 4)), np.sin(x).reshape(2, 4).sum(1), rtol=1e-5)


def test_shards_of_refs_that_cannot_be_put_together():
    r = mj.new_ref(mnp.arange(8.0))
    with pytest.raises(TypeError, match=r"in_specs are None for a Ref, whose shards the function changes\n  fix: P\(...\)"):
        sharded(lambda r: None, (None,))(r)
    with pytest.raises(ValueError, match=r"result\['refs'\]\[0\] f32\[8\] may differ between the devices along 'x'"):
        sharded(lambda r: r.__setitem__(0, mnp.float32(lax.axis_index("x"))), P())(r)
    with pytest.raises(ValueError, match="only one reference"):
        sharded(lambda a, b: None)(r, r)
    np.testing.assert_array_equal(value(r), np.arange(8.0))
