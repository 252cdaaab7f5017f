"""Places without devices: meshes that are abstract, shapes that say where an array will be, and in which order it lies."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit as mj
import meshjit.lax as lax
import meshjit.numpy as mnp
from meshjit.experimental.layout import Format, Layout
from meshjit.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
    set_mesh,
    use_abstract_mesh,
)
from tests.tools.asserting import message

pytestmark = pytest.mark.device

DATA = np.arange(16, dtype=np.float32).reshape(8, 2)


def _mesh(*sizes: int, names: str = "xy", kind: AxisType = AxisType.Auto) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(mj.devices()[:count]).reshape(sizes), tuple(names[: len(sizes)]), (kind,) * len(sizes))


def test_constraint_on_a_mesh_without_devices_is_on_those_of_the_arguments() -> None:
    mesh = _mesh(2, 2)
    x = mj.device_put(DATA, NamedSharding(mesh, P("x", "y")))

    def f(x: mj.Array) -> mj.Array:
        return lax.with_sharding_constraint(x, NamedSharding(mesh.abstract_mesh, P("x"))) * 2

    for result in (mj.jit(f)(x), f(x)):
        assert result.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
        np.testing.assert_array_equal(result, DATA * 2)
    assert mj.jit(mj.vmap(f))(x).sharding.is_equivalent_to(NamedSharding(mesh, P(None, "x")), 2)
    elsewhere = Mesh(np.array(mj.devices()[4:]).reshape(2, 2), ("x", "y"))
    y = mj.jit(f)(mj.device_put(x, NamedSharding(elsewhere, P())))
    assert y.sharding.device_set == set(mj.devices()[4:])


def test_constraint_on_a_mesh_of_other_axes_and_as_many_devices() -> None:
    x = mj.device_put(DATA, NamedSharding(_mesh(2, 2), P("x", "y")))
    other = AbstractMesh((4, 1), ("a", "b"))
    result = mj.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(other, P(("a", "b")))) * 2)(x)
    assert result.sharding.is_equivalent_to(NamedSharding(_mesh(2, 2), P(("x", "y"))), 2)
    np.testing.assert_array_equal(result, DATA * 2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_axes_with_other_names_inside(kind: AxisType) -> None:
    mesh = _mesh(2, 2, kind=kind)
    with set_mesh(mesh):
        x = mj.device_put(DATA, NamedSharding(mesh, P("x", "y")))

        @mj.jit
        def f(x: mj.Array) -> mj.Array:
            with use_abstract_mesh(mesh.abstract_mesh.update(axis_sizes=(4, 1), axis_names=("a", "b"))):
                return mj.sharding.reshard(mnp.sin(x), P(("a", "b"), None)) * 2

        np.testing.assert_allclose(f(x), np.sin(DATA) * 2, rtol=1e-6)


def test_a_mesh_without_devices_needs_those_of_an_array() -> None:
    sharding = NamedSharding(AbstractMesh((2,), "x"), P("x"))
    assert message(ValueError, lambda: lax.with_sharding_constraint(np.arange(8), sharding)) == (
        "with_sharding_constraint of x: AbstractMesh('x': 2) has no devices, and it is no array\n"
        "  fix: a NamedSharding of a Mesh; or an array that lies on as many devices as the mesh has"
    )


def test_lower_for_types_that_say_no_place() -> None:
    mesh = _mesh(4, 2)
    place = NamedSharding(mesh, P("x", "y"))
    x = mj.device_put(DATA, place)
    type = mj.core.ShapedArray((8, 2), np.float32)
    compiled = mj.jit(lambda x, y: x @ y.T, in_shardings=place).lower(type, type).compile()
    np.testing.assert_array_equal(compiled(x, x), DATA @ DATA.T)


def test_type_has_an_entry_per_dim() -> None:
    sharding = NamedSharding(AbstractMesh((2,), "x", AxisType.Explicit), P("x"))
    assert mj.core.ShapedArray((8, 2), np.int32, sharding=sharding).sharding.spec == P("x", None)


def test_like_a_shape_on_a_mesh_without_devices() -> None:
    mesh = _mesh(2)
    shape = mj.ShapeDtypeStruct((8, 2), np.float32, sharding=NamedSharding(mesh.abstract_mesh, P("x")))
    assert mnp.zeros_like(shape).sharding == SingleDeviceSharding(mj.devices()[0])
    with set_mesh(mesh):
        assert mnp.full_like(shape, 2).sharding == NamedSharding(mesh, P("x"))
        assert mj.ShapeDtypeStruct((8, 2), np.float32, sharding=P("x")).sharding == NamedSharding(mesh, P("x"))


def test_formats_of_arguments_and_results() -> None:
    mesh = _mesh(4, 2)
    here, there = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x"))
    turned = mj.jit(lambda x: x.T, in_shardings=Format(Layout.AUTO, here), out_shardings=Format(Layout.AUTO, there))
    compiled = turned.lower(mj.ShapeDtypeStruct((8, 2), np.float32)).compile()
    format = compiled.input_formats[0][0]
    assert format == Format(Layout((0, 1)), here) and compiled.output_formats == Format(Layout((0, 1)), there)
    np.testing.assert_array_equal(compiled(mj.device_put(DATA, format)), DATA.T)
    shape = mj.ShapeDtypeStruct((8, 2), np.float32, sharding=format)
    assert shape.format == format and shape.sharding == here
    assert shape.update(sharding=Format(Layout((0, 1)), there)).sharding == there
    np.testing.assert_array_equal(mj.jit(lambda x: x * 2).lower(shape).compile()(mj.device_put(DATA, here)), DATA * 2)
    assert message(ValueError, lambda: shape.update(sharding=there)) == (
        f"ShapeDtypeStruct.update: sharding is {there}, and the layout Layout(major_to_minor=(0, 1)) is known\n"
        "  fix: sharding=Format(layout, sharding)"
    )
    auto = Format(Layout.AUTO, here)
    assert message(ValueError, lambda: mj.device_put(DATA, auto)) == (
        f"device_put of x: {auto} says no order\n  fix: the formats of a compiled function, such as compiled.input_formats"
    )
    assert message(TypeError, lambda: Format(1, here)) == "Format: layout is 1\n  fix: a Layout, Layout.AUTO, or None"  # pyright: ignore[reportArgumentType]
    assert message(TypeError, lambda: Format(None, P("x"))) == "Format: sharding is P('x',)\n  fix: a NamedSharding, or None"


def test_meshes_that_are_refused() -> None:
    manual = Mesh(mj.devices()[:2], "x", (AxisType.Manual,))
    assert message(ValueError, lambda: set_mesh(manual)) == (
        f"set_mesh: {manual} has Manual axes, along which only code inside of shard_map is\n  fix: shard_map(...)"
    )
    assert message(ValueError, lambda: mj.make_mesh(((4,), 2), ("x", "y"))) == (  # pyright: ignore[reportArgumentType]
        "make_mesh: axis_shapes are ints, got (4,) in ((4,), 2)"
    )
    place = NamedSharding(_mesh(4, 2), P("x", "y"))
    place.check_compatible_aval((8, 2))
    assert message(ValueError, lambda: place.check_compatible_aval((8,))) == (
        'an array of shape (8,): P("x", "y") has 2 entries but the array has 1 dims (8,)\n  fix: P("x")'
    )
    assert place.with_spec(["y"]).spec == P("y")


def test_weak_types_and_commitment_are_kept() -> None:
    assert lax.with_sharding_constraint(1.0, NamedSharding(_mesh(2), P())).weak_type
    assert not mnp.arange(3).addressable_shards[0].data.committed
    assert mj.device_put(mnp.arange(3), mj.devices()[1]).addressable_shards[0].data.committed


def test_out_sharding_of_another_rank_and_of_the_bits_alone() -> None:
    mesh = _mesh(2, kind=AxisType.Explicit)
    with set_mesh(mesh):
        x, i = mj.device_put(DATA, P("x")), mj.device_put(np.arange(8) % 2, P("x"))
        taken = mj.jit(mj.vmap(lambda x, i: x.at[i].get(out_sharding=mj.typeof(x).sharding)))(x, i)
        np.testing.assert_array_equal(taken, DATA[np.arange(8), np.arange(8) % 2])
        key, bits = lax.rng_bit_generator(np.array((1, 2, 3, 4), np.uint32), (4, 8), out_sharding=P("x"))
        assert mj.typeof(key).sharding.spec == P(None) and mj.typeof(bits).sharding.spec == P("x", None)


def test_keys_of_explicit_axes_in_a_shard_map_without_in_specs() -> None:
    mesh = _mesh(2, 2, kind=AxisType.Explicit)
    with set_mesh(mesh):
        keys = mj.sharding.reshard(mj.random.split(mj.random.key(0), 2), P("x"))
        drawn = mj.jit(mj.shard_map(lambda k: mj.random.normal(k[0], (1, 4)), out_specs=P("x"), axis_names={"x"}))(keys)
    np.testing.assert_allclose(drawn, mj.vmap(lambda k: mj.random.normal(k, (4,)))(mj.random.split(mj.random.key(0), 2)))


CALLS = [
    lambda: mnp.concatenate((DATA,)), lambda: mnp.hstack((DATA,)), lambda: mnp.vstack((DATA,)), lambda: mnp.block(DATA),
    lambda: mnp.column_stack((DATA,)), lambda: mnp.compress(np.ones(8, bool), DATA, 0), lambda: mnp.diff(DATA, 0),
    lambda: mnp.extract(DATA >= 0, DATA), lambda: mnp.histogram(DATA, DATA[0])[1], lambda: mnp.histogram_bin_edges(DATA, DATA[0]),
    lambda: mnp.ix_(np.arange(3))[0], lambda: mnp.trim_zeros(DATA + 1), lambda: lax.split(DATA, (8,))[0],
    lambda: mnp.repeat(DATA, np.ones(8, np.int32), 0), lambda: mnp.choose(0, (DATA,)),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_results_that_are_an_argument_are_arrays(call) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(call(), mj.Array)


def test_names_of_functions() -> None:
    assert mnp.sign.__name__ == "sign"


def test_constant_put_on_a_device_inside_of_jit_goes_where_the_function_runs() -> None:
    device, mesh = mj.devices()[3], _mesh(4)
    place = SingleDeviceSharding(device)
    sharded = mj.device_put(np.arange(4.0), NamedSharding(mesh, P("x")))

    def plus(constant: object, where: object) -> mj.Array:
        return mj.jit(lambda x: x + mj.device_put(constant, where))(sharded)

    for constant in (1.0, np.float32(1), np.ones(4, np.float32), mnp.ones(4)):
        for result in (plus(constant, device), plus(constant, place)):
            assert result.sharding.is_equivalent_to(sharded.sharding, 1)
            np.testing.assert_array_equal(result, np.arange(4.0) + 1)
    assert not mj.jit(lambda: mj.device_put(1.0, device))().committed
    assert mj.vmap(lambda x: x + mj.device_put(1.0, device))(mnp.arange(3.0)).devices() == {device}


def test_compiled_for_one_device_takes_arguments_from_everywhere() -> None:
    device = mj.devices()[1]
    with pytest.warns(DeprecationWarning, match="device= and backend= are deprecated"):
        jitted = mj.jit(lambda x: x @ x.T, device=device)
    compiled = jitted.lower(mj.ShapeDtypeStruct((8, 2), np.float32)).compile()
    for x in (DATA, mj.device_put(DATA, NamedSharding(_mesh(2, 2), P("x", "y"))), mj.device_put(DATA, mj.devices()[3])):
        result = compiled(x)
        assert result.devices() == {device}
        np.testing.assert_array_equal(result, DATA @ DATA.T)


def test_shapes_of_64_bits_are_of_32_where_arrays_are() -> None:
    """np.dtype(float) is float64: what was traced for it computed in 64 bits, and no array could be given to it once compiled."""
    for kind, name in ((float, "float32"), (int, "int32"), (np.complex128, "complex64"), ("uint64", "uint32")):
        shape = mj.ShapeDtypeStruct((2, 3), kind)
        assert mj.eval_shape(lambda x: x, shape).dtype == mnp.dtype(name)
        assert mj.eval_shape(mj.vmap(lambda x: x[0]), shape).dtype == mnp.dtype(name)
        compiled = mj.jit(lambda x: x + x).lower(shape).compile()
        assert compiled(np.ones((2, 3), kind)).dtype == mnp.dtype(name)
        with mj.enable_x64(True):
            assert mj.eval_shape(lambda x: x, shape).dtype == shape.dtype
    whole = mj.linear_transpose(lambda x: x * 2, mj.ShapeDtypeStruct((3,), float))(mnp.ones(3))
    assert whole[0].dtype == mnp.float32


def test_types_of_arrays_that_were_made_in_64_bits_stay() -> None:
    with mj.enable_x64(True):
        x = mnp.ones(2)
    assert mj.eval_shape(lambda x: x, x).dtype == mj.eval_shape(lambda x: x, mj.typeof(x)).dtype == mnp.float64
