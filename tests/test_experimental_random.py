"""`jax.experimental.random`: a generator that counts its draws. The numbers are JAX 0.10.2's."""

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.experimental.random import StatefulPRNG, stateful_rng


def near(a, b):
    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


def words(keys):
    return np.asarray(mj.random.key_data(keys)).tolist()


def test_draws_are_those_of_jax() -> None:
    rng = stateful_rng(7)
    near(rng.random(2), [0.8673704862594604, 0.5563143491744995])
    near(rng.uniform(-1, 1, 2), [0.3502671718597412, 0.6523528099060059])
    near(rng.normal(size=2), [-0.8203861713409424, -0.648158073425293])
    assert np.asarray(rng.integers(0, 10, 4)).tolist() == [3, 4, 1, 7]
    assert words(rng.key()) == [51277378, 3088387524]
    assert words(rng.key(2)) == [[3742030581, 1645529880], [642971876, 1539747960]]
    near(mj.vmap(lambda part: part.random())(rng.split(2)), [0.44743847846984863, 0.42990827560424805])
    near([float(child.random()) for child in rng.spawn(2)], [0.8486789464950562, 0.20188581943511963])
    near(mj.jit(rng.uniform)(), 0.5669276714324951)


def test_shapes_and_dtypes() -> None:
    rng = stateful_rng(0)
    assert rng.normal(mnp.zeros((2, 1)), mnp.ones(3)).shape == (2, 3)
    assert rng.uniform(np.zeros((2, 1)), 1, (4, 2, 3)).shape == (4, 2, 3)
    assert rng.random(2, "float16").dtype == np.float16 and rng.normal(dtype="bfloat16").dtype == mnp.bfloat16
    assert rng.integers(5, size=3, dtype="int8").dtype == np.int8 and rng.integers(5).shape == ()
    assert rng.split((2, 3))._counter.shape == (2, 3) and rng.spawn(0) == [] and rng.random(0).shape == (0,)


def test_each_call_of_a_compiled_function_draws_anew() -> None:
    rng = stateful_rng(0)
    draw = mj.jit(lambda: rng.random())
    assert len({float(draw()), float(draw()), float(rng.random())}) == 3
    as_argument = mj.jit(lambda g: g.random(2))
    assert not np.array_equal(as_argument(rng), as_argument(rng))
    total, _ = mj.lax.scan(lambda c, x: (c + rng.random(), x), 0.0, mnp.arange(4.0))
    fifth_to_eighth = [mj.random.uniform(mj.random.fold_in(mj.random.key(0), n)) for n in range(5, 9)]
    near(total, sum(fifth_to_eighth))
    assert int(rng._counter[...]) == 9


def test_numbers_of_a_sharded_shape_are_the_same() -> None:
    place = mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x"))
    rng, other = stateful_rng(3), stateful_rng(3)
    drawn = mj.jit(lambda g: g.normal(size=13), out_shardings=place)(rng)
    np.testing.assert_array_equal(drawn, other.normal(size=13))


def test_generators_are_trees_and_print() -> None:
    rng = stateful_rng(0)
    assert isinstance(rng, StatefulPRNG) and len(mj.tree.leaves(rng)) == 2
    assert repr(rng).startswith("StatefulPRNG(_base_key=Array((), dtype=key<fry>)") and "_counter=Ref(0, dtype=int32" in repr(rng)
    assert "key<rbg>" in repr(stateful_rng(3, impl="rbg"))
    assert 0 <= float(stateful_rng().random()) < 1


def test_errors() -> None:
    rng = stateful_rng(0)
    with pytest.raises(ValueError, match=r"a generator split into \(3,\) draws nothing itself\n  at test_experimental_random.py"):
        rng.split(3).random()
    with pytest.raises(TypeError, match=r"stateful_rng without a seed in a traced function: .*\n  at test_experimental_random.py"):
        mj.jit(lambda: stateful_rng().random())()
    assert 0 <= float(mj.jit(lambda: stateful_rng(3).random())()) < 1
    with pytest.raises(ValueError, match="vmap: all members write to one Ref"):
        mj.vmap(lambda x: x + rng.random())(mnp.arange(2.0))
    with pytest.raises(ValueError, match="StatefulPRNG needs a key, was given 1"):
        StatefulPRNG(1, 2)
    with pytest.raises(ValueError, match="returned a mutable array reference"):
        mj.jit(lambda: stateful_rng(3))()
