"""`jax.numpy` for meshjit: `import meshjit.numpy as mnp`. Thin functions on ops, staged under jit and run at once outside."""

import ml_dtypes as _ml_dtypes
import numpy as _np

import meshjit.ops as _ops  # noqa: F401  fills the registry
from meshjit.numpy import methods as _methods
from meshjit.numpy.contraction import (
    dot,
    einsum,
    inner,
    kron,
    matmul,
    outer,
    tensordot,
    trace,
    vdot,
    vecdot,
)
from meshjit.numpy.creation import (
    arange,
    array,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    identity,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from meshjit.numpy.creation import asarray_ as asarray
from meshjit.numpy.indexing import take, take_along_axis
from meshjit.numpy.promote import broadcast_shapes, broadcast_to
from meshjit.numpy.reductions import (
    all,  # noqa: A004
    allclose,
    amax,
    amin,
    argmax,
    argmin,
    array_equal,
    average,
    count_nonzero,
    cumprod,
    cumsum,
    diff,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    prod,
    ptp,
    std,
    sum,  # noqa: A004
    var,
)
from meshjit.numpy.reductions import any_ as any  # noqa: A004
from meshjit.numpy.shaping import (
    array_split,
    atleast_1d,
    atleast_2d,
    broadcast_arrays,
    column_stack,
    concat,
    concatenate,
    diag,
    diagonal,
    expand_dims,
    flip,
    hstack,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    rollaxis,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    vstack,
)
from meshjit.numpy.ufuncs import *  # noqa: F403
from meshjit.numpy.ufuncs import abs, divmod, pow, round  # noqa: A004, F401

install_methods = _methods.install_methods

bool_ = _np.bool_
int8, int16, int32, int64 = _np.int8, _np.int16, _np.int32, _np.int64
uint8, uint16, uint32, uint64 = _np.uint8, _np.uint16, _np.uint32, _np.uint64
float16, float32, float64 = _np.float16, _np.float32, _np.float64
bfloat16 = _ml_dtypes.bfloat16
float8_e4m3fn, float8_e5m2 = _ml_dtypes.float8_e4m3fn, _ml_dtypes.float8_e5m2
complex64, complex128 = _np.complex64, _np.complex128
dtype, iinfo = _np.dtype, _np.iinfo
finfo = _ml_dtypes.finfo
pi, e, inf, nan, newaxis = _np.pi, _np.e, _np.inf, _np.nan, None
floating, integer, inexact, number = _np.floating, _np.integer, _np.inexact, _np.number


def ndim(x):
    """Number of dims."""
    from meshjit.numpy.promote import shape_of

    return len(shape_of(x))


def shape(x):
    """Extents."""
    from meshjit.numpy.promote import shape_of

    return shape_of(x)


def size(x):
    """Number of elements."""
    return int(_np.prod(shape(x), dtype=_np.int64))


def astype(x, dtype):
    """`x` in another dtype."""
    from meshjit.numpy.promote import cast

    return cast(x, dtype)


def result_type(*xs):
    """The dtype that operands promote to, as JAX's."""
    from meshjit.core.promotion import promote
    from meshjit.numpy.promote import value

    infos = [(_np.dtype(x), False) if isinstance(x, type | _np.dtype) else value(x)[1:] for x in xs]
    return promote([(t if isinstance(t, _np.dtype) else t.dtype, w) for t, w in infos])[0]
