"""Unit quaternions (x, y, z, w), in the last dim of arrays of any shape, and other ways to write a rotation.

Source: M. D. Shuster, "A survey of attitude representations", 1993; S. W. Shepperd, "Quaternion from rotation matrix", 1978;
E. Bernardes and S. Viollet, "Quaternion to Euler angles conversion", 2022."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp

_SMALL = 1e-3  # angles below which a series is exact where a quotient is not
_LOCK = 1e-7  # between the second of three angles and one at which the other two turn about the same axis


def norm(vectors: Any) -> Any:
    """Lengths of the last dim, which stays, with a derivative of zero where the length is zero."""
    squares = mnp.sum(vectors * vectors, axis=-1, keepdims=True)
    is_zero = squares == 0
    return mnp.where(is_zero, 0, mnp.sqrt(mnp.where(is_zero, 1, squares)))


def normalized(quat: Any) -> Any:
    return quat / norm(quat)


def composed(p: Any, q: Any) -> Any:
    """The rotation q, then p."""
    (u, a), (v, b) = ((x[..., :3], x[..., 3:]) for x in (p, q))
    return mnp.concatenate([a * v + b * u + mnp.cross(u, v), a * b - mnp.sum(u * v, axis=-1, keepdims=True)], axis=-1)


def inverse(quat: Any) -> Any:
    return quat * np.array([-1, -1, -1, 1], quat.dtype)


def canonical(quat: Any) -> Any:
    """Of q and -q, which are the same rotation, the one whose last number that is not zero is positive: w, or else z, y, x."""
    x, y, z, w = mnp.moveaxis(quat, -1, 0)
    leading = mnp.where(w != 0, w, mnp.where(x != 0, x, mnp.where(y != 0, y, z)))
    return mnp.where(leading[..., None] < 0, -quat, quat)


def magnitude(quat: Any) -> Any:
    """The angle, from 0 to pi."""
    return 2 * mnp.arctan2(norm(quat[..., :3])[..., 0], mnp.abs(quat[..., 3]))


def matrix_of(quat: Any) -> Any:
    x, y, z, w = mnp.moveaxis(quat, -1, 0)
    rows = (
        (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w),
    )
    return mnp.stack([mnp.stack(row, axis=-1) for row in rows], axis=-2)


def of_matrix(matrix: Any) -> Any:
    """Of the four ways to divide, the one by the largest number."""
    trace = mnp.trace(matrix, axis1=-2, axis2=-1)
    diagonal = mnp.diagonal(matrix, axis1=-2, axis2=-1)
    largest = mnp.argmax(mnp.concatenate([diagonal, trace[..., None]], axis=-1), axis=-1)
    ways = [_by_diagonal(matrix, diagonal, trace, i) for i in range(3)]
    off = [matrix[..., k, j] - matrix[..., j, k] for j, k in ((1, 2), (2, 0), (0, 1))]
    ways.append(mnp.stack([*off, 1 + trace], axis=-1))
    return normalized(mnp.select([largest[..., None] == n for n in range(4)], ways))


def _by_diagonal(matrix: Any, diagonal: Any, trace: Any, i: int) -> Any:
    j, k = (i + 1) % 3, (i + 2) % 3
    parts = {i: 1 - trace + 2 * diagonal[..., i], 3: matrix[..., k, j] - matrix[..., j, k]}
    parts |= {n: matrix[..., n, i] + matrix[..., i, n] for n in (j, k)}
    return mnp.stack([parts[n] for n in range(4)], axis=-1)


def of_vector(rotvec: Any) -> Any:
    """Of a vector along the axis, as long as the angle is large."""
    angle = norm(rotvec)
    is_small = angle <= _SMALL
    safe = mnp.where(is_small, 1, angle)
    squared = angle * angle
    scale = mnp.where(is_small, 0.5 - squared / 48 + squared * squared / 3840, mnp.sin(safe / 2) / safe)
    return mnp.concatenate([scale * rotvec, mnp.cos(angle / 2)], axis=-1)


def vector_of(quat: Any) -> Any:
    quat = mnp.where(quat[..., 3:] < 0, -quat, quat)
    sine = norm(quat[..., :3])
    angle = 2 * mnp.arctan2(sine, quat[..., 3:])
    is_small = angle <= _SMALL
    squared = angle * angle
    series = 2 + squared / 12 + 7 * squared * squared / 2880
    return mnp.where(is_small, series, angle / mnp.where(is_small, 1, sine)) * quat[..., :3]


def of_mrp(mrp: Any) -> Any:
    """Of modified Rodrigues parameters: along the axis, the tangent of a quarter of the angle."""
    whole = 1 + mnp.sum(mrp * mrp, axis=-1, keepdims=True)
    return mnp.concatenate([2 * mrp, 2 - whole], axis=-1) / whole


def mrp_of(quat: Any) -> Any:
    quat = mnp.where(quat[..., 3:] < 0, -quat, quat)
    return quat[..., :3] / (1 + quat[..., 3:])


def of_angles(axes: tuple[int, ...], angles: Any, extrinsic: bool) -> Any:
    """Of turns about coordinate axes, one after the other: those of space (extrinsic), or those that turn along."""
    quat = None
    for n, axis in enumerate(axes):
        half = angles[..., n] / 2
        turn = mnp.sin(half)[..., None] * mnp.eye(4, dtype=angles.dtype)[axis]
        turn = turn + mnp.cos(half)[..., None] * mnp.eye(4, dtype=angles.dtype)[3]
        pair = (turn, quat) if extrinsic else (quat, turn)
        quat = turn if quat is None else composed(*pair)
    return quat


def angles_of(quat: Any, axes: tuple[int, ...], extrinsic: bool) -> Any:
    """Three angles about axes, the first and the third from -pi to pi. Where only their sum counts, one of them is zero."""
    i, j, k = axes if extrinsic else axes[::-1]
    is_proper = i == k
    k = 3 - i - j if is_proper else k
    sign = (i - j) * (j - k) * (k - i) // 2
    x, w = [quat[..., n] for n in range(3)], quat[..., 3]
    a, b, c, d = w, x[i], x[j], sign * x[k]
    if not is_proper:
        a, b, c, d = a - c, b + d, c + a, d - b
    middle = 2 * mnp.arctan2(mnp.hypot(c, d), mnp.hypot(a, b))
    half_sum, half_difference = mnp.arctan2(b, a), mnp.arctan2(d, c)
    at_zero, at_pi = mnp.abs(middle) <= _LOCK, mnp.abs(middle - np.pi) <= _LOCK
    is_locked = at_zero | at_pi
    lone = mnp.where(at_zero, 2 * half_sum, (-2 if extrinsic else 2) * half_difference)
    first, third = mnp.where(is_locked, 0, half_sum - half_difference), mnp.where(is_locked, 0, half_sum + half_difference)
    first, third = (mnp.where(is_locked, lone, first), third) if extrinsic else (first, mnp.where(is_locked, lone, third))
    if not is_proper:
        third, middle = sign * third, middle - np.pi / 2
    ordered = (first, middle, third) if extrinsic else (third, middle, first)
    angles = mnp.stack(ordered, axis=-1)
    return mnp.where(angles < -np.pi, angles + 2 * np.pi, mnp.where(angles > np.pi, angles - 2 * np.pi, angles))
