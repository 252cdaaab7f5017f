"""The Array API standard, 2024.12, as tables: every function's signature, and the special cases of its elementwise functions.

    python -m tests.tools.array_api             counts, and what meshjit.numpy does not hold; `docs/array_api.md` has the reasons
    python -m tests.tools.array_api jax.numpy   the same of another namespace, by an interpreter that has it

The sentences of the standard are https://data-apis.org/array-api/2024.12/; the tables are its content, written anew.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

SIGNATURES = """
creation
  arange(start, /, stop=, step=, *, dtype=, device=)      asarray(obj, /, *, dtype=, device=, copy=)
  empty(shape, *, dtype=, device=)                        empty_like(x, /, *, dtype=, device=)
  eye(n_rows, n_cols=, /, *, k=, dtype=, device=)         from_dlpack(x, /, *, device=, copy=)
  full(shape, fill_value, *, dtype=, device=)             full_like(x, /, fill_value, *, dtype=, device=)
  linspace(start, stop, /, num, *, dtype=, device=, endpoint=)   meshgrid(x, y, *, indexing=)
  ones(shape, *, dtype=, device=)                         ones_like(x, /, *, dtype=, device=)
  tril(x, /, *, k=)   triu(x, /, *, k=)                   zeros(shape, *, dtype=, device=)
  zeros_like(x, /, *, dtype=, device=)
dtypes
  astype(x, dtype, /, *, copy=, device=)  can_cast(from_, to, /)  finfo(type, /)  iinfo(type, /)  isdtype(dtype, kind)
  result_type(x, y)
elementwise
  abs(x, /) acos(x, /) acosh(x, /) add(x1, x2, /) asin(x, /) asinh(x, /) atan(x, /) atan2(x1, x2, /) atanh(x, /)
  bitwise_and(x1, x2, /) bitwise_left_shift(x1, x2, /) bitwise_invert(x, /) bitwise_or(x1, x2, /)
  bitwise_right_shift(x1, x2, /) bitwise_xor(x1, x2, /) ceil(x, /) clip(x, /, min=, max=) conj(x, /) copysign(x1, x2, /)
  cos(x, /) cosh(x, /) divide(x1, x2, /) equal(x1, x2, /) exp(x, /) expm1(x, /) floor(x, /) floor_divide(x1, x2, /)
  greater(x1, x2, /) greater_equal(x1, x2, /) hypot(x1, x2, /) imag(x, /) isfinite(x, /) isinf(x, /) isnan(x, /)
  less(x1, x2, /) less_equal(x1, x2, /) log(x, /) log1p(x, /) log2(x, /) log10(x, /) logaddexp(x1, x2, /)
  logical_and(x1, x2, /) logical_not(x, /) logical_or(x1, x2, /) logical_xor(x1, x2, /) maximum(x1, x2, /)
  minimum(x1, x2, /) multiply(x1, x2, /) negative(x, /) nextafter(x1, x2, /) not_equal(x1, x2, /) positive(x, /)
  pow(x1, x2, /) real(x, /) reciprocal(x, /) remainder(x1, x2, /) round(x, /) sign(x, /) signbit(x, /) sin(x, /)
  sinh(x, /) square(x, /) sqrt(x, /) subtract(x1, x2, /) tan(x, /) tanh(x, /) trunc(x, /)
indexing
  take(x, indices, /, *, axis=)  take_along_axis(x, indices, /, *, axis=)
linear algebra
  matmul(x1, x2, /)  matrix_transpose(x, /)  tensordot(x1, x2, /, *, axes=)  vecdot(x1, x2, /, *, axis=)
  linalg.cholesky(x, /, *, upper=)  linalg.cross(x1, x2, /, *, axis=)  linalg.det(x, /)  linalg.diagonal(x, /, *, offset=)
  linalg.eigh(x, /)  linalg.eigvalsh(x, /)  linalg.inv(x, /)  linalg.matmul(x1, x2, /)  linalg.matrix_power(x, n, /)
  linalg.matrix_norm(x, /, *, keepdims=, ord=)  linalg.matrix_rank(x, /, *, rtol=)  linalg.matrix_transpose(x, /)
  linalg.outer(x1, x2, /)  linalg.pinv(x, /, *, rtol=)  linalg.qr(x, /, *, mode=)  linalg.slogdet(x, /)
  linalg.solve(x1, x2, /)  linalg.svd(x, /, *, full_matrices=)  linalg.svdvals(x, /)
  linalg.tensordot(x1, x2, /, *, axes=)  linalg.trace(x, /, *, offset=, dtype=)  linalg.vecdot(x1, x2, /, *, axis=)
  linalg.vector_norm(x, /, *, axis=, keepdims=, ord=)
