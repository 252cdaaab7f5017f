"""`meshjit.as_jax`: `import jax` is meshjit, each in a process of its own; what is missing is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

ROOT = Path(__file__).parents[1]


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def output(*arguments: str, folder: Path = ROOT) -> str:
    result = run(*arguments, folder=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


IMPORTS = """
import sys
import jax, jax.numpy as jnp, meshjit
import jax.scipy.linalg
from jax import jit, lax, random, tree_util
from jax.lax import linalg
from jax.sharding import PartitionSpec as P
assert jax.numpy is meshjit.numpy and jax.lax is meshjit.lax and linalg is meshjit.lax.linalg and jit is meshjit.jit is jax.jit
assert jax.scipy.linalg is sys.modules["meshjit.scipy.linalg"] and jax.config is meshjit.config and jax.P is P
assert jax.__version__ == "0.10.2" and jax.__version_info__ == jax.version.__version_info__ == (0, 10, 2)
assert {"numpy", "grad", "__version__"} <= set(dir(jax)) and not {"plan", "transform", "api"} & set(dir(jax))
print(jax.jit(lambda x: jnp.sin(x).sum())(jnp.zeros(3)), sys.argv[1:], __name__)
assert not any(m.startswith("jax._src") or getattr(sys.modules[m], "__name__", "").startswith("jax.") for m in list(sys.modules))
"""

PRIVATE = """
import jax
from jax._src.state.types import AbstractRef
assert type(jax.typeof(jax.new_ref(1))) is AbstractRef is jax.ref.AbstractRef
"""
LOOKED_UP = """
import sys
import jax
assert all(sys.modules[f"jax.{name}"] is getattr(jax, name) for name in ("tree_util", "numpy", "lax", "random", "sharding", "nn"))
assert not [name for name in sys.modules if name.startswith(("jax._", "jax.api", "jax.plan"))]
"""


def test_modules_that_import_jax_has_loaded_are_known_by_its_names(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOOKED_UP)
    output("-m", "meshjit.as_jax", str(tmp_path / "program.py"))


def test_types_that_libraries_take_from_private_modules_are_those_of_values(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PRIVATE)
    output("-m", "meshjit.as_jax", str(tmp_path / "program.py"))


@pytest.mark.parametrize("how", ["script", "module", "import"])
def test_jax_is_meshjit(tmp_path: Path, how: str) -> None:
    (tmp_path / "program.py").write_text(("import meshjit.as_jax\n" if how == "import" else "") + IMPORTS)
    before = {"script": ["-m", "meshjit.as_jax", str(tmp_path / "program.py")], "module": ["-m", "meshjit.as_jax", "-m", "program"]}
    arguments = before.get(how, [str(tmp_path / "program.py")])
    assert output(*arguments, "--steps", "3", folder=tmp_path) == "0.0 ['--steps', '3'] __main__\n"


MISSING = """
import meshjit.as_jax, jax
def error(code):
    try:
        exec(code)
    except Exception as caught:
        print(type(caught).__name__, getattr(caught, "name", None), caught, sep=" | ")
error("jax.tyred")
error("from jax import devicse")
error("import jax.experimental.tyred")
error("import jax.experimental.xla_metadata")
error("from jax._src.interpreters import tyred")
error("jax.plan")
error("import jax.plan")
print(hasattr(jax, "tyred"), hasattr(jax, "trace"))
"""


def test_what_is_missing_is_named() -> None:
    private = "jax._src is private to JAX, and meshjit has only what libraries that it was tried with import from there"
    assert output("-c", MISSING).splitlines() == [
        "AttributeError | tyred | jax.tyred: meshjit has no tyred",
        "ImportError | devicse | jax.devicse: meshjit has no devicse; did you mean devices?",
        "ModuleNotFoundError | jax.experimental.tyred | no module 'jax.experimental.tyred': meshjit, which stands for jax here, has no such module yet",
        "ModuleNotFoundError | jax.experimental.xla_metadata | no module 'jax.experimental.xla_metadata': meshjit.experimental has no"
        " xla_metadata (docs/migration.md): attributes for passes of XLA's, which the text that planning writes does not carry",
        "  instead: jit(f, compiler_options=...) for all of a program; named_scope for names in profiles",
        f"ModuleNotFoundError | jax._src.interpreters | no module 'jax._src.interpreters' in meshjit, which stands for jax here: {private}",
        "AttributeError | plan | jax.plan: meshjit has no plan",
        "ModuleNotFoundError | jax.plan | no module 'jax.plan': meshjit, which stands for jax here, has no such module yet",
        "False False",
    ]


def test_jax_itself_must_not_be_there_already(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("")
    result = run("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import jax; import meshjit.as_jax")
    assert result.stderr.splitlines()[-2:] == [
        f"RuntimeError: jax itself is in the process already ({tmp_path / 'jax.py'}), so it cannot be meshjit any more",
        "  fix: import meshjit.as_jax before everything that imports jax, or python -m meshjit.as_jax script.py",
    ]


def test_without_a_script_it_says_how_it_is_called() -> None:
    for arguments in ([], ["-m"]):
        result = run("-m", "meshjit.as_jax", *arguments)
        assert (result.returncode, result.stderr) == (1, "usage: python -m meshjit.as_jax (script.py | -m module) [arguments]\n")


LIBRARY = """
from jax._src import traceback_util
import jax.numpy as jnp
traceback_util.register_exclusion(__file__)
def layer(x):
    return jnp.dot(x, jnp.ones(3))
