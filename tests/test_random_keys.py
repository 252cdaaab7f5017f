"""Arrays of keys are arrays: what JAX says of some five hundred expressions over them, recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
import meshjit.sharding
from meshjit.numpy import key_arrays
from tests.tools import key_scenarios

pytestmark = pytest.mark.device

EXPECTED: dict[str, str] = json.loads(key_scenarios.GOLDEN.read_text())

# What differs on purpose: (what meshjit does, why).
NO_NUMBERS = "what computes with numbers is a TypeError for keys, whichever function it is"
OTHERWISE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "lax.convert_element_type(k, 'uint32')", "lax.bitcast_convert_type(k,jnp.uint32)", "jnp.pad(ks,1)",
            'jnp.astype(ks,"uint32")', "jnp.dot(ks,ks)", "jnp.matmul(ks,ks)", "ks@ks", "jnp.argmax(ks)", "jnp.any(ks)",
            "jnp.all(ks)", 'jnp.einsum("i->i",ks)',
        ),
        ("raises TypeError", NO_NUMBERS),
    ),
    "random.fold_in(k, 1.5)": ("raises TypeError", "a fraction would be lost without a word"),
    "jnp.full_like(ks, 1)": ("raises ValueError", "a number is no key; jnp.ones_like makes keys whose words are 1"),
    "lax.scan(lambda c,k: (c, random.uniform(k)), 0, k)[1]": ("raises ValueError", "JAX's is an accident: tuple index out of range"),
    "lax.associative_scan(lambda a,b: b, ks).shape": ("tuple(6)", "JAX's is an accident"),
    "lax.with_sharding_constraint(ks, place('x'))": (
        "key<fry>[6] 1797259609 2579123966 928981903 3453687069 4146024105 2718843009 2467461003 3840466878 2285895361 433833334"
        " 1524306142 1887795613 2285895361 433833334 1524306142 1887795613", "extents need not divide"
    ),
    "jax.shard_map(lambda k: lax.all_gather(k,'x'), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8)).shape": (
        "tuple(16, 2)", "JAX cannot lower it"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    return key_scenarios.names(mj, mnp, meshjit.sharding)


def test_what_is_recorded_is_what_is_tried() -> None:
    assert list(EXPECTED) == key_scenarios.expressions()
    assert set(OTHERWISE) <= set(EXPECTED)


@pytest.mark.parametrize("expression", list(EXPECTED))
def test_keys_do_what_jax_does(expression: str, scope: dict[str, Any]) -> None:
    expected = OTHERWISE.get(expression, (EXPECTED[expression], ""))[0]
    assert key_scenarios.outcome(expression, scope) == expected


# -- sharded, of extents that do not divide


@pytest.fixture(scope="module")
def seven() -> Any:
    """Seven keys on four devices."""
    return mj.device_put(mj.random.split(mj.random.key(5), 7), on("x"))


def on(*spec: Any) -> Any:
    return mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P(*spec))


def same(got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(mj.random.key_data(got), mj.random.key_data(expected))


MOVES = [
    lambda k: k[2:6],
    lambda k: k[mnp.array([6, 0, 3])],
    lambda k: k.at[4].set(k[0]),
    lambda k: mnp.concatenate([k, k[:2]]),
    lambda k: mnp.stack([k, k], 1).reshape(2, 7),
    lambda k: mnp.where(mnp.arange(7) % 2 == 0, k, k[1]),
    lambda k: mnp.roll(k, 3)[None].T,
    lambda k: mnp.take(k, mnp.array([1, 9]), mode="clip"),
    lambda k: mj.vmap(lambda q: mj.random.split(q, 3))(k),
    lambda k: mj.lax.scan(lambda c, q: (mj.random.fold_in(c, 1), q), k[0], k)[1],
    lambda k: mj.lax.cond(True, lambda q: q[::-1], lambda q: q, k),
]


@pytest.mark.parametrize("move", MOVES)
def test_sharded_keys_of_uneven_counts_are_moved(move: Any, seven: Any) -> None:
    alone = mj.random.split(mj.random.key(5), 7)
    same(mj.jit(move)(seven), move(alone))
    same(move(seven), move(alone))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_words_of_sharded_results_are_those_of_one_device(impl: str) -> None:
    key = mj.random.key(3, impl=impl)
    for shape, spec in [((7, 8), (None, "x")), ((7, 3), ("x",)), ((5,), ("x",)), ((6, 4), ("x",)), ((0, 4), ("x",)), ((9, 16), ("x", None))]:
        drawn = mj.jit(lambda k, shape=shape: mj.random.bits(k, shape), out_shardings=on(*spec))(key)
        np.testing.assert_array_equal(drawn, mj.random.bits(key, shape))


def test_a_sharded_rbg_draw_needs_no_communication() -> None:
    draw = mj.jit(lambda k: mj.random.normal(k, (64, 16)), out_shardings=on("x"))
    text = draw.lower(mj.random.key(3, impl="rbg")).compile().as_text()
    assert not any(word in text for word in ("all-reduce", "all-gather", "all-to-all", "collective-permute"))


def test_compiled_calls_take_keys_again_without_python() -> None:
    traced = []

    @mj.jit
    def split(tree: Any) -> Any:
        traced.append(tree)
        return {"k": mj.random.split(tree["k"])[1], "n": tree["n"] + 1}

    state = {"k": mj.random.key(0), "n": mnp.zeros(())}
    for _ in range(4):
        state = split(state)
    assert len(traced) == 1 and isinstance(traced[0]["k"], mj.Array) and isinstance(traced[0]["k"], mj.core.Tracer)
    assert repr(traced[0]["k"]) == "Traced<key<fry>[]>"
    with pytest.raises(TypeError, match=r"compiled for arguments \(\{'k': key<fry>\(\*\), 'n': \*\}\), called with \(\{'k': \*, 'n': \*\}\)"):
        split.lower(state).compile()({"k": mnp.zeros(2, "uint32"), "n": state["n"]})


def test_equal_eager_calls_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given beside keys is an argument of the Program, too: other values are not those of the first call."""
    traces: list[str] = []
    trace = key_arrays.trace_to_program
    monkeypatch.setattr(key_arrays, "trace_to_program", lambda *args: traces.append(args[3]) or trace(*args))
    keys, others = mj.random.split(mj.random.key(1), 4), mj.random.split(mj.random.key(2), 4)
    for mask in ([True, False, True, False], [False, False, True, True]):
        chosen = mnp.where(mnp.array(mask), keys, others)
        expected = np.where(np.array(mask)[:, None], mj.random.key_data(keys), mj.random.key_data(others))
        np.testing.assert_array_equal(mj.random.key_data(chosen), expected)
    for place in (1, 2, 1):
        assert mnp.stack([keys, others], place - 1).shape == ((2, 4) if place == 1 else (4, 2))
    assert traces == ["where", "stack", "stack"]