manipulation
  broadcast_arrays(x, y)  broadcast_to(x, /, shape)  concat(arrays, /, *, axis=)  expand_dims(x, /, *, axis)
  flip(x, /, *, axis=)  moveaxis(x, source, destination, /)  permute_dims(x, /, axes)  repeat(x, repeats, /, *, axis=)
  reshape(x, /, shape, *, copy=)  roll(x, /, shift, *, axis=)  squeeze(x, /, axis)  stack(arrays, /, *, axis=)
  tile(x, repetitions, /)  unstack(x, /, *, axis=)
searching, sets, sorting
  argmax(x, /, *, axis=, keepdims=)  argmin(x, /, *, axis=, keepdims=)  count_nonzero(x, /, *, axis=, keepdims=)
  nonzero(x, /)  searchsorted(x1, x2, /, *, side=, sorter=)  where(condition, x1, x2, /)
  unique_all(x, /)  unique_counts(x, /)  unique_inverse(x, /)  unique_values(x, /)
  argsort(x, /, *, axis=, descending=, stable=)  sort(x, /, *, axis=, descending=, stable=)
statistics and truth
  cumulative_prod(x, /, *, axis=, dtype=, include_initial=)  cumulative_sum(x, /, *, axis=, dtype=, include_initial=)
  max(x, /, *, axis=, keepdims=)  mean(x, /, *, axis=, keepdims=)  min(x, /, *, axis=, keepdims=)
  prod(x, /, *, axis=, dtype=, keepdims=)  std(x, /, *, axis=, correction=, keepdims=)
  sum(x, /, *, axis=, dtype=, keepdims=)  var(x, /, *, axis=, correction=, keepdims=)
  all(x, /, *, axis=, keepdims=)  any(x, /, *, axis=, keepdims=)  diff(x, /, *, axis=, n=, prepend=, append=)
Fourier
  fft.fft(x, /, *, n=, axis=, norm=)  fft.ifft(x, /, *, n=, axis=, norm=)  fft.rfft(x, /, *, n=, axis=, norm=)
  fft.irfft(x, /, *, n=, axis=, norm=)  fft.hfft(x, /, *, n=, axis=, norm=)  fft.ihfft(x, /, *, n=, axis=, norm=)
  fft.fftn(x, /, *, s=, axes=, norm=)  fft.ifftn(x, /, *, s=, axes=, norm=)  fft.rfftn(x, /, *, s=, axes=, norm=)
  fft.irfftn(x, /, *, s=, axes=, norm=)  fft.fftfreq(n, /, *, d=, dtype=, device=)  fft.rfftfreq(n, /, *, d=, dtype=, device=)
  fft.fftshift(x, /, *, axes=)  fft.ifftshift(x, /, *, axes=)
inspection
  __array_namespace_info__()
"""

METHODS = """
  __abs__() __add__(other, /) __and__(other, /) __array_namespace__(*, api_version=) __bool__() __complex__()
  __dlpack__(*, stream=, max_version=, dl_device=, copy=) __dlpack_device__() __eq__(other, /) __float__()
  __floordiv__(other, /) __ge__(other, /) __getitem__(key, /) __gt__(other, /) __index__() __int__() __invert__()
  __le__(other, /) __lshift__(other, /) __lt__(other, /) __matmul__(other, /) __mod__(other, /) __mul__(other, /)
  __ne__(other, /) __neg__() __or__(other, /) __pos__() __pow__(other, /) __rshift__(other, /) __setitem__(key, value, /)
  __sub__(other, /) __truediv__(other, /) __xor__(other, /) to_device(device, /, *, stream=)
  __radd__(other, /) __rand__(other, /) __rfloordiv__(other, /) __rlshift__(other, /) __rmatmul__(other, /)
  __rmod__(other, /) __rmul__(other, /) __ror__(other, /) __rpow__(other, /) __rrshift__(other, /) __rsub__(other, /)
  __rtruediv__(other, /) __rxor__(other, /)