"""
CALLER = """
import jax, jax.numpy as jnp
from library import layer
try:
    jax.jit(layer)(jnp.ones((3, 4)))
except TypeError as error:
    print(error)
try:
    layer(jnp.ones((3, 4)))
except TypeError as error:
    print(error)
"""


def test_a_library_that_hides_its_files_has_its_callers_named(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "caller.py").write_text(CALLER)
    text = output("-m", "meshjit.as_jax", str(tmp_path / "caller.py"))
    assert text.count("at caller.py:") == 2 and "caller.py:9 (<module>)" in text and "library.py" not in text


LIBRARIES = """
from functools import partial
import meshjit.as_jax, inspect, jax, numpy, os
assert jax._src.xla_bridge._backends == {} and not hasattr(jax._src, "tyred")
from jax._src.flatten_util import ravel_pytree
from jax.extend.core import valid_jaxtype
assert ravel_pytree is jax.flatten_util.ravel_pytree
from jax._src.ad_util import stop_gradient_p
assert stop_gradient_p is jax.lax.stop_gradient_p
assert [valid_jaxtype(x) for x in (1.0, numpy.ones(2), "text", None)] == [True, True, False, False]
assert list(inspect.signature(jax.jit(lambda x, *, y: x), follow_wrapped=False).parameters) == ["x", "y"]
os.environ.pop("MESHJIT_NUM_CPU_DEVICES", None)
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
assert len(jax.devices()) == 3
from jax.extend.core import primitives, take_current_trace
from jax.extend import linear_util
assert jax.make_jaxpr(lambda x: jax.jit(jax.numpy.sin)(x))(1.0).eqns[0].primitive is primitives.jit_p
assert jax.typeof(numpy.ones(2, "int32")).to_tangent_aval().dtype == jax.dtypes.float0
class Mine(jax.core.Trace): pass
for refused in (Mine, take_current_trace, linear_util.transformation(lambda: None), jax.experimental.sparse.BCOO):
    try:
        refused()
        assert False, refused
    except NotImplementedError as error:
        assert "fix: " in str(error)
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
whether = Primitive("whether")
whether.def_impl(jax.numpy.any)
mlir.register_lowering(whether, mlir.lower_fun(jax.numpy.any, multiple_results=False))
batching.primitive_batchers[whether] = lambda xs, dims: (whether.bind(*xs), batching.not_mapped)
last = Primitive("last")
last.multiple_results = True
last.def_impl(lambda x, *, more: [x, x + more])
batching.primitive_batchers[last] = lambda xs, dims, *, more: ([xs[0].T, xs[0] + more], (xs[0].ndim - 1, dims[0]))
ones = numpy.arange(6.0).reshape(3, 2)
assert jax.vmap(lambda x: whether.bind(x > 4), out_axes=None)(ones)
assert jax.vmap(lambda x: last.bind(x, more=1), out_axes=[1, 0])(ones)[0].shape == (2, 3)
from jax.interpreters import ad
solve = Primitive("solve")  # y with a y = b, linear in b
solve.def_impl(lambda a, b: jax.numpy.where(jax.numpy.isnan(b / a), 0.0, b / a))
asked = []
def solve_jvp(primals, tangents):
    (a, b), (da, db) = primals, map(ad.instantiate_zeros, tangents)
    y = solve.bind(a, b)
    return y, solve.bind(a, db - da * y)
def solve_transpose(ct, a, b):
    asked.append((ad.is_undefined_primal(a), ad.is_undefined_primal(b), b.aval.shape))
    return None, solve.bind(a, ct)
ad.primitive_jvps[solve], ad.primitive_transposes[solve] = solve_jvp, solve_transpose
f = lambda a, b: solve.bind(a, b).sum()
two, three = numpy.full(2, 2.0, "float32"), numpy.full(2, 3.0, "float32")
assert [g.tolist() for g in jax.grad(f, (0, 1))(two, three)] == [[-0.75] * 2, [0.5] * 2] and asked == [(False, True, (2,))]
assert jax.vmap(jax.grad(f, 1))(two.reshape(1, 2), three.reshape(1, 2)).tolist() == [[0.5] * 2]
assert jax.jit(jax.grad(lambda b: jax.grad(f)(two, b).sum()))(three).tolist() == [-0.25] * 2
assert jax.linear_transpose(lambda b: solve.bind(two, b), three)(three)[0].tolist() == [1.5] * 2
from jax.interpreters import partial_eval as pe, xla
from jax.api_util import flatten_fun_nokwargs
from jax.extend import linear_util as lu
x = jax.numpy.ones(3)
flat, tree = flatten_fun_nokwargs(lu.wrap_init(lambda a, k: {"a": a + 1, "b": x.sum() * 2, "c": jax.random.bits(k)}),
                                  jax.tree.structure((0, 0)))
