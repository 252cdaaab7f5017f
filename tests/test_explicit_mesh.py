"""Types of axes and the mesh of the context: `AxisType`, `set_mesh`, `get_mesh`, `use_abstract_mesh`, as JAX 0.10.2 has them."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit as mj
from meshjit.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    PartitionSpec as P,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
    make_single_device_sharding,
    use_abstract_mesh,
)

EXPLICIT = (AxisType.Explicit, AxisType.Explicit)


def mesh(*types: AxisType) -> Mesh:
    return mj.make_mesh((4, 2), ("X", "Y"), axis_types=types or EXPLICIT)


def test_a_mesh_says_which_axes_are_of_which_type() -> None:
    mixed = mesh(AxisType.Explicit, AxisType.Auto)
    assert (mixed.explicit_axes, mixed.auto_axes, mixed.manual_axes) == (("X",), ("Y",), ())
    assert mesh().are_all_axes_explicit and not mixed.are_all_axes_explicit and not mixed.are_all_axes_auto
    assert mj.make_mesh((2,), ("x",), axis_types=AxisType.Auto).are_all_axes_auto


def test_meshes_are_updated() -> None:
    abstract = mesh().abstract_mesh.update_axis_types({"X": AxisType.Auto})
    assert abstract.axis_types == (AxisType.Auto, AxisType.Explicit)
    assert abstract.abstract_device == mesh().abstract_mesh.abstract_device
    assert abstract.update(axis_sizes=(2, 2), abstract_device=None) == AbstractMesh((2, 2), ("X", "Y"), abstract.axis_types)
    assert mesh().update(axis_types=AxisType.Auto) == mesh(AxisType.Auto, AxisType.Auto)


def test_set_mesh_is_a_statement_and_a_context() -> None:
    assert get_mesh().empty and get_abstract_mesh().empty
    with mj.set_mesh(mesh()) as current:
        assert current == get_mesh() == mesh()
        assert get_abstract_mesh() == mesh().abstract_mesh
    assert get_mesh().empty
    mj.set_mesh(mesh())
    assert get_mesh() == mesh()
    mj.set_mesh(None)
    assert get_mesh().empty


def test_a_mesh_that_is_only_entered_is_not_that_of_the_context() -> None:
    with mesh():
        assert get_mesh().empty and get_abstract_mesh().empty


def test_an_abstract_mesh_changes_the_types_of_axes() -> None:
    auto = mesh().abstract_mesh.update_axis_types({"Y": AxisType.Auto})
    with use_abstract_mesh(auto):
        assert get_abstract_mesh() == auto and get_mesh().empty
    with mj.set_mesh(mesh()), use_abstract_mesh(auto):
        assert get_abstract_mesh() == auto
        assert get_mesh().flat_devices == mesh().flat_devices


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an AbstractMesh, got Mesh"), use_abstract_mesh(mesh()):  # type: ignore[arg-type]
        pass
    small = AbstractMesh((2,), ("X",))
    with mj.set_mesh(mesh()), pytest.raises(ValueError, match="has 2 devices, but the current .* has 8"), use_abstract_mesh(small):
        pass
    with pytest.raises(TypeError, match="must be AxisType values"):
        mj.make_mesh((4, 2), ("X", "Y"), axis_types=("Auto", "Auto"))
    with pytest.raises(ValueError, match=r"axis_types must be 2 AxisType values, one for each of \('X', 'Y'\)"):
        mj.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Auto,))


def test_the_mesh_is_not_set_while_a_function_is_traced() -> None:
    def sets(x: object) -> object:
        mj.set_mesh(mesh())
        return x

    def asks(x: object) -> object:
        get_mesh()
        return x

    with pytest.raises(ValueError, match="sets is being traced\n  fix: set it around the call"):
        mj.jit(sets)(1.0)
    with pytest.raises(ValueError, match="asks is being traced\n  fix: meshjit.sharding.get_abstract_mesh()"):
        mj.jit(asks)(1.0)


def test_traced_functions_know_the_axes() -> None:
    seen: list[AbstractMesh] = []

    def asks(x: object) -> object:
        seen.append(get_abstract_mesh())
        return x

    traced = mj.jit(asks)
    for types in (EXPLICIT, (AxisType.Auto, AxisType.Explicit)):
        with mj.set_mesh(mesh(*types)):
            traced(np.float32(1))
            traced(np.float32(1))
    assert seen == [mesh().abstract_mesh, mesh(AxisType.Auto, AxisType.Explicit).abstract_mesh]


def test_a_sharding_of_one_device() -> None:
    device = mj.devices()[1]
    assert make_single_device_sharding(device) == SingleDeviceSharding(device)


def test_a_setting_says_what_axes_make_mesh_makes() -> None:
    assert mj.make_mesh((2,), ("x",)).are_all_axes_auto
    with mj.config.using(mesh_axis_types="explicit"):
        assert mj.make_mesh((2,), ("x",)).are_all_axes_explicit
        assert mj.make_mesh((2,), ("x",), axis_types=AxisType.Auto).are_all_axes_auto
    with pytest.raises(ValueError, match="expected one of 'auto', 'explicit'"):
        mj.config.update("mesh_axis_types", "manual")


def test_calls_run_where_the_mesh_of_the_context_has_no_devices() -> None:
    """As in JAX: nothing but the context names the mesh."""
    mesh = AbstractMesh((4, 2), ("x", "y"))
    with use_abstract_mesh(mesh):
        doubled = mj.jit(lambda x: 2 * x)(np.arange(4.0, dtype=np.float32))
        assert mj.random.normal(mj.random.key(0), (3,)).shape == (3,)
        with pytest.raises(ValueError, match="which needs 8 devices; none were given"):
            mj.jit(lambda x: 2 * x, in_shardings=P("x"))(np.arange(4.0))
        assert mj.jit(lambda x: 2 * x).lower(np.arange(4.0)).lowering.mesh.device_count == 8
    np.testing.assert_array_equal(np.asarray(doubled), [0, 2, 4, 6])