"""

# operand(s) → result, per function. n: nan, i: infinity, p: pi; p/2 and the like are computed. "a" and "-a" count as different zeros.
SPECIAL = """
abs: n n | -0 0 | -i i          acos: n n | 2 n | -2 n | 1 0            acosh: n n | 0.5 n | 1 0 | i i
asin: n n | 2 n | -2 n | 0 0 | -0 -0      asinh: n n | 0 0 | -0 -0 | i i | -i -i     atan: n n | 0 0 | -0 -0 | i p/2 | -i -p/2
atanh: n n | -2 n | 2 n | -1 -i | 1 i | 0 0 | -0 -0
ceil: -0 -0 | 0 0 | i i | -i -i | n n | -0.5 -0    floor: -0 -0 | 0 0 | i i | -i -i | n n | 0.5 0
trunc: -0 -0 | 0 0 | i i | -i -i | n n | -0.5 -0   round: -0 -0 | 0 0 | i i | -i -i | n n | 0.5 0 | 1.5 2 | 2.5 2 | -0.5 -0
cos: n n | 0 1 | -0 1 | i n | -i n     cosh: n n | 0 1 | -0 1 | i i | -i i     sin: n n | 0 0 | -0 -0 | i n | -i n
sinh: n n | 0 0 | -0 -0 | i i | -i -i  tan: n n | 0 0 | -0 -0 | i n | -i n     tanh: n n | 0 0 | -0 -0 | i 1 | -i -1
exp: n n | 0 1 | -0 1 | i i | -i 0     expm1: n n | 0 0 | -0 -0 | i i | -i -1
log: n n | -1 n | 0 -i | -0 -i | 1 0 | i i    log1p: n n | -2 n | -1 -i | 0 0 | -0 -0 | i i
log2: n n | -1 n | 0 -i | -0 -i | 1 0 | i i   log10: n n | -1 n | 0 -i | -0 -i | 1 0 | i i
sqrt: n n | -1 n | 0 0 | -0 -0 | i i          sign: -3 -1 | 3 1 | 0 0 | -0 0 | n n | i 1 | -i -1
signbit: 0 F | -0 T | i F | -i T | 3 F | -3 T      isfinite: i F | -i F | n F | 1 T      isinf: i T | -i T | n F | 1 F
isnan: n T | i F | 1 F                        reciprocal: 0 i | -0 -i | i 0 | -i -0 | n n
negative: 0 -0 | -0 0 | i -i | n n            square: n n | -i i | -0 0           positive: -0 -0 | n n
add: n,1 n | 1,n n | i,-i n | -i,i n | i,i i | -i,-i -i | i,1 i | -i,1 -i | 1,i i | 1,-i -i | -0,-0 -0 | -0,0 0 | 0,-0 0 | 0,0 0
  | 2,-2 0
subtract: n,1 n | i,i n | -i,-i n | i,-i i | -i,i -i | -0,0 -0 | 0,0 0 | -0,-0 0
multiply: n,1 n | i,0 n | -i,0 n | i,-0 n | 0,i n | -0,-i n | i,i i | i,-i -i | -i,3 -i | 0,-3 -0 | -0,-3 0
divide: n,1 n | i,i n | i,-i n | 0,0 n | 0,-0 n | 0,1 0 | -0,1 -0 | 0,-1 -0 | -0,-1 0 | 1,0 i | 1,-0 -i | -1,0 -i | -1,-0 i | i,1 i
  | i,-1 -i | -i,1 -i | 1,i 0 | 1,-i -0 | -1,i -0 | -1,-i 0
floor_divide: n,1 n | i,i n | 0,0 n | -0,0 n | 0,1 0 | -0,1 -0 | 0,-1 -0 | -0,-1 0 | 1,0 i | 1,-0 -i | -1,0 -i | -1,-0 i | i,1 n~i
  | -i,1 n~-i | i,-1 n~-i | -i,-1 n~i | 1,i 0 | 1,-i -1 | -1,i -1 | -1,-i 0
remainder: n,1 n | i,i n | 0,0 n | -0,0 n | 0,1 0 | -0,1 0 | 0,-1 -0 | -0,-1 -0 | 1,0 n | -1,0 n | i,1 n | -i,1 n | 1,i 1 | 1,-i -i
  | -1,i i | -1,-i -1 | 3,3 0 | -3,3 0 | 3,-3 -0 | -3,-3 -0