avals = [jax.typeof(x), jax.typeof(jax.random.key(0))]
assert all(isinstance(a, jax.core.AbstractValue) for a in avals)
_, (a, b, c), _ = pe.trace_to_jaxpr_nounits(flat, list(map(pe.PartialVal.unknown, avals)))
assert a.pv.shape == (3,) and b.pv is None and float(b.const) == 6 and c.pv.dtype == "uint32" and tree().num_leaves == 3
assert jax.Array.sum.__name__ and "reshape" in dir(jax.Array) and not hasattr(jax.Array, "nothing")
from jax.experimental.sparse import BCOO
assert not isinstance(x, BCOO)
import jax.experimental.colocated_python as cp
from jax.experimental.colocated_python import func, serialization
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManagerBase
from jax.extend import ifrt_programs
from jax.interpreters import pxla
import jax.extend, jax.lib
from jax.extend import backend
assert jax.interpreters.batching.register_vmappable and batching.unregister_vmappable
assert backend.get_backend() is backend.get_backend("cpu") is jax.devices()[0].client is backend.backends()["cpu"]
assert backend.get_backend().platform in backend.backends() and backend.get_default_device() in jax.devices()
from jax._src.core import Primitive
from jax.api_util import argnums_partial
from jax.extend.core import concrete_or_error
from jax.interpreters.xla import apply_primitive
twice = Primitive("twice")
twice.def_impl(partial(apply_primitive, twice))
twice.def_abstract_eval(lambda x: x)
try:
    twice.bind(x)
    assert False
except NotImplementedError as error:
    assert "fix: mlir.register_lowering" in str(error)
mlir.register_lowering(twice, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
ad.deflinear(twice, lambda ct: [twice.bind(ct)])
assert jax.grad(lambda x: twice.bind(x).sum())(x).tolist() == [2] * 3 and jax.jvp(twice.bind, (x,), (x,))[1][0] == 2
added, given = argnums_partial(linear_util.wrap_init(lambda a, b, c: a + b * c), (0, -1), (1, 2, 3))
assert given == (1, 3) and added.call_wrapped(*given) == 7
from jax.experimental import pallas
from jax.experimental.pallas import triton
try:
    pallas.pallas_call(lambda: None)
    assert False
except NotImplementedError as error:
    assert "fix: " in str(error)
assert twice.bind(x)[0] == 2 == jax.jit(twice.bind)(x)[0]
from jax._src.lib import xla_client
from jax._src.numpy.ufuncs import isnan, ufunc
from jax._src.numpy.util import promote_dtypes, promote_dtypes_complex, promote_dtypes_inexact, promote_dtypes_numeric
from jax._src.scipy.special import gammaln
assert issubclass(xla_client.XlaRuntimeError, RuntimeError) and isinstance(jax.numpy.add, ufunc) and isnan and abs(gammaln(1.0)) < 1e-6
promoters = promote_dtypes, promote_dtypes_numeric, promote_dtypes_inexact, promote_dtypes_complex
told = [[(y.dtype.name, y.weak_type) for y in f(*xs)] for f in promoters for xs in ((True,), (1, numpy.int8(2)), (1, 2.0), (x, 1j))]
i, f, c = ["int8"] * 2, ["float32"] * 2, ["complex64"] * 2
names = ["bool", *i, *f, *c, "int32", *i, *f, *c, "float32", *f, *f, *c, "complex64", *c, *c, *c]
assert [name for row in told for name, _ in row] == names, told
assert [i for i, row in enumerate(told) if row[0][1]] == [2, 6, 10, 14]
assert concrete_or_error(int, x[0], "n") == 1 and concrete_or_error(None, 3) == 3
try:
    jax.jit(lambda n: concrete_or_error(int, n, "the number of steps"))(3)
    assert False
except jax.errors.ConcretizationTypeError as error:
    assert "the number of steps" in str(error)
assert jax.extend.core.Literal and not hasattr(jax.extend, "mlir") and jax.lib.__version__
state = jax._src.distributed.global_state
assert (state.client, state.process_id, state.num_processes) == (None, 0, 1)
assert cp.colocated_python(lambda x: x + 1)(x)[0] == x[0] + 1 and serialization.DeviceList
assert jax._src.tree_util.flatten_one_level({"a": [1]})[0] == ([1],)
assert x.sharding._addressable_device_assignment == (jax.devices()[0],)
assert "PjitFunction" in str(type(jax.jit(len))) and "PmapFunction" in str(type(jax.pmap(len)))
"""


def test_what_libraries_ask_beside_the_public_names() -> None:
    assert output("-c", LIBRARIES) == ""
