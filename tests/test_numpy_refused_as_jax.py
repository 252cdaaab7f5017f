"""Calls that JAX 0.10 refuses: what they raise here is of the type that it raises there, and a message that names the function."""

from __future__ import annotations

import pytest

import meshjit as mj
from tests.tools.breadth_cases import operands, scope
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

# The type that JAX raises, and the calls; what stands before a colon is how the message begins.
REFUSED = {
    ValueError: """
        hypot takes real numbers: np.hypot(c, f)
        Incompatible shapes: f + v
        Incompatible shapes: np.less_equal(q[0], t[0])
        Incompatible shapes: np.power(q, t)
        clip: there is no array: np.clip()
        fft transforms along one axis: np.fft.fft(f, axis=(0, 1))
        hfft transforms along one axis: np.fft.hfft(f, axis=(0, 1))
        fft: the number of points along axis 1 is 0: np.fft.fft(f, n=0)
        rfft: the number of points along axis 1 is 0: np.fft.rfft(f[:, :0])
        det: argument 0 must have shape: np.linalg.det(h)
        pinv: rtol and rcond: np.linalg.pinv(f, 0.1, rcond=0.1)
        tensorsolve: the first dims: np.linalg.tensorsolve(f, v)
        lstsq: takes one matrix: np.linalg.lstsq(q, v)
        vecdot: dim 1: np.vecdot(f, f[:, :2])
        matvec: dim -1: np.matvec(f, f[:, :2])
        vecmat: dim -1: np.vecmat(f, f)
        None is not a valid value for an array: [[1.0, None]]: np.array([[1.0, None]])
        None is not a valid value for an array: None: np.asarray(None)
        quantile: overwrite_input=True: np.median(f, overwrite_input=True)
        nanquantile: out=: np.nanmedian(f, out=f[0])
        quantile takes real numbers: np.percentile(c, 50)
        compress: the condition must be a vector: np.compress(b, f)
        delete: places must be integers: np.delete(v, np.array([1.0]))
        insert: places must be integers: np.insert(v, 1.0, 0)
        insert: the places must be a number or a vector: np.insert(v, i, 0)
        take: indices must be integers: np.take(v, 1.0)
        mode 'x': np.take(v, 0, mode='x')
        mode 'x': v.at[0].get(mode='x')
        mode 'x': v.at[0].set(1.0, mode='x')
        start -1 is before the first: lax.dynamic_slice(v, (-1,), (2,), allow_negative_indices=False)
        nonzero: fill_value must be: np.flatnonzero(v, fill_value=f)
        nonzero: fill_value must be: np.nonzero(f, size=4, fill_value=(1, 2, 3))
        fill_value must be one number: np.setdiff1d(v, w, size=3, fill_value=v)
        std: dtype must be floating: np.std(f, dtype=int)
        polyval: unroll must not be negative: np.polyval(v, f, unroll=-1)
        meshgrid takes vectors: np.meshgrid(f)
        vander takes a vector: np.vander(f)
        vander: N must not be negative: np.vander(v, -1)
        tril_indices_from takes an array of 2 dims: np.tril_indices_from(t)
        triu_indices_from takes an array of 2 dims: np.triu_indices_from(v)
        roll: shifts are a number or a vector: np.roll(f, i)
        compress: size must not be negative: np.compress(v > 1, v, size=-1)
        result_type of nothing: np.result_type()
        itemsize_bits: the dtype is None: jax.dtypes.itemsize_bits(None)
        scaled_dot_general: without dimension_numbers: nn.scaled_dot_general(f, f, None)
        unique: an empty array: np.unique(e, axis=0, size=2)
        axis 2 is out of range: np.unique(f, axis=2)
        bincount takes a vector: np.bincount(i)
        digitize: bins are a vector: np.digitize(f, 2.0)
    """,
    RuntimeError: """
        cov: fweights has shape: np.cov(f, fweights=w)
    """,
    TypeError: """
        unsupported operand: v == [1.0, 2.0]
        unsupported operand: v != (1.0, 2.0)
        a start of a slice is an integer: lax.dynamic_slice(v, (1.5,), (2,))
        a start of a slice is an integer: lax.dynamic_update_slice(v, v[:1], (np.float32(1),))
        heaviside takes real numbers: np.heaviside(c, 1.0)
        Incompatible shapes: f + q
        shapes hold integers: np.fft.fft(f, n=2.0)
        an axis is an int: np.fft.fft(f, axis=1.0)
        tensordot: 3 dims are contracted: np.tensordot(f, q, 3)
        tensordot: axes are a number: np.tensordot(f, q, 'x')
        quantile: shares are real: np.quantile(f, 1j)
        ravel_multi_index: places are one array per dim: np.ravel_multi_index(1, (2, 3))
        an axis is an int: np.cumsum(v, axis=())
        an axis is an int: np.cumsum(v, axis=0.0)
        an axis is an int: np.vecdot(f, f, axis=None)
        moveaxis: source is an int: np.cross(q, q, axisb=None)
        ediff1d: booleans have no differences: np.ediff1d(b)
        var: a variance is no boolean: np.var(f, dtype=bool)
        indices: dimensions are a sequence: np.indices(3)
        permute_dims: axes are a sequence: np.permute_dims(f, None)
        shapes hold integers: np.tril_indices(2.0)
        shapes hold no negative: np.triu_indices(-1)
        shapes hold no negative: np.broadcast_to(s, (-1,))
        pad: widths must be integers: np.pad(v, 1.5)
        shapes hold integers: np.around(f, 1.0)
        promote_types takes dtypes: np.promote_types(1, 2.0)
        sort: kind='x': np.sort(v, kind='x')
        argsort: order=2: np.argsort(v, order=2)
        can_cast takes dtypes: np.can_cast(0, 'int8')
    """,
    NotImplementedError: """
        array: order='C': np.array(v, order='C')
        array: order=2: np.asarray(v, order=2)
        copy: order='F': np.copy(v, order='F')
        reshape: order must be: np.reshape(f, -1, order='A')
        ravel: order must be: np.ravel(f, order='K')
        quantile: weights go with: np.quantile(f, 0.5, weights=f)
        pad: mode 'x': np.pad(v, 1, mode='x')
        fill_diagonal: pass inplace=False: np.fill_diagonal(q, 1, inplace=True)
        inv takes float32: np.linalg.inv(q.astype('float16'))
        svd takes float32: np.linalg.svd(q.astype('bfloat16'))
    """,
}
CASES = [(error, *line.strip().rsplit(": ", 1)) for error, lines in REFUSED.items() for line in lines.strip().splitlines()]


@pytest.mark.parametrize(("error", "start", "call"), CASES, ids=[call for _, _, call in CASES])
def test_refused(error: type[Exception], start: str, call: str) -> None:
    with pytest.raises(error) as found:
        eval(call, {**scope(mj), **operands(host)})
    assert str(found.value).startswith(start)
