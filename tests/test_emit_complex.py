"""Complex scalars that are constants. XLA folds them while it compiles, and where it cannot the process dies, so this is tried
in a process of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meshjit
import meshjit.numpy as jnp
from meshjit import lax
from meshjit.core.op import REGISTRY, Op, Sample
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import tensor
from meshjit.runtime import _jaxlib
from tests.tools import op_harness
from tests.tools.op_harness import GLOBAL_OPS, NEEDS_LAPACK, cpu_devices, emitter, out_types, samples

ROOT = Path(__file__).parent.parent
COMPLEX = ("c64", "c128")
CAUSES = "import faulthandler; faulthandler.enable()\n"


@pytest.mark.parametrize("shape", [(), (3,), (0,)])
@pytest.mark.parametrize(("source", "target"), list(itertools.product(COMPLEX, DTYPES)))
def test_a_complex_becomes_another_dtype_by_its_real_part(source, target, shape):
    ins, outs = (TensorType(shape, DTYPES[name]) for name in (source, target))
    e = emitter()
    convert = REGISTRY["convert"]
    convert.emit(e, [e.constant(np.zeros(shape, ins.dtype))], (ins,), (outs,), {"dtype": outs.dtype})
    converts = [line for line in e.lines if "stablehlo.convert" in line]
    if target not in COMPLEX:
        assert not any("complex" in line for line in converts)
        assert any(word in e.lines[-1 - len(converts)] for word in ("stablehlo.real", "stablehlo.compare"))


def in_subprocess(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", CAUSES + code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-300:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_every_op_that_takes_complex_numbers_compiles_with_constants() -> None:
    names = in_subprocess("from tests.test_emit_complex import compile_all; compile_all()").split()
    assert len(names) > 60 and {"convert", "real", "abs", "power", "fft", "scan"} <= set(names)


def compile_all() -> None:
    """Compile a module per op, its operands being constants, and say its name first, so that it is known which one was the last."""
    client, devices = cpu_devices()
    for op in GLOBAL_OPS:
        found = list(complex_samples(op))
        if found:
            print(op.name, flush=True)
            _jaxlib.compile(client, module_of_constants(op, found), devices[:1])


def complex_samples(op: Op) -> Iterator[Sample]:
    """The op's samples with complex operands: as scalars where the op takes them, else as they are; doubled, too."""
    for sample in samples(op):
        if any(t.dtype.kind == "c" for t in sample.types):
            scalar = Sample(tuple(TensorType((), t.dtype) for t in sample.types), sample.params, sample.fill)
            fitting = scalar if takes(op, scalar) else sample
            yield fitting
            wide = op_harness.doubled(op, fitting)
            if wide is not None:
                yield wide


def takes(op: Op, sample: Sample) -> bool:
    """Whether the op's type rule accepts the sample; rules raise several errors for ranks that they do not expect."""
    try:
        out_types(op, sample)
    except Exception:
        return False
    return True


def module_of_constants(op: Op, found: list[Sample]) -> str:
    """A module without arguments that gives the op's results of all samples."""
    e = emitter(lapack=op.name in NEEDS_LAPACK)
    generator = np.random.default_rng(0)
    returned: list[str] = []
    for sample in found:
        operands = [e.constant(array) for array in sample.arrays(generator)]
        returned += op.emit(e, operands, sample.types, out_types(op, sample), sample.params)
    types = [tensor(e.types[r]) for r in returned]
    lines = "\n".join(e.lines)
    return (
        "module @m attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"
        f"func.func public @main() -> ({', '.join(types)}) {{\n{lines}\nreturn {', '.join(returned)} : {', '.join(types)}\n}}\n"
        f"{''.join(e.functions.values())}}}"
    )


WAYS = """
import numpy as np
import meshjit, meshjit.numpy as jnp
from meshjit import lax

def check(fun, wanted, x=1.0):
    found = meshjit.jit(fun)(x)
    np.testing.assert_allclose(np.asarray(found, np.complex64), wanted, rtol=1e-5)

for dtype in ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "uint32", "bool", "complex64"):
    dtype = jnp.dtype(dtype)
    constants = {
        "constant": lambda: jnp.full((), 2 + 3j),
        "zero": lambda: jnp.zeros((), jnp.complex64),
        "weak": lambda: jnp.asarray(2 + 3j),
        "folded": lambda: jnp.add(jnp.full((), 1 + 1j), jnp.full((), 1 + 2j)),
        "numpy": lambda: np.complex64(2 + 3j),
        "dimless": lambda: jnp.full((3,), 2 + 3j)[1],
    }
    for name, make in constants.items():
        want = np.complex64(0 if name == "zero" else 2 + 3j)
        want = want.astype(bool) if dtype == bool else want if dtype.kind == "c" else want.real
        print(dtype, name, flush=True)
        check(lambda x: lax.convert_element_type(make(), dtype), want)
        check(lambda x: jnp.asarray(make()).astype(dtype), want)
        check(lambda x: jnp.asarray(make(), dtype), want)
        check(lambda x: lax.cond(x > 0, lambda: jnp.asarray(make()).astype(dtype), lambda: jnp.zeros((), dtype)), want)
        check(lambda x: lax.fori_loop(0, 2, lambda i, c: jnp.asarray(make()).astype(dtype), jnp.zeros((), dtype)), want)
        check(meshjit.vmap(lambda x: jnp.asarray(make()).astype(dtype)), [want] * 2, jnp.ones(2))

f = lambda y: jnp.sum(jnp.log1p(jnp.exp(y))) + 1j * jnp.sum(y)
check(lambda w: meshjit.vjp(f, w)[1](jnp.ones_like(f(w)))[0], 1 / (1 + np.exp(-1.0)))
check(lambda w: meshjit.jvp(lambda y: f(y).astype(jnp.float32), (w,), (1.0,))[1], 1 / (1 + np.exp(-1.0)))
print("end")
"""


def test_an_imaginary_number_is_true_however_it_becomes_a_bool() -> None:
    for x in (1j, np.complex64(1j), np.array(1j), jnp.asarray(1j)):
        for fun in (lambda x: jnp.asarray(x).astype(bool), lambda x: jnp.array(x, bool), lambda x: lax.convert_element_type(x, bool)):
            assert bool(fun(x)) and bool(meshjit.jit(lambda x=x, fun=fun: fun(x))())
    assert np.asarray(jnp.full(2, 1j, bool)).all()


def test_constants_are_converted_by_whatever_way_they_come() -> None:
    assert in_subprocess("import warnings; warnings.simplefilter('ignore')" + WAYS).split()[-1] == "end"
