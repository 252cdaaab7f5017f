"""`random_gamma`: gamma-distributed numbers, of a key per element. Each element draws until it accepts, on its own.

Operands: the two words of the keys, u32, and the shape parameter, a float. Params: log_space (the result is the logarithm),
partitionable (which form of threefry splits keys and makes bits, see `meshjit.random.threefry`). G. Marsaglia and W. W. Tsang,
"A simple method for generating gamma variables", 2000; for a shape a < 1 of Γ(a + 1), times U^(1/a). Keys are split as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from meshjit.core.op import Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.ops.base.arithmetic import divide, maximum, multiply
from meshjit.ops.base.bits import bitcast_convert, or_, shift_left, shift_right_logical, xor
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.conversion import convert, in_dtype
from meshjit.ops.base.families import SAMPLE_SHAPES, elementwise, require
from meshjit.ops.base.transcendental import exponential
from meshjit.ops.random.threefry import threefry2x32
from meshjit.ops.special.formula import Value, erf_inv, iterate, log, log1p, sqrt, where, written
from meshjit.ops.special.igamma import random_gamma_grad

Array = np.ndarray[Any, Any]
U32 = DTYPES["u32"]
_SQUEEZE = 0.0331  # of Marsaglia and Tsang: most numbers are accepted without a logarithm


class Keys(NamedTuple):
    """A key per element: its two words."""

    high: Var
    low: Var

    def words(self, high: int, low: int) -> tuple[Var, Var]:
        """The two words of one counter."""
        return threefry2x32(*self, *(full_like(self.high, n) for n in (high, low)))

    def split(self, count: int, partitionable: bool) -> list[Keys]:
        if partitionable:
            return [Keys(*self.words(0, i)) for i in range(count)]
        pairs = [self.words(i, count + i) for i in range(count)]  # one vector of words, hashed in two halves
        words = [pair[half] for half in range(2) for pair in pairs]
        return [Keys(*words[2 * i : 2 * i + 2]) for i in range(count)]

    def bits(self, width: int, partitionable: bool) -> Var:
        if width == 64:
            high, low = (convert(w, dtype=DTYPES["u64"]) for w in self.words(0, 0 if partitionable else 1))
            return or_(shift_left(high, full_like(high, 32)), low)
        first, second = self.words(0, 0)
        word = xor(first, second) if partitionable else first
        return word if width == 32 else convert(word, dtype=DTYPES[f"u{width}"])

    def uniform(self, dtype: np.dtype[Any], partitionable: bool) -> Var:
        """Floats in [0, 1)."""
        info = ml_dtypes.finfo(dtype)
        width, holder = info.bits if info.nmant >= 8 else 8, DTYPES[f"u{info.bits}"]
        bits = in_dtype(self.bits(width, partitionable), holder)
        bits = shift_right_logical(bits, full_like(bits, width - info.nmant))
        one = int(np.ones((), dtype).view(holder))
        return (Value(bitcast_convert(or_(bits, full_like(bits, one)), dtype=dtype)) - 1).var

    def normal(self, dtype: np.dtype[Any], partitionable: bool) -> Value:
        low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
        unit = Value(self.uniform(dtype, partitionable))
        spread = np.ones((), dtype) - low
        uniform = Value(maximum((unit * spread + low).var, full_like(unit.var, low)))
        return erf_inv(uniform) * np.sqrt(2).astype(dtype)


def _chosen(holds: Value, a: Keys, b: Keys) -> Keys:
    return Keys(*(select(holds.var, x, y) for x, y in zip(a, b, strict=True)))


def _formula(high: Value, low: Value, shape: Value, *, log_space: bool, partitionable: bool) -> Value:
    dtype, keys = shape.var.dtype, Keys(high.var, low.var)
    is_large = shape >= 1
    d = where(is_large, shape, shape + 1) - 1 / 3
    c = d.like(1 / 3) / sqrt(d)
    keys, key_of_boost = keys.split(2, partitionable)
    cube = _accepted(keys, c, d, partitionable)
    uniform = Value(key_of_boost.uniform(dtype, partitionable))
    if log_space:
        logarithm = log1p(-uniform)  # minus an exponential number
        boost = where(is_large | (logarithm == 0), 0.0, logarithm * (1 / shape))
        return log(d) + log(cube) + boost
    boost = where(is_large, 1.0, (1 - uniform) ** (1 / shape))
    return d * cube * boost


def _accepted(keys: Keys, c: Value, d: Value, partitionable: bool) -> Value:
    """(1 + c x)³ of normal numbers x, drawn until one is accepted."""
    dtype = c.var.dtype

    def refused(d: Value, square: Value, cube: Value, uniform: Value) -> Value:
        narrow = uniform >= 1 - _SQUEEZE * (square * square)
        return narrow & (log(uniform) >= square * 0.5 + d * ((1 - cube) + log(cube)))

    def draw(c: Value, d: Value, *state: Value) -> tuple[Value, list[Value]]:
        key, key_of_normal, key_of_uniform = Keys(state[0].var, state[1].var).split(3, partitionable)
        x, root = _positive(key_of_normal, c, partitionable)
        square, cube = x * x, root * root * root
        uniform = Value(key_of_uniform.uniform(dtype, partitionable))
        return refused(d, square, cube, uniform), [*map(Value, key), square, cube, uniform]

    zero, one, two = (c.like(n) for n in (0, 1, 2))
    start = [*map(Value, keys), zero, one, two]
    return iterate(draw, refused(d, zero, one, two), start, [c, d])[3]


def _positive(keys: Keys, c: Value, partitionable: bool) -> tuple[Value, Value]:
    """(x, 1 + c x) of normal numbers, drawn until the second is positive."""

    def draw(c: Value, *state: Value) -> tuple[Value, list[Value]]:
        key, sub = Keys(state[0].var, state[1].var).split(2, partitionable)
        x = sub.normal(c.var.dtype, partitionable)
        root = 1 + x * c
        return root <= 0, [*map(Value, key), x, root]

    start = [*map(Value, keys), c.like(0), c.like(-1)]
    _, _, x, root = iterate(draw, start[3] <= 0, start, [c])
    return x, root


# -- the op


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 3, "random_gamma", f"takes two words of keys and a shape, was given {len(in_types)} operands")
    for type in in_types[:2]:
        require(type.dtype == U32, "random_gamma", f"keys are u32, was given {type}")
        require(type.shape == in_types[2].shape, "random_gamma", f"operand shapes differ: {type} and {in_types[2]}")
    require(is_float(in_types[2].dtype), "random_gamma", f"the shape parameter is a float, was given {in_types[2]}")
    return in_types[2:]


def _jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> list[Var | None]:
    """Of a logarithm too small to have an exponential, the derivative is that at the least number."""
    if tangents[2] is None:
        return [None]
    if not params["log_space"]:
        return [multiply(tangents[2], random_gamma_grad(primals[2], outs[0]))]
    sample = exponential(outs[0])
    least = full_like(sample, ml_dtypes.finfo(sample.dtype).tiny)
    sample = select(compare(sample, full_like(sample, 0), direction="EQ"), least, sample)
    return [multiply(tangents[2], divide(random_gamma_grad(primals[2], sample), sample))]


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    return generator.integers(0, 2**32, type.shape, np.uint32) if index < 2 else generator.uniform(0.3, 4, type.shape)


def _samples() -> list[Sample]:
    forms = [{"log_space": a, "partitionable": b} for a in (False, True) for b in (False, True)]
    calls = [(shape, "f32", forms[1]) for shape in SAMPLE_SHAPES] + [((7,), "f64", form) for form in forms]
    calls += [((5,), "bf16", forms[3])]
    word = lambda shape: TensorType(shape, U32)  # noqa: E731
    return [Sample((word(s), word(s), TensorType(s, DTYPES[d])), form, _fill) for s, d, form in calls]


_run, _emit = written(_formula, widen=False)
random_gamma = elementwise(
    "random_gamma", _run, arity=3, type_rule=_type, emit=_emit, jvp=_jvp, samples=_samples, widen=False
)  # fmt: skip