def test_donated_keys_are_given_up() -> None:
    key = mj.random.split(mj.random.key(1), 4)
    mj.jit(lambda k: k[::-1], donate_argnums=0)(key)
    assert key.is_deleted()


def test_another_implementation_compiles_again() -> None:
    double = mj.jit(lambda k: mnp.stack([k, k]))
    assert double(mj.random.key(0)).dtype != double(mj.random.key(0, impl="rbg")).dtype
    assert double(mj.random.key(0, impl="unsafe_rbg")).dtype.name == "key<urbg>"


def test_errors_of_keys_name_what_was_given() -> None:
    keys = mj.random.split(mj.random.key(0), 3)
    with pytest.raises(TypeError, match=r"argument 0 is an array of keys, key<fry>\[3\]: keys are no numbers\n  at test_random_keys.py:\d+"):
        mnp.sin(keys)
    with pytest.raises(ValueError, match=r"where: key<fry> and numbers promote to no common dtype\n  at test_random_keys.py:\d+"):
        mnp.where(True, keys, 0)
    with pytest.raises(TypeError, match=r"keys.at\[...\].set: keys of dtype key<fry> were given a int\n  at test_random_keys.py:\d+"):
        keys.at[0].set(1)
    with pytest.raises(ValueError, match=r"device_put of x: P\('x', None\) has 2 entries for keys of 1 dims, key<fry>\n  fix: leave out"):
        mj.device_put(keys, on("x", None))
    with pytest.raises(ValueError, match="vmap: in_axes is 0 for k"):
        mj.vmap(lambda k: k)(keys[0])


