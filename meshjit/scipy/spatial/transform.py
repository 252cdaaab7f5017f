"""`jax.scipy.spatial.transform`: rotations in space as trees of arrays, which jit, grad and vmap take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshjit import numpy as mnp, random as _random
from meshjit.missing import explain as _explain
from meshjit.scipy.spatial import quaternions
from meshjit.trace import line_of, user_source


def _floating(x: Any) -> Any:
    x = mnp.asarray(x)
    return x if mnp.issubdtype(x.dtype, mnp.floating) else x.astype(mnp.result_type(float))


class Rotation(NamedTuple):
    """One rotation, or several: unit quaternions (x, y, z, w) of shape [4] or [n, 4].

    Source: scipy.spatial.transform.Rotation, of which `jax.scipy` has these methods."""

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Rotations one behind the other, single ones too."""
        return cls(mnp.concatenate([mnp.atleast_2d(rotation.quat) for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Turns about up to three axes, "xyz" those of space, "XYZ" those that turn along. angles: [], [k] or [n, k] for k axes;
        [n] for one axis are n rotations. ValueError for a sequence that is none."""
        axes, extrinsic = _axes(seq)
        angles = _floating(angles)
        angles = mnp.deg2rad(angles) if degrees else angles
        angles = angles[..., None] if len(axes) == 1 and (angles.ndim < 1 or angles.shape[-1] != 1) else angles
        if angles.ndim not in (1, 2) or angles.shape[-1] != len(axes):
            raise ValueError(
                f"Rotation.from_euler: angles of shape {angles.shape} are not those of the {len(axes)} axes {seq!r}\n"
                f"  at {line_of(user_source())}"
            )
        return cls(quaternions.of_angles(axes, angles, extrinsic))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Of orthogonal matrices [3, 3] or [n, 3, 3]."""
        return cls(quaternions.of_matrix(_floating(matrix)))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Of modified Rodrigues parameters [3] or [n, 3]: along the axis, the tangent of a quarter of the angle."""
        return cls(quaternions.of_mrp(_floating(mrp)))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Of quaternions (x, y, z, w) [4] or [n, 4] of any length but zero."""
        return cls(quaternions.normalized(_floating(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Of vectors [3] or [n, 3] along the axis, as long as the angle is large."""
        rotvec = _floating(rotvec)
        return cls(quaternions.of_vector(mnp.deg2rad(rotvec) if degrees else rotvec))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """One that does nothing, or `num` of them."""
        one = mnp.array([0, 0, 0, 1], dtype)
        return cls(one if num is None else mnp.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """One, or `num`, that are equally likely everywhere."""
        return cls.from_quat(_random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Rotation:  # pyright: ignore[reportIncompatibleMethodOverride] - not a tuple's
        if self.single:
            raise TypeError("a single rotation has no elements to index")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single rotation has no len()")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # pyright: ignore[reportIncompatibleMethodOverride] - not a tuple's
        """The rotation `other`, then this one."""
        return Rotation.from_quat(quaternions.composed(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """Vectors [3] or [n, 3], turned: each by its rotation, all by a single one, or one by each."""
        matrix = self.as_matrix()
        return mnp.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", matrix, mnp.asarray(vectors, matrix.dtype))

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Angles about three axes, as `from_euler` takes them. The first and the third are between -pi and pi; where the two turn
        about one axis, one of them is zero. ValueError for a sequence that is none, or not of three."""
        axes, extrinsic = _axes(seq)
        if len(axes) != 3:
            raise ValueError(f"Rotation.as_euler: {seq!r} has {len(axes)} axes, three are needed")
        angles = quaternions.angles_of(self.quat, axes, extrinsic)
        return mnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Any:
        return quaternions.matrix_of(self.quat)

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters, of at most half a turn."""
        return quaternions.mrp_of(self.quat)

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Vectors along the axis, as long as the angle is large, which is at most pi."""
        vectors = quaternions.vector_of(self.quat)
        return mnp.rad2deg(vectors) if degrees else vectors

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Quaternions (x, y, z, w), or (w, x, y, z). `canonical`: of the two of a rotation, the one with w > 0."""
        quat = quaternions.canonical(self.quat) if canonical else self.quat
        return mnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        return Rotation(quaternions.inverse(self.quat))

    def magnitude(self) -> Any:
        """The angles, from 0 to pi."""
        return quaternions.magnitude(self.quat)

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation nearest to all of them, in the mean of squares (F. L. Markley et al., "Averaging quaternions", 2007).
        weights: [n]; ValueError for others."""
        quat = mnp.atleast_2d(self.quat)
        weights = mnp.ones(quat.shape[0], quat.dtype) if weights is None else mnp.asarray(weights, quat.dtype)
        if weights.shape != quat.shape[:1]:
            raise ValueError(f"Rotation.mean: weights of shape {weights.shape} for {quat.shape[0]} rotations")
        return Rotation(mnp.linalg.eigh(mnp.einsum("n,ni,nj->ij", weights, quat, quat))[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation, not several."""
        return self.quat.ndim == 1


def _axes(seq: str) -> tuple[tuple[int, ...], bool]:
    """Numbers of the axes, and whether they are those of space."""
    if not re.fullmatch(r"[xyz]{1,3}|[XYZ]{1,3}", seq):
        raise ValueError(f"Rotation: {seq!r} does not name one to three axes, of 'x', 'y', 'z' or of 'X', 'Y', 'Z'")
    if any(a == b for a, b in zip(seq, seq[1:], strict=False)):
        raise ValueError(f"Rotation: {seq!r} names the same axis twice in a row")
    return tuple("xyz".index(name) for name in seq.lower()), seq.islower()


class Slerp(NamedTuple):
    """Rotations between rotations, at constant speed (`Slerp.init(times, rotations)(t)`).  Source: K. Shoemake, "Animating
    rotation with quaternion curves", 1985."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Through `rotations` at `times` [n], which increase. TypeError for what is no Rotation, ValueError for fewer than two,
        and for another number of times."""
        if not isinstance(rotations, Rotation):
            raise TypeError(f"Slerp.init: rotations is a {type(rotations).__name__}, not a Rotation")
        if rotations.single or len(rotations) == 1:
            raise ValueError("Slerp.init: there is one rotation, two at least are needed")
        times = mnp.asarray(times, rotations.quat.dtype)
        if times.shape != (len(rotations),):
            raise ValueError(f"Slerp.init: times of shape {times.shape} for {len(rotations)} rotations")
        starts = Rotation(rotations.quat[:-1])
        return cls(times, mnp.diff(times), starts, (starts.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at a time, or at times [m]; ValueError for more dims."""
        at = mnp.asarray(times, self.times.dtype)
        if at.ndim > 1:
            raise ValueError(f"Slerp: times of shape {at.shape}; one time or a vector of them is needed")
        before = mnp.maximum(mnp.searchsorted(self.times, at) - 1, 0)
        share = (at - self.times[before]) / self.timedelta[before]
        return Rotation(self.rotations.quat[before]) * Rotation.from_rotvec(self.rotvecs[before] * share[..., None])


_explain(__name__)
