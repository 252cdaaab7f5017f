"""Rotations in space against SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial import transform as scipy_transform

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.scipy.spatial.transform import Rotation, Slerp
from meshjit.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

QUAT = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
OURS, THEIRS = Rotation.from_quat(QUAT), scipy_transform.Rotation.from_quat(QUAT)
SEQUENCES = ("xyz", "XYZ", "zxz", "ZYZ", "yxz", "ZXY", "yzy")


def close(got: Any, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(got), expected, rtol=tolerance * 10, atol=tolerance)


def test_ways_to_write_a_rotation() -> None:
    close(OURS.as_matrix(), THEIRS.as_matrix())
    close(OURS.as_rotvec(), THEIRS.as_rotvec())
    close(OURS.as_rotvec(degrees=True), THEIRS.as_rotvec(degrees=True), 2e-4)
    close(OURS.as_mrp(), THEIRS.as_mrp())
    close(OURS.as_quat(canonical=True), THEIRS.as_quat(canonical=True))
    close(OURS.as_quat(scalar_first=True), np.roll(THEIRS.as_quat(), 1, -1))
    close(OURS.magnitude(), THEIRS.magnitude())
    close(OURS.inv().as_quat(canonical=True), THEIRS.inv().as_quat(canonical=True))
    for again in (
        Rotation.from_matrix(THEIRS.as_matrix()), Rotation.from_rotvec(THEIRS.as_rotvec()), Rotation.from_mrp(THEIRS.as_mrp()),
    ):  # fmt: skip
        close(again.as_matrix(), THEIRS.as_matrix())


@pytest.mark.parametrize("seq", SEQUENCES)
def test_euler_angles(seq: str) -> None:
    close(OURS.as_euler(seq), THEIRS.as_euler(seq), 1e-5)
    close(OURS[2].as_euler(seq, degrees=True), THEIRS[2].as_euler(seq, degrees=True), 1e-3)
    angles = np.linspace(-3, 3, 24).reshape(8, 3)
    expected = scipy_transform.Rotation.from_euler(seq, angles)
    close(Rotation.from_euler(seq, angles).as_matrix(), expected.as_matrix())
    assert Rotation.from_euler(seq, angles[0]).single
    close(Rotation.from_euler(seq[:2], angles[:, :2]).as_matrix(), scipy_transform.Rotation.from_euler(seq[:2], angles[:, :2]).as_matrix())
    close(Rotation.from_euler(seq[0], 30, degrees=True).as_rotvec(), scipy_transform.Rotation.from_euler(seq[0], 30, degrees=True).as_rotvec())


@pytest.mark.parametrize("seq", SEQUENCES)
@pytest.mark.parametrize("middle", [0.0, np.pi / 2, -np.pi / 2, np.pi])
def test_angles_where_two_axes_are_one(seq: str, middle: float) -> None:
    """Angles are not unique there: what counts is the rotation."""
    with mj.enable_x64(True):
        rotation = Rotation.from_euler(seq, np.array([0.3, middle, 0.5]))
        angles = rotation.as_euler(seq)
        close(Rotation.from_euler(seq, angles).as_matrix(), rotation.as_matrix(), 1e-7)


@pytest.mark.parametrize("diagonal", [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)])
def test_matrices_of_half_turns(diagonal: tuple[int, ...]) -> None:
    matrix = np.diag(diagonal).astype(np.float32)
    close(Rotation.from_matrix(matrix).as_matrix(), matrix)


def test_turning_vectors() -> None:
    close(OURS.apply(VECTORS), THEIRS.apply(VECTORS))
    close(OURS.apply(VECTORS, inverse=True), THEIRS.apply(VECTORS, inverse=True))
    close(OURS[0].apply(VECTORS), THEIRS[0].apply(VECTORS))
    close(OURS.apply(VECTORS[0]), THEIRS.apply(VECTORS[0]))
    close((OURS * OURS[3]).as_matrix(), (THEIRS * THEIRS[3]).as_matrix())
    close(Rotation.concatenate([OURS, OURS[1]]).as_quat()[-1], OURS[1].as_quat())
    close(Rotation.identity(3).apply(VECTORS[:3]), VECTORS[:3])


def test_means_and_samples() -> None:
    weights = np.arange(8)
    close(OURS.mean().as_quat(canonical=True), THEIRS.mean().as_quat(canonical=True), 1e-5)
    close(OURS.mean(weights).as_quat(canonical=True), THEIRS.mean(weights).as_quat(canonical=True), 1e-5)
    drawn = Rotation.random(mj.random.key(0), 2000).apply(np.array([1.0, 0, 0]))
    close(mnp.mean(drawn, axis=0), np.zeros(3), 0.06)
    close(mnp.linalg.norm(drawn, axis=-1), np.ones(2000))
    assert Rotation.random(mj.random.key(0)).single


def test_between_rotations() -> None:
    times = np.array([0, 1, 2.5, 3, 4, 6, 7, 8], np.float32)
    at = np.array([0, 0.5, 1, 2.75, 8], np.float32)
    ours, theirs = Slerp.init(times, OURS), scipy_transform.Slerp(times, THEIRS)
    close(ours(at).as_matrix(), theirs(at).as_matrix(), 1e-5)
    close(mj.jit(lambda t: ours(t).as_matrix())(np.float32(2.0)), theirs(2.0).as_matrix(), 1e-5)


def test_derivatives_where_nothing_turns() -> None:
    turned = mj.jacobian(lambda v: Rotation.from_rotvec(v).apply(np.array([1.0, 2, 3], np.float32)))(np.zeros(3, np.float32))
    close(turned, np.array([[0, 3, -2], [-3, 0, 1], [2, -1, 0]]))
    back = mj.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3, np.float32))
    close(back, np.eye(3))


def test_rotations_are_trees() -> None:
    mesh = mj.make_mesh((4, 2), ("a", "b"))
    quat = mj.device_put(QUAT, NamedSharding(mesh, P("a")))
    close(mj.jit(lambda r, v: r.apply(v))(Rotation.from_quat(quat), VECTORS), THEIRS.apply(VECTORS))
    each = mj.vmap(lambda q: Rotation.from_quat(q).as_euler("zyx"))(QUAT)
    close(each, THEIRS.as_euler("zyx"), 1e-5)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: Rotation.from_euler("xx", np.ones(2)), ValueError, "'xx' names the same axis twice in a row"),
        (lambda: Rotation.from_euler("xY", np.ones(2)), ValueError, "'xY' does not name one to three axes"),
        (lambda: Rotation.from_euler("xyz", np.ones(2)), ValueError, r"angles of shape \(2,\) are not those of the 3 axes 'xyz'"),
        (lambda: OURS.as_euler("xy"), ValueError, "'xy' has 2 axes, three are needed"),
        (lambda: OURS[0][0], TypeError, "a single rotation has no elements"),
        (lambda: len(OURS[0]), TypeError, r"a single rotation has no len\(\)"),
        (lambda: OURS.mean(np.ones(3)), ValueError, r"weights of shape \(3,\) for 8 rotations"),
        (lambda: Slerp.init(np.ones(2), OURS), ValueError, r"times of shape \(2,\) for 8 rotations"),
        (lambda: Slerp.init(np.ones(1), OURS[0]), ValueError, "there is one rotation, two at least are needed"),
        (lambda: Slerp.init(np.ones(2), QUAT), TypeError, "rotations is a ndarray, not a Rotation"),  # pyright: ignore
        (lambda: Slerp.init(np.arange(8), OURS)(np.ones((2, 2))), ValueError, r"times of shape \(2, 2\)"),
    ],
)
def test_what_is_refused(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
