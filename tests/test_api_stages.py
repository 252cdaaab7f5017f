"""The stages: every attribute of Traced, Planned, Lowered and Compiled, and what Compiled refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import stages
from meshjit.core.parser import parse_program
from meshjit.experimental.layout import Format, Layout
from meshjit.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

pytestmark = pytest.mark.device

X = np.ones((8, 4), np.float32)


def mesh(*sizes: int) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(mj.devices()[:count]).reshape(sizes), ("x", "y")[: len(sizes)])


def step(params: Any, x: Any, n: int = 2) -> Any:
    return {"w": params["w"] * n, "loss": (x @ params["w"]).sum()}


def lowered(**kwargs: Any) -> stages.Lowered:
    return mj.jit(step, static_argnames="n", **kwargs).lower({"w": X.T}, X, n=3)


def test_the_chain_of_stages() -> None:
    wrapped = mj.jit(step, static_argnames="n")
    traced = wrapped.trace({"w": X.T}, X)
    planned = traced.plan()
    low = planned.lower()
    compiled = low.compile()
    kinds = (stages.Wrapped, stages.Traced, stages.Planned, stages.Lowered, stages.Compiled)
    for stage, kind in zip((wrapped, traced, planned, low, compiled), kinds, strict=True):
        assert isinstance(stage, kind)
    assert low.plan is planned.plan and isinstance(low.plan, stages.Plan)
    result = compiled({"w": X.T}, X)
    np.testing.assert_array_equal(result["w"], 2 * X.T)
    assert float(result["loss"]) == 256


def test_what_every_stage_knows_of_arguments_and_results() -> None:
    jitted = mj.jit(step, static_argnames="n", donate_argnums=0)
    traced = jitted.trace({"w": X.T}, X, n=3)
    every: list[Any] = [traced, traced.plan(), traced.lower(), traced.lower().compile()]
    for stage in every:
        assert stage.fun_name == "step"
        assert stage.in_tree == mj.tree.structure((({"w": 0}, 0), {}))
        assert stage.out_tree == mj.tree.structure({"loss": 0, "w": 0})
        info = stage.args_info[0][0]["w"]
        assert (info.shape, info.dtype, info.donated) == ((4, 8), np.float32, True)
        assert not stage.args_info[0][1].donated
        assert stage.in_avals[0][1].shape == (8, 4)
        assert (stage.out_info["loss"].shape, stage.out_info["loss"].dtype) == ((), np.float32)
        assert stage.donate_argnums == (0,)


def test_what_is_lowered_knows_where_its_results_are_asked_to_be() -> None:
    mesh = mj.make_mesh((4, 2), ("a", "b"))
    rows = NamedSharding(mesh, P("a", None))
    lowered = mj.jit(lambda x: (x, x + 1), out_shardings=(rows, None)).lower(mj.ShapeDtypeStruct((8, 4), np.float32))
    assert [info.sharding for info in lowered.out_info] == [rows, None]


def test_traced() -> None:
    traced = mj.jit(step, static_argnames="n").trace({"w": X.T}, X, n=3)
    assert traced.jaxpr.program is traced.program
    assert str(parse_program(traced.as_text())) == str(traced.program)
    weak = mj.jit(lambda x: x + 1).trace(2)
    assert weak.in_avals[0][0].weak_type and weak.out_info.weak_type
    assert str(weak.in_avals) == "((ShapedArray(int32[], weak_type=True),), {})"
    assert mj.jit(step, static_argnames="n").eval_shape({"w": X.T}, X, n=3)["w"].shape == (4, 8)


def test_shapes_stand_for_arrays_also_on_meshes() -> None:
    place = NamedSharding(mesh(4), P("x"))
    low = mj.jit(lambda x: x + 1).lower(mj.ShapeDtypeStruct((8, 4), np.float32, sharding=place))
    assert low.compile().input_shardings == ((place,), {})


def test_the_plan_says_where_everything_is() -> None:
    place = NamedSharding(mesh(4), P("x"))
    planned = mj.jit(lambda x: mnp.sin(x) * 2, in_shardings=place).trace(X).plan()
    assert planned.mesh == place.mesh
    assert "f32[8@x, 4] = sine(" in planned.as_text() == str(planned)
    assert all(v in planned.placements for v in planned.program.vars())


def test_texts_in_every_dialect() -> None:
    low = lowered()
    assert low.as_text() == low.as_text("stablehlo") and "stablehlo.dot_general" in low.as_text()
    assert "loc(" not in low.as_text() and 'loc("step"(' in low.as_text(debug_info=True)
    assert low.as_text("hlo").startswith("HloModule jit_step")
    assert low.as_text("meshjit").startswith("program step(%params_w: f32[4, 8], %x: f32[8, 4])")
    assert "# test_api_stages.py" in low.as_text("local", debug_info=True)
    with pytest.raises(ValueError) as error:
        low.as_text("mhlo")
    assert str(error.value) == "unknown dialect 'mhlo'\n  fix: use 'stablehlo', 'hlo', 'meshjit' or 'local'"


def test_compiler_ir_in_every_dialect() -> None:
    low = lowered()
    assert "stablehlo.dot_general" in str(low.compiler_ir())
    assert low.compiler_ir("hlo").as_hlo_text() == low.as_text("hlo")
    assert low.compiler_ir("meshjit").name == "step"
    with pytest.raises(ValueError, match="unknown dialect 'x'"):
        low.compiler_ir("x")


def test_analyses() -> None:
    low = lowered()
    assert low.cost_analysis()["flops"] > 2 * 8 * 4 * 8
    compiled = low.compile()
    assert compiled.cost_analysis()["flops"] > 2 * 8 * 4 * 8
    assert compiled.memory_analysis().argument_size_in_bytes == 2 * X.nbytes
    assert compiled.as_text().startswith("HloModule jit_step")
    assert hasattr(compiled.runtime_executable(), "execute_sharded")


def test_shardings_and_formats_of_a_compiled_function() -> None:
    place = NamedSharding(mesh(4), P("x"))
    compiled = mj.jit(lambda x, unused: (x, x.sum()), in_shardings=place, out_shardings=(place, None)).lower(X, X).compile()
    assert compiled.input_shardings == ((place, None), {})
    assert compiled.output_shardings[0] == place
    assert compiled.input_formats == ((Format(Layout((0, 1)), place), Format(None, None)), {})
    assert compiled.output_formats[0] == Format(Layout((0, 1)), place)
    assert compiled.input_layouts == ((Layout((0, 1)), None), {}) and compiled.output_layouts[1] == Layout(())
    assert compiled.out_info[0].sharding == place


def test_lowering_platforms() -> None:
    traced = mj.jit(lambda x: x).trace(X)
    assert traced.lower(lowering_platforms=("cpu", "tpu")).compile()(X).shape == (8, 4)
    assert traced.lower(lowering_platforms=("tpu",)).as_text() == traced.lower().as_text()
    with pytest.raises(ValueError) as error:
        traced.lower(lowering_platforms=("tpu",)).compile()
    assert str(error.value) == (
        "jit(lambda) was lowered for tpu, its devices are of platform cpu\n"
        "  fix: lower(lowering_platforms=('cpu',)), or leave lowering_platforms out"
    )
    with pytest.raises(ValueError) as error:
        traced.lower(lowering_platforms=("abacus",))
    assert str(error.value) == "lowering_platforms has 'abacus'\n  fix: use some of cpu, cuda, rocm, gpu, tpu"


def test_lower_without_devices_compile_with_them() -> None:
    abstract = AbstractMesh((4,), ("x",))
    spec = mj.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(abstract, P("x")))
    low = mj.jit(lambda x: mnp.cumsum(x, 0)).lower(spec)
    compiled = low.compile(device_assignment=mj.devices()[4:])
    result = compiled(X)
    np.testing.assert_array_equal(result, np.cumsum(X, 0))
    assert result.devices() == set(mj.devices()[4:])
    with pytest.raises(ValueError) as error:
        low.compile()
    assert str(error.value) == (
        "jit(lambda) is lowered for AbstractMesh('x': 4), which needs 4 devices; none were given\n"
        "  fix: compile(device_assignment=meshjit.devices()[:4])"
    )
    with pytest.raises(ValueError, match="which needs 4 devices; 8 were given"):
        low.compile(device_assignment=mj.devices())


def test_compiler_options_reach_xla() -> None:
    def options(**kwargs: Any) -> Any:
        return mj.jit(lambda x: x + 1, compiler_options=kwargs)

    assert options(xla_embed_ir_in_executable=True)(X).shape == (8, 4)
    low = mj.jit(lambda x: x + 1).lower(X)
    assert low.compile({"xla_embed_ir_in_executable": "true"})(X).shape == (8, 4)
    with pytest.raises(ValueError) as error:
        options(xla_nope=1)(X)
    assert str(error.value) == (
        "jit(lambda): compiler_options has 'xla_nope', which this XLA does not know\n"
        "  fix: spell it as in XLA_FLAGS, without the dashes; or leave it out"
    )
    with pytest.raises(ValueError) as error:
        low.compile({"xla_embed_ir_in_executable": "maybe"})
    assert str(error.value) == (
        "jit(lambda): compiler_options['xla_embed_ir_in_executable'] = 'maybe': 'maybe' is not a valid bool value\n"
        "  fix: give it a value of the option's type"
    )
    with pytest.raises(TypeError) as wrong:
        mj.jit(lambda x: x, compiler_options=3)
    assert str(wrong.value) == (
        "jit(lambda): compiler_options must be a dict of XLA's options, got int: 3\n"
        '  fix: compiler_options={"xla_cpu_enable_fast_math": True}'
    )
    with pytest.raises(TypeError, match=r"compiler_options\['a'\] is \[1\] of type list"):
        low.compile({"a": [1]})
    with pytest.raises(TypeError, match="has the key 3, but names of XLA's options are strings"):
        low.compile({3: 1})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError) as nested:
        mj.jit(options(xla_embed_ir_in_executable=True))(X)
    assert str(nested.value) == (
        "jit(lambda) has compiler_options {'xla_embed_ir_in_executable': True}, but is called inside of another jitted"
        " function\n  XLA compiles one program, of the outermost function\n  fix: give the options to the outermost jit"
    )


def test_static_arguments_are_left_out_of_a_compiled_call() -> None:
    compiled = lowered().compile()
    assert float(compiled({"w": X.T}, X)["loss"]) == 256
    with pytest.raises(TypeError) as error:
        compiled({"w": X.T}, X, n=3)
    assert str(error.value) == (
        "jit(step) was compiled for arguments ({'w': *}, *), called with ({'w': *}, *, n=*)\n"
        "  n= is not known to it\n"
        "  static arguments (n) are part of the compiled function: leave them out\n"
        "  fix: call it with the same containers, or lower and compile for these"
    )


def test_every_place_where_containers_differ_is_named() -> None:
    params = {"layers": [{"w": X, "b": X} for _ in range(8)], "head": (X, None)}
    compiled = mj.jit(lambda params, x, *, y: x).lower(params, X, y=X).compile()
    other = {"layers": [{"w": X, "b": X} for _ in range(8)], "head": X, "tail": X}
    other["layers"][2] = {"w": X, "bias": X}
    with pytest.raises(TypeError) as error:
        compiled(other, X, z=X)
    assert str(error.value) == (
        "jit(lambda) was compiled for arguments in other containers than it is called with\n"
        "  params['tail'] is not known to it\n"
        "  params['head'] is a leaf, compiled for a tuple of 2\n"
        "  params['layers'][2]['b'] is missing\n"
        "  params['layers'][2]['bias'] is not known to it\n"
        "  y= is missing\n"
        "  z= is not known to it\n"
        "  fix: call it with the same containers, or lower and compile for these"
    )
    with pytest.raises(TypeError, match="it takes 2 positional arguments, 1 were given"):
        compiled(params, y=X)


def test_every_argument_that_does_not_fit_is_named() -> None:
    compiled = lowered().compile()
    with pytest.raises(TypeError) as error:
        compiled({"w": X}, X.astype(int))
    assert str(error.value) == (
        "jit(step) was compiled for params['w']: f32[4,8], called with f32[8,4]\n"
        "jit(step) was compiled for x: f32[8,4], called with i32[8,4]\n"
        "  fix: convert or reshape the argument, or lower and compile for this type"
    )
    moved = mj.device_put(X, mj.devices()[1])
    with pytest.raises(ValueError) as placed:
        compiled({"w": X.T}, moved)
    assert str(placed.value).startswith(
        f"jit(step) was compiled for x f32[8,4] at device {mj.devices()[0]}, called with one committed to device {mj.devices()[1]}"
    )


def test_a_weak_argument_may_be_strong_in_the_compiled_call() -> None:
    compiled = mj.jit(lambda a, b: a + b).lower(X, 1.0).compile()
    np.testing.assert_array_equal(compiled(X, np.float32(2)), X + 2)


def test_pruned_arguments_may_lie_anywhere() -> None:
    compiled = mj.jit(lambda a, b: a).lower(X, X).compile()
    np.testing.assert_array_equal(compiled(X, mj.device_put(X, NamedSharding(mesh(4), P("x")))), X)
    assert compiled.input_shardings == ((SingleDeviceSharding(mj.devices()[0]), None), {})
    with pytest.raises(TypeError, match=r"compiled for b: f32\[8,4\], called with f32\[4,8\]"):
        compiled(X, X.T)


def test_modules_of_jax() -> None:
    from meshjit.experimental.pjit import pjit

    place = NamedSharding(mesh(4), P("x"))
    assert pjit is mj.pjit
    assert pjit(lambda x: x, None, place)(X).sharding == place
    assert mj.jit(lambda x: x, in_shardings=mj.sharding.AUTO, out_shardings=mj.sharding.AUTO(place.mesh))(X).shape == (8, 4)


def test_where_an_array_lives_and_how() -> None:
    x = mj.device_put(np.ones((8, 3, 2), np.float32), NamedSharding(mj.make_mesh((4,), ("a",)), P("a")))
    assert x.format.sharding == x.sharding and x.format.layout.major_to_minor == (0, 1, 2)
    assert mj.device_put(x, x.format).format == x.format