def test_keys_become_nothing_else() -> None:
    with pytest.raises(NotImplementedError, match=r"key<fry>\[\] has no other dtype to become, float32 was asked for"):
        mj.random.key(0).astype(np.float32)


@pytest.mark.device
def test_bits_of_the_generator_of_xla() -> None:
    """Words and following keys as JAX 0.10.2 gives them on a CPU."""
    key = np.array([5, 7, 0xFFFFFFFE, 3], np.uint32)
    for shape, following in [((), (0xFFFFFFFF, 3)), ((5,), (0, 4)), ((100,), (23, 4)), ((0,), (0xFFFFFFFE, 3))]:
        after, bits = mj.jit(lambda k, s=shape: mj.lax.rng_bit_generator(k, s))(key)
        assert bits.shape == shape and np.asarray(after).tolist() == [5, 7, *following]
        assert np.asarray(bits).ravel()[:3].tolist() == [1509899399, 3113188981, 3348645693][: min(bits.size, 3)]
    assert np.asarray(mj.lax.rng_bit_generator(key, (3,), np.uint8)[1]).tolist() == [135, 117, 61]
    of_philox = mj.lax.rng_bit_generator(key, (3,), np.uint16, mj.lax.RandomAlgorithm.RNG_PHILOX)[1]
    assert np.asarray(of_philox).tolist() == [15495, 32373, 18237]
    after, bits = mj.lax.rng_bit_generator(key, (4,), np.uint64)  # 32 bits each
    of_32 = mj.lax.rng_bit_generator(key, (4,))
    assert bits.dtype == np.uint32 and [x.tolist() for x in (after, bits)] == [x.tolist() for x in of_32]
    with mj.enable_x64(True):
        after, bits = mj.lax.rng_bit_generator(key, (4,), np.uint64)
        assert np.asarray(after).tolist() == [5, 7, 0, 4]
        assert np.asarray(bits).tolist()[:3] == [13371044861172464775, 7338684130942011197, 3468122349664329091]
        wide = np.array([5 + (7 << 32), 0xFFFFFFFE + (3 << 32)], np.uint64)
        assert np.asarray(mj.lax.rng_bit_generator(wide, (5,))[0]).tolist() == [5 + (7 << 32), 4 << 32]
    with pytest.raises(TypeError, match=r"the key must be uint32\[4\] or uint64\[2\], got uint32\[2\]"):
        mj.lax.rng_bit_generator(key[:2], (3,))
    with pytest.raises(TypeError, match="bits of dtype int32"):
        mj.lax.rng_bit_generator(key, (3,), np.int32)
    with pytest.raises(ValueError, match="there is no Threefry with a counter in its key"):
        mj.lax.rng_bit_generator(key, (3,), algorithm=1)


def test_keys_by_their_dtype() -> None:
    assert mj.random.key(1, dtype="rbg").dtype == mj.random.key_dtype("rbg") != mj.random.key_dtype()
    assert mj.random.wrap_key_data(np.array([1, 2], np.uint32), dtype=mj.random.key_dtype("threefry2x32")).shape == ()
    with pytest.raises(ValueError, match=r"dtype and impl both say which keys\n.*\n  fix: give dtype alone"):
        mj.random.key(1, dtype="rbg", impl="rbg")


def test_keys_are_what_they_are() -> None:
    """What cleans a state of NaNs goes over its keys, too."""
    keys = mj.random.split(mj.random.key(0), 3)
    for fun in (lambda f, x: f(x), lambda f, x: mj.jit(f)(x), lambda f, x: mj.vmap(f)(x)):
        for name in ("nan_to_num", "conj", "real", "positive"):
            assert mnp.array_equal(fun(getattr(mnp, name), keys), keys) and fun(getattr(mnp, name), keys).dtype == keys.dtype
        assert fun(mnp.isfinite, keys).tolist() == [True] * 3 and fun(mnp.isnan, keys).tolist() == [False] * 3
    assert bool(mnp.isfinite(keys[0])) and not mnp.isnan(keys[:0]).shape[0]
