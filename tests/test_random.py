"""meshjit.random: JAX's numbers from JAX's keys (values pinned from jax 0.10.2), keys as arrays, no communication."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy as mnp, random
from meshjit.ops.random.threefry import threefry2x32
from meshjit.random.threefry import positions
from meshjit.sharding import NamedSharding, PartitionSpec as P


def same(got: Any, want: Any) -> None:
    """Integers and bools equal, floats to the last place."""
    array = np.asarray(got)
    expected = np.asarray(want, array.dtype)
    if array.dtype.kind in "iub":
        np.testing.assert_array_equal(array, expected)
    else:
        np.testing.assert_allclose(array, expected, rtol=3e-7, atol=0)


@pytest.fixture
def key() -> random.PRNGKeyArray:
    return random.key(42)


@pytest.fixture
def original() -> Iterator[None]:
    with mj.config.using(threefry_partitionable=False):
        yield


# -- the generator


@pytest.mark.parametrize(
    ("operands", "words"),
    [
        ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers_of_random123(operands: tuple[int, ...], words: tuple[int, int]) -> None:
    got = threefry2x32.evaluate(*(np.uint32(x) for x in operands))
    assert tuple(int(x) for x in got) == words


def test_many_words_are_made_once_on_cpu(key: Any) -> None:
    """Two kernels read them; neither has the rounds in it. What they are made in is a loop of one trip."""

    def pair(k: Any) -> Any:
        z = random.uniform(k, (2, 4096))
        return mnp.cumsum(z[0]), mnp.sum(z[0] * z[1]), mnp.sort(z[1])

    for draw, given in ((pair, key), (mj.vmap(pair), random.split(key))):
        text = mj.jit(draw).lower(given).compile().as_text()
        rounds = [part.count(" xor(") for part in text.split("\n\n")]
        assert sum(n > 15 for n in rounds) == 1
    same(random.bits(key, (4096,))[:900], random.bits(key, (900,)))
    found = random.uniform(key, (2, 4096))
    np.testing.assert_allclose(mj.jit(pair)(key)[1], np.sum(np.prod(np.asarray(found, np.float64), 0)), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_words_are_made_apart_on_cpu(key: Any, dtype: str) -> None:
    """LLVM does not end where they are hashed in a loop over 16 places that finds a minimum."""

    def normalized(k: Any) -> Any:
        x = random.uniform(random.split(k)[0], (16, 3), dtype)
        lowest, highest = mnp.nanmin(x, 0), mnp.nanmax(x, 0)
        return mnp.stack([x, mnp.where(mnp.allclose(highest, lowest), 0.0, (x - lowest) / (highest - lowest))])

    with mj.enable_x64(dtype == "float64"):
        lowered = mj.jit(normalized).lower(key)
        lines = lowered.as_text().splitlines()
        depths = itertools.accumulate(line.count("{") - line.count("}") for line in lines)
        rounds = {depth for line, depth in zip(lines, depths, strict=True) if '"stablehlo.xor"' in line}
        assert min(rounds) > 2, "outside of loops, in which case the next line does not end"
        x, result = lowered.compile()(key)
    x = np.asarray(x)
    np.testing.assert_allclose(result, (x - x.min(0)) / (x.max(0) - x.min(0)), rtol=1e-6)


def test_positions_past_32_bits_carry_into_the_high_word() -> None:
    """The program only: nothing of that size is ever made."""
    shape = (3, 2**31)
    small, large = (mj.jit(lambda s=s: positions(s)).trace().program for s in ((3, 2), shape))
    assert [v.type.shape for v in large.outputs] == [shape, shape]
    assert "u64" not in str(small) and "u64[3, 2147483648] = iota()" in str(large)


# -- numbers, in both forms


def test_partitionable_numbers(key: Any) -> None:
    same(random.key_data(random.split(key)), [[1832780943, 270669613], [64467757, 2916123636]])
    same(random.key_data(random.fold_in(key, 7)), [2547012911, 1371500959])
    same(random.bits(key, (5,), "uint8"), [162, 217, 249, 215, 21])
    same(random.bits(key, (3,), "uint16"), [5026, 12505, 63993])
    same(random.bits(key, (2, 3)), [[2098992034, 2919706841, 2646866425], [2409546199, 1935504149, 2516274904]])
    same(random.uniform(key, (3,)), [0.48870956897735596, 0.6797971725463867, 0.6162714958190918])
    same(random.normal(key, (3,)), [-0.02830461598932743, 0.4671318531036377, 0.2957029640674591])
    same(random.randint(key, (6,), -3, 7), [1, 1, -2, 6, 6, 6])
    same(random.permutation(key, 6), [4, 2, 5, 3, 0, 1])


def test_original_numbers(key: Any, original: None) -> None:
    same(random.key_data(random.split(key)), [[2465931498, 3679230171], [255383827, 267815257]])
    same(random.key_data(random.fold_in(key, 7)), [2547012911, 1371500959])
    same(random.bits(key, (5,), "uint8"), [45, 179, 215, 3, 244])
    same(random.bits(key, (3,), "uint16"), [45869, 983, 33780])
    same(random.bits(key, (2, 3)), [[3134548294, 3733159049, 3746501087], [894150801, 801545058, 2363201431]])
    same(random.uniform(key, (3,)), [0.5741443634033203, 0.1001582145690918, 0.059461116790771484])
    same(random.normal(key, (3,)), [0.18693546950817108, -1.2806504964828491, -1.559313178062439])
    same(random.randint(key, (6,), -3, 7), [-1, 0, 6, 6, 1, 3])
    same(random.permutation(key, 6), [3, 0, 2, 1, 5, 4])


NUMBERS = [
    ("exponential", {"shape": (2,)}, [0.670817494392395, 1.1388006210327148]),
    ("gumbel", {"shape": (2,)}, [0.3340933918952942, 0.952019453048706]),
    ("laplace", {"shape": (2,)}, [0.022839652374386787, -0.4456535577774048]),
    ("logistic", {"shape": (2,)}, [-0.0451694130897522, 0.7528398036956787]),
    ("cauchy", {"shape": (2,)}, [-0.03548463061451912, 0.6337261199951172]),
    ("rademacher", {"shape": (5,)}, [1, -1, -1, -1, 1]),
    ("truncated_normal", {"lower": -1, "upper": 1, "shape": (2,)}, [-0.01932193711400032, 0.3126998543739319]),
    (
        "normal",
        {"shape": (2,), "dtype": np.complex64},
        [0.05368746072053909 + 0.4283398389816284j, -0.34389618039131165 + 0.5650094747543335j],
    ),
    ("choice", {"a": 5, "shape": (4,)}, [4, 4, 1, 4]),
    ("choice", {"a": 5, "shape": (3,), "replace": False}, [4, 2, 3]),
    ("choice", {"a": 4, "shape": (4,), "p": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}, [2, 2, 2, 2]),
    ("categorical", {"logits": np.arange(4, dtype=np.float32), "shape": (6,)}, [3] * 6),
]


@pytest.mark.parametrize(("name", "arguments", "want"), NUMBERS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(NUMBERS)])
def test_distributions(name: str, arguments: dict[str, Any], want: Any, key: Any) -> None:
    same(getattr(random, name)(key, **arguments), want)


def test_small_floats_are_made_of_eight_bits(key: Any) -> None:
    got = random.uniform(key, (3,), mj.numpy.bfloat16)
    same(np.asarray(got).astype(np.float32), [0.6328125, 0.84375, 0.96875])


def test_documented_selu_example() -> None:
    def selu(x: Any, alpha: float = 1.67, scale: float = 1.05) -> Any:
        return scale * np.where(x > 0, x, alpha * np.exp(x) - alpha)

    drawn = [np.asarray(random.normal(random.key(0), (10,)))]
    with mj.config.using(threefry_partitionable=False):
        drawn.append(np.asarray(random.normal(random.key(0), (10,))))
    today = [1.7037742, 2.1265278, -0.616925, -0.13257582, 0.18489543, -1.0901651, -0.68493664]
    before = [-0.54485, 0.27744, -0.29255, -0.91421, -0.62452, -0.24748, -0.85743, -0.78232, 0.76827, 0.59566]
    np.testing.assert_allclose(selu(drawn[0])[:7], today, rtol=1e-6)
    np.testing.assert_allclose(selu(drawn[1]), before, atol=1e-5)  # written down to five places, cut off


# -- keys


@pytest.mark.parametrize(
    ("seed", "words"), [(0, (0, 0)), (-1, (0, 2**32 - 1)), (2**40 + 7, (0, 7)), (np.int8(-3), (0, 2**32 - 3)), (True, (0, 1))]
)
def test_seeds(seed: Any, words: tuple[int, int]) -> None:
    same(random.key_data(random.key(seed)), words)
    same(random.PRNGKey(seed), words)


def test_wide_seeds_count_in_full_under_x64() -> None:
    with mj.config.using(enable_x64=True):
        same(random.PRNGKey(2**40 + 7), (256, 7))
        same(random.PRNGKey(-1), (2**32 - 1, 2**32 - 1))
        same(random.PRNGKey(np.int32(-1)), (0, 2**32 - 1))


def test_a_key_is_a_small_array(key: Any) -> None:
    keys = random.split(key, (2, 3))
    assert (keys.shape, keys.ndim, keys.size, str(keys.dtype)) == ((2, 3), 2, 6, "key<fry>")
    assert keys[1].shape == (3,) and keys[:, 0].shape == (2,) and keys[..., None].shape == (2, 3, 1)
    assert [row.shape for row in keys] == [(3,), (3,)] and keys.reshape(6).shape == keys.flatten().shape == (6,)
    first, second = random.split(key)
    same(random.key_data(first), [1832780943, 270669613])
    same(random.normal(second), random.normal(random.key_data(second)))
    same(random.key_data(random.wrap_key_data(random.key_data(keys))), random.key_data(keys))
    assert len(mj.tree.leaves(keys)) == 1


def test_raw_keys_stay_raw() -> None:
    raw = random.PRNGKey(3)
    assert raw.shape == (2,) and random.split(raw).shape == (2, 2) and random.fold_in(raw, 1).shape == (2,)
    same(random.normal(raw, (4,)), random.normal(random.key(3), (4,)))


def test_traced_keys_and_seeds(key: Any) -> None:
    def draw(k: Any) -> Any:
        k, sub = random.split(k)
        return random.normal(sub, (3,)), random.fold_in(k, 5)

    numbers, folded = mj.jit(draw)(key)
    plain_numbers, plain_folded = draw(key)
    same(numbers, plain_numbers)
    same(random.key_data(folded), random.key_data(plain_folded))
    same(random.key_data(mj.jit(random.key)(np.int32(-5))), (0, 2**32 - 5))


def test_vmap_over_keys_draws_what_each_key_draws(key: Any) -> None:
    keys = random.split(key, 3)
    together = mj.vmap(lambda k: random.normal(k, (2,)))(keys)
    same(together, np.stack([np.asarray(random.normal(k, (2,))) for k in keys]))
    same(mj.vmap(lambda k, n: random.key_data(random.fold_in(k, n)), in_axes=(None, 0))(key, np.arange(2)),
         [np.asarray(random.key_data(random.fold_in(key, n))) for n in range(2)])  # fmt: skip


# -- properties


def test_uniform_stays_between_its_bounds(key: Any) -> None:
    for dtype, (low, high) in itertools.product(("float32", "float16", "bfloat16"), [(0, 1), (-3, 5), (2, 2)]):
        x = np.asarray(random.uniform(key, (2000,), dtype, low, high)).astype(np.float64)
        assert (x >= low).all() and ((x < high).all() or low == high or dtype != "float32")


def test_randint_takes_bounds_of_any_kind(key: Any) -> None:
    same(random.randint(key, (4,), 5, 5), [5] * 4)
    x = np.asarray(random.randint(key, (3000,), 0, 2**31))
    assert x.min() >= 0 and x.max() > 2**30
    x = np.asarray(random.randint(key, (3000,), -(2**31), 2**31))
    assert x.min() < -(2**30) and x.max() > 2**30
    assert set(np.asarray(random.randint(key, (3000,), 0, 300, np.uint8))) == set(range(256))
    bounds = np.array([1, 10, 100], np.uint8)
    x = np.asarray(random.randint(key, (50, 3), 0, bounds))
    assert (x < bounds).all() and (x.max(0) >= bounds // 2).all()


def test_permutations_hold_every_element_once(key: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows = np.asarray(random.permutation(key, x))
    assert sorted(map(tuple, rows)) == sorted(map(tuple, x)) and not np.array_equal(rows, x)
    loose = np.asarray(random.permutation(key, x, axis=1, independent=True))
    np.testing.assert_array_equal(np.sort(loose, 1), x)
    assert sorted(np.asarray(random.choice(key, 9, (9,), replace=False))) == list(range(9))


def test_choice_follows_its_probabilities(key: Any) -> None:
    p = np.array([0, 0.5, 0, 0.25, 0.25], np.float32)
    drawn = np.asarray(random.choice(key, 5, (4000,), p=p))
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 4000, p, atol=0.03)
    few = np.asarray(random.choice(key, np.array([1.5, 2.5, 3.5], np.float32), (2,), replace=False, p=np.array([0, 1, 1])))
    assert sorted(few) == [2.5, 3.5]


def test_categorical_without_replacement_draws_different_ones(key: Any) -> None:
    drawn = np.asarray(random.categorical(key, np.zeros((5, 4), np.float32), shape=(4, 5), replace=False))
    np.testing.assert_array_equal(np.sort(drawn, 0), np.repeat(np.arange(4)[:, None], 5, 1))


def test_truncated_normal_is_open_at_its_bounds(key: Any) -> None:
    x = np.asarray(random.truncated_normal(key, 0.0, 1e-6, (500,)))
    assert (x > 0).all() and (x < np.float32(1e-6)).all()


def test_bounds_have_gradients(key: Any) -> None:
    u = float(random.uniform(key, ()))
    low, high = mj.grad(lambda a, b: random.uniform(key, (), minval=a, maxval=b), argnums=(0, 1))(1.0, 3.0)
    np.testing.assert_allclose((low, high), (1 - u, u), rtol=1e-6)


# -- placement


@pytest.mark.parametrize("shape", [(8, 6), (7, 5), (3, 9, 4)])
def test_sharded_numbers_are_the_same_and_cost_no_communication(shape: tuple[int, ...], key: Any) -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    draw = mj.jit(lambda k: random.normal(k, shape), out_shardings=NamedSharding(mesh, P("x", "y")))
    same(draw(key), random.normal(key, shape))
    text = draw.lower(key).compile().as_text()
    for collective in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
        assert collective not in text


# -- errors

ERRORS = [
    (lambda k: random.split(np.arange(3)), TypeError, r"random.split: expected a key, got i64\[3\]"),
    (lambda k: random.normal(0), TypeError, r"random.normal: expected a key, got int\n.*\n  fix: random.key\(seed\)"),
    (lambda k: random.normal(random.split(k)), ValueError, r"takes a single key, got an array of keys of shape \(2,\)"),
    (lambda k: random.key(1.5), TypeError, r"random.key: the seed must be an integer, got f32\[\]"),
    (lambda k: random.key([1, 2]), TypeError, r"the seed must be a scalar, got i32\[2\]\n.*\n  fix: vmap\(random.key\)"),
    (lambda k: random.key(0, impl="mt"), ValueError, "unrecognized PRNG implementation 'mt'; there are \"threefry2x32\", \"rbg\", "),
    (lambda k: random.fold_in(k, -1), OverflowError, "-1 does not fit into 32 bits"),
    (lambda k: random.uniform(k, (3,), np.int32), ValueError, "random.uniform: dtype must be a float dtype, got int32"),
    (lambda k: random.uniform(k, (3,), minval=np.zeros(2)), ValueError, r"shapes \(2,\), \(\) .*|shapes .*do not fit"),
    (lambda k: random.bits(k, (), np.int32), ValueError, "dtype must be an unsigned integer dtype, got int32"),
    (lambda k: random.randint(k, (), 0, 1, np.float32), TypeError, "dtype must be an integer dtype, got float32"),
    (lambda k: random.randint(k, (), 0, 1.5), TypeError, r"maxval must be an integer, got f32\[\]"),
    (lambda k: random.choice(k, 3, (4,), replace=False), ValueError, "4 elements cannot be drawn from 3 without"),
    (lambda k: random.choice(k, 3, p=np.ones(2)), ValueError, r"p has shape \(2,\), but there are 3 elements"),
    (lambda k: random.permutation(k, 2.5), TypeError, "x must be a Python int or an array of one dim or more"),
    (lambda k: random.categorical(k, np.zeros(3, np.float32), shape=(5,), replace=False), ValueError, "5 draws cannot"),
    (lambda k: random.gumbel(k, mode="best"), ValueError, 'mode must be "low" or "high", got \'best\''),
    (lambda k: random.rademacher(k, (3,), bool), TypeError, r"bool has no -1, .* True\n.*\n  fix: bernoulli\(key, 0.5, shape\)"),
    (lambda k: np.asarray(k), TypeError, r"random.key_data\(keys\) are their words"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_say_what_was_given_and_where(call: Any, kind: type[Exception], message: str, key: Any) -> None:
    with pytest.raises(kind, match=message):
        call(key)


def test_keys_are_compared_one_by_one(key: Any) -> None:
    keys, other = random.split(key, 3), random.key(1)
    for result, want in [
        (key == random.wrap_key_data(random.key_data(key)), True),
        (key != other, True),
        (keys == keys, [True] * 3),
        (keys[1] == keys, [False, True, False]),
        (keys != keys[:1], [False, True, True]),
        (random.split(key, (2, 3)) == keys, [[True] * 3, [False] * 3]),
        (random.split(key, 0) == key, np.zeros(0, bool)),
        (mj.jit(lambda a, b: a == b)(keys, keys[2]), [False, False, True]),
        (mj.vmap(lambda a: a != keys[0])(keys), [False, True, True]),
    ]:
        assert result.dtype == bool and result.shape == np.shape(want)
        np.testing.assert_array_equal(result, want)
    assert other in [key, random.key(1)] and [key, other].index(random.key(1)) == 1
    assert (key == None) is False and (key != "a") is True  # noqa: E711


def test_sharded_keys_are_compared_where_they_lie(key: Any) -> None:
    place = NamedSharding(mj.make_mesh((4,), ("x",)), P("x"))
    keys = mj.device_put(random.split(key, 7), place)
    same = keys == random.split(key, 7)[3]
    assert same.sharding == place
    np.testing.assert_array_equal(same, np.arange(7) == 3)


def test_keys_are_no_numbers_and_cannot_be_hashed(key: Any) -> None:
    for other in (1, 2.5, np.zeros(2), random.key_data(key), [key], np.uint32(3)):
        for compare in (lambda x: key == x, lambda x: key != x):
            with pytest.raises(TypeError, match=r"equal: key<fry> and numbers promote to no common dtype\n  at test_random.py:"):
                compare(other)
    with pytest.raises(TypeError):
        _ = random.key_data(key) == key
    with pytest.raises(ValueError, match=r"shapes \(2, 3\), \(2,\) do not fit together"):
        _ = random.split(key, (2, 3)) == random.split(key)
    with pytest.raises(TypeError, match="unhashable"):
        hash(key)


@pytest.mark.parametrize(("bounds", "dtype"), [((-(2**40), 5), None), ((0, 2**31 + 1), None), ((0, 2**40), "int8"), ((0, 2**32 + 1), "uint32")])
def test_bounds_that_no_default_integer_holds_are_an_error(bounds, dtype, key: Any) -> None:
    with pytest.raises(OverflowError, match=r"random.randint: (min|max)val -?\d+ is out of the range of \w+\n  at test_random.py"):
        random.randint(key, (2,), *bounds, dtype)
    with mj.enable_x64(True):
        assert random.randint(key, (2,), *bounds).dtype == np.int64


def test_one_past_the_largest_integer_is_an_upper_bound(key: Any) -> None:
    assert random.randint(key, (100,), 0, 2**31).min() >= 0
    assert int(random.randint(key, (100,), 0, 2**32, "uint32").max()) > 2**31