pow: 2,n n | n,0 1 | n,-0 1 | 0,0 1 | i,0 1 | n,2 n | 1,n 1 | 1,i 1 | 2,i i | -2,i i | 2,-i 0 | 0.5,i 0 | 0.5,-i i | 1,-i 1 | -1,i 1~n
  | -1,-i 1~n | i,2 i | i,-2 0 | -i,3 -i | -i,2 i | -i,-3 -0 | -i,-2 0 | 0,2 0 | 0,-2 i | -0,3 -0 | -0,2 0 | -0,-3 -i | -0,-2 i | -2,0.5 n
atan2: n,1 n | 1,n n | 1,0 p/2 | 1,-0 p/2 | 0,1 0 | 0,0 0 | 0,-0 p | 0,-1 p | -0,1 -0 | -0,0 -0 | -0,-0 -p | -0,-1 -p | -1,0 -p/2
  | -1,-0 -p/2 | 1,i 0 | 1,-i p | -1,i -0 | -1,-i -p | i,1 p/2 | -i,1 -p/2 | i,i p/4 | i,-i 3*p/4 | -i,i -p/4 | -i,-i -3*p/4
hypot: i,1 i | -i,1 i | 1,i i | i,n i | n,i i | n,1 n | 1,n n       copysign: 1,-0 -1 | -1,0 1 | 0,-1 -0 | n,0 n
logaddexp: n,1 n | i,1 i | i,n n~i | 1,i i | -i,-i -i                 nextafter: n,1 n | 1,n n | 0,-0 -0 | -0,0 0
maximum: n,1 n | 1,n n | i,1 i          minimum: n,1 n | 1,n n | -i,1 -i
equal: n,n F | 0,-0 T | i,i T           not_equal: n,n T | 0,-0 F        less: n,1 F | 0,-0 F     greater: n,1 F
less_equal: n,n F | -0,0 T              greater_equal: n,n F | -0,0 T
"""


# Expressions of a namespace xp, x64 on, each with what it prints as; `a` makes an array, `l` a list of one, `d` the dtype's name.
_BEHAVIOUR = """
xp.unique_all(a([3, 1, 1]))._fields → ('values', 'indices', 'inverse_indices', 'counts')
xp.unique_all(a(3)).inverse_indices.shape → ()
xp.unique_all(a([[3, 1], [1, 1]])).inverse_indices.shape → (2, 2)
l(xp.unique_all(a([3, 1, 1])).indices) → [1, 0]
xp.unique_counts(a([3, 1, 1]))._fields → ('values', 'counts')
l(xp.unique_counts(a([nan, nan, 1.0])).counts) → [1, 1, 1]
xp.unique_inverse(a([[3, 1, 1]]))._fields → ('values', 'inverse_indices')
xp.unique_values(a([nan, nan, 1.0])).shape → (3,)
xp.unique_values(a([1j, 1j, 2.0])).shape → (2,)
xp.unique_all(xp.zeros((0,))).values.shape → (0,)
l(xp.unique_values(a([True, False, True]))) → [False, True]
l(xp.isin(a([1, 2]), 2, invert=True)) → [True, False]
xp.isin(2, a([1, 2])).shape → ()
xp.searchsorted(a([1.0, 2.0]), a(1.5)).shape → ()
l(xp.searchsorted(a([2.0, 1.0]), a([1.5]), sorter=a([1, 0]))) → [1]
l(xp.searchsorted(a([1, 1, 2]), a([[1, 2]]), side="right")) → [[2, 3]]
d(xp.searchsorted(a([1, 2]), a([1]))) → int64
[x.shape for x in xp.broadcast_arrays(a([1]), a([[1], [2]]))] → [(2, 1), (2, 1)]
len(xp.broadcast_arrays()) → 0
[x.shape for x in xp.meshgrid(a(1), a([2, 3]))] → [(2, 1), (2, 1)]
[x.shape for x in xp.meshgrid(a([1, 2, 3]), a([2, 3]), indexing="ij")] → [(3, 2), (3, 2)]
len(xp.meshgrid()) → 0
l(xp.from_dlpack(xp.arange(3), copy=True, device=xp.zeros(1).device)) → [0, 1, 2]
[l(xp.from_dlpack(a(x))) for x in ([True], [1j], 1)] → [[True], [1j], 1]
xp.from_dlpack(xp.zeros((0, 3))).shape → (0, 3)
type(xp.arange(3).__dlpack__(max_version=(1, 0), copy=False, dl_device=(1, 0), stream=None)).__name__ → PyCapsule
[int(x) for x in xp.arange(3).__dlpack_device__()] → [1, 0]
l(xp.fft.fftfreq(4, device=xp.zeros(1).device)) → [0.0, 0.25, -0.5, -0.25]
d(xp.fft.rfftfreq(4, d=2.0, dtype=xp.float32)) → float32
[d(f(xp.ones(4, dtype=xp.float32))) for f in (xp.fft.fft, xp.fft.rfft, xp.fft.ihfft)] → ['complex64', 'complex64', 'complex64']
[d(f(xp.ones(3, dtype=xp.complex64))) for f in (xp.fft.irfft, xp.fft.hfft)] → ['float32', 'float32']
sorted(xp.__array_namespace_info__().dtypes(kind=("bool", "real floating"))) → ['bool', 'float32', 'float64']
sorted(xp.__array_namespace_info__().capabilities()) → ['boolean indexing', 'data-dependent shapes', 'max dimensions']
str(xp.__array_namespace_info__().default_dtypes()["indexing"]) → int64
xp.zeros(1).device in xp.__array_namespace_info__().devices() → True
a(1).__array_namespace__(api_version="2024.12") is xp → True
xp.__array_api_version__ → 2024.12
[l(inplace(op)) for op in ("+", "-", "*", "//", "%", "**")] → [[6, 8], [2, 2], [8, 15], [2, 1], [0, 2], [16, 125]]
[l(inplace(op)) for op in ("&", "|", "^", "<<", ">>")] → [[0, 1], [6, 7], [6, 6], [16, 40], [1, 0]]
l(inplace("/")) → [2.0, 1.6666666666666667]
[xp.isdtype(a(1).dtype, k) for k in ("integral", "bool", ("numeric", "bool"), xp.int64)] → [True, False, True, True]
[xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.float64, xp.float32)] → [True, False]
[str(xp.result_type(*x)) for x in ((xp.int8, xp.uint8), (a(1.0, dtype=xp.float32), 1j))] → ['int16', 'complex64']
[float(xp.finfo(xp.float32).eps), int(xp.iinfo(xp.int8).max)] → [1.1920928955078125e-07, 127]
xp.reshape(xp.arange(4), (2, -1), copy=False).shape → (2, 2)
l(xp.argsort(a([1, 1, 0]), descending=True, stable=True)) → [0, 1, 2]
xp.argmax(xp.ones((2, 3)), keepdims=True).shape → (1, 1)
xp.count_nonzero(xp.ones((2, 3)), axis=(0, 1), keepdims=True).shape → (1, 1)
l(xp.cumulative_sum(a([1, 2]), include_initial=True)) → [0, 1, 3]
l(xp.cumulative_prod(a([[1, 2]]), axis=1, include_initial=True)) → [[1, 1, 2]]
[d(xp.sum(a([1], dtype=t))) for t in (xp.int8, xp.uint8, xp.float32)] → ['int64', 'uint64', 'float32']
[d(xp.cumulative_sum(a([1], dtype=t))) for t in (xp.int8, xp.uint16, xp.float32)] → ['int64', 'uint64', 'float32']
xp.sum(xp.ones((2, 3)), axis=()).shape → (2, 3)
float(xp.var(a([1.0, 3.0]), correction=1)) → 2.0
xp.take(xp.ones((3, 4)), a([1]), axis=-1).shape → (3, 1)
l(xp.diff(a([1, 2, 4]), prepend=a([0]), append=a([9]))) → [1, 1, 2, 5]
[len(xp.unstack(xp.ones((2, 3)), axis=x)) for x in (0, 1)] → [2, 3]
l(xp.repeat(a([1, 2]), a([2, 1]))) → [1, 1, 2]
xp.concat([xp.ones((2, 2)), xp.ones(3)], axis=None).shape → (7,)
d(xp.concat([a([1], dtype=xp.int8), a([1], dtype=xp.int16)])) → int16
complex(xp.vecdot(a([1j]), a([1j]))) → (1+0j)
[getattr(xp.linalg, n)(xp.eye(2))._fields[0] for n in ("eigh", "qr", "slogdet", "svd")] → ['eigenvalues', 'Q', 'sign', 'U']
xp.linalg.vector_norm(xp.ones((2, 3)), axis=(0, 1), keepdims=True).shape → (1, 1)
[float(xp.linalg.vector_norm(a([3.0, 4.0]), ord=o)) for o in (0, 1, 2, inf, -inf)] → [2.0, 7.0, 5.0, 4.0, 3.0]
[float(xp.linalg.matrix_norm(xp.eye(2), ord=o)) for o in ("nuc", 1, 2, -1, -2, inf, -inf)] → [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
d(xp.linalg.trace(xp.ones((2, 2), dtype=xp.int8))) → int64
xp.linalg.pinv(xp.ones((3, 2, 2)), rtol=a([0.1, 0.1, 0.1])).shape → (3, 2, 2)
xp.linalg.solve(xp.stack([xp.eye(2)] * 3), xp.ones((2,))).shape → (3, 2)
[l(xp.clip(a([1, 5]), 2)), l(xp.clip(a([1, 5]), max=3))] → [[2, 5], [1, 3]]
[d(x) for x in (1 & a([1], dtype=xp.int8), xp.where(a([True]), a([1.0], dtype=xp.float32), 2.0))] → ['int8', 'float32']
[bool(a(0)), int(a(3)), float(a(1.5)), complex(a(1j)), a(3).__index__()] → [False, 3, 1.5, 1j, 3]
[xp.ones((1, 2, 3)).mT.shape, xp.ones((2, 3)).T.shape, xp.ones((2, 3)).size] → [(1, 3, 2), (3, 2), 6]
[xp.ones((2, 3))[..., None, 0].shape, xp.ones((2, 3))[xp.ones((2, 3)) > 0].shape, xp.ones(())[()].shape] → [(2, 1), (6,), ()]
xp.ones((4, 3, 2))[a([0, 1]), :, 1].shape → (2, 3)
[xp.ones((4, 3))[xp.zeros(x, dtype=xp.bool)].shape for x in ((0, 3), (4, 0), (0,))] → [(0,), (0,), (0, 3)]
[float(xp.sum(f(xp.ones((2, 3)), k=2**70))) for f in (xp.tril, xp.triu)] → [6.0, 0.0]
l(xp.sort(a([nan, 1.0, inf, -inf])))[:3] → [-inf, 1.0, inf]
[d(f(a([1]))) for f in (xp.ceil, xp.floor, xp.round, xp.trunc)] → ['int64', 'int64', 'int64', 'int64']
[complex(xp.round(a(1.5 + 2.5j))), float(xp.abs(a(3 + 4j)))] → [(2+2j), 5.0]
[xp.linspace(0, 1j, 3).shape, d(xp.linspace(0, 1j, 3)), xp.linspace(1, 2, 0).shape] → [(3,), 'complex128', (0,)]
[xp.arange(3, 1).shape, d(xp.arange(3.0)), l(xp.arange(0, stop=4, step=2))] → [(0,), 'float64', [0, 2]]
l(set_item(xp.zeros(2))) → [1.0, 0.0]
"""
BEHAVIOUR = _BEHAVIOUR.strip().splitlines()


def faults_of_behaviour(xp: Any) -> Iterator[tuple[str, str]]:
    def inplace(operator: str) -> Any:
        names = {"x": xp.asarray([4, 5]), "y": xp.asarray([2, 3])}
        exec(f"x {operator}= y", names)
        return names["x"]

    def set_item(x: Any) -> Any:
        x[0] = 1
        return x

    names = {
        "xp": xp, "a": xp.asarray, "l": lambda x: x.tolist(), "d": lambda x: str(x.dtype), "nan": math.nan, "inf": math.inf,
        "inplace": inplace, "set_item": set_item,
    }  # fmt: skip
    for line in BEHAVIOUR:
        expression, _, wanted = line.partition(" → ")
        try:
            here = str(eval(expression, names))
        except Exception as error:
            here = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if here != wanted:
            yield expression, f"{here}, not {wanted}"


def functions(table: str = SIGNATURES) -> Iterator[tuple[str, str]]:
    """`("linalg.qr", "x, /, *, mode=")`."""
    yield from re.findall(r"([a-z_0-9.]+)\((.*?)\)", table)


def special_cases() -> Iterator[tuple[str, tuple[float, ...], tuple[Any, ...]]]:
    """A function, its operands, and the results that the standard allows."""
    for name, cases in re.findall(r"([a-z_0-9]+):((?:(?![a-z_0-9]+:).)*)", SPECIAL, re.DOTALL):
        for case in cases.split("|"):
            operands, result = case.split()
            yield name, tuple(_number(text) for text in operands.split(",")), tuple(_number(text) for text in result.split("~"))


def _number(text: str) -> Any:
    if text in "TF":
        return text == "T"
    sign = -1.0 if text.startswith("-") else 1.0
    names = {"n": math.nan, "i": math.inf, "p": math.pi}
    bare = text.lstrip("-")
    if "p" in bare:
        factor, _, rest = bare.rpartition("p")
        return sign * float(factor.rstrip("*") or 1) * math.pi / float(rest.lstrip("/") or 1)
    return sign * names[bare] if bare in names else sign * float(bare)


def found(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def signature_faults(function: Any, wanted: str, is_method: bool = False) -> str:
    """What of a signature a function does not take; empty where it takes all. A ufunc or the like without one is called otherwise."""
    try:
        here = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    here = here[1:] if is_method else here
    names = {parameter.name: parameter for parameter in here}
    positional = [p for p in here if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in here)
    takes_names = any(p.kind is p.VAR_KEYWORD for p in here)
    entries = [part.strip() for part in wanted.split(",") if part.strip()]
    last_unnamed = entries.index("/") if "/" in entries else 0
    first_keyword = entries.index("*") if "*" in entries else len(entries)
    by_place = [entry for entry in entries[:first_keyword] if entry != "/"]
    if len(positional) < len(by_place) and not takes_more:
        return f"takes {len(positional)} operands by place, not {len(by_place)}"
    for number, entry in enumerate(entries):
        name = entry.rstrip("=")
        if entry in "/*" or number < last_unnamed or takes_more and not entry.endswith("="):
            continue
        if name not in names and not takes_names:
            return f"takes no {name}="
        if name in names and entry.endswith("=") and names[name].default is inspect.Parameter.empty:
            return f"needs {name}="
    return ""


def same(x: Any, y: Any) -> bool:
    """Whether two numbers are the same to the last rounding, and zeros of the same sign."""
    if isinstance(y, bool):
        return bool(x) == y
    if math.isnan(y):
        return math.isnan(x)
    if y == 0:
        return x == 0 and math.copysign(1, x) == math.copysign(1, y)
    return x == y or math.isclose(x, y, rel_tol=3e-7)


def faults(xp: Any) -> Iterator[tuple[str, str]]:
    """What a namespace does not hold, each with a name by which a reason is given. `count` says of how many."""
    for name, wanted in functions():
        try:
            text = signature_faults(found(xp, name), wanted)
        except AttributeError:
            text = "is not there"
        if text:
            yield name, text
    one = type(xp.zeros(1))
    for name, wanted in functions(METHODS):
        text = signature_faults(getattr(one, name), wanted, is_method=True) if hasattr(one, name) else "is not there"
        if text:
            yield f"Array.{name}", text
    for name, operands, allowed in special_cases():
        for dtype in ("float32", "float64"):
            value = getattr(xp, name)(*(xp.asarray([x], dtype=getattr(xp, dtype)) for x in operands))[0]
            if not any(same(value.item(), each) for each in allowed):
                written = ", ".join(map(str, operands))
                yield f"{name}({written})", f"{dtype}: {value.item()}, not {' or '.join(map(str, allowed))}"
    yield from faults_of_behaviour(xp)


def count() -> int:
    return sum(1 for _ in functions()) + sum(1 for _ in functions(METHODS)) + 2 * sum(1 for _ in special_cases()) + len(BEHAVIOUR)


def main() -> None:
    module = sys.argv[1] if len(sys.argv) > 1 else "meshjit.numpy"
    importlib.import_module(module.partition(".")[0]).config.update("jax_enable_x64", True)
    missing = list(faults(importlib.import_module(module)))
    for name, text in missing:
        print(f"{name}: {text}")
    print(f"{count() - len(missing)} of {count()} hold")


if __name__ == "__main__":
    main()
