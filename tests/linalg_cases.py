"""Calls of the fft and linalg surfaces as text, for the comparison with JAX: with jax installed

    python -m tests.linalg_cases > tests/goldens/linalg_surface.txt

writes what it gives; tests/test_linalg_surface.py holds ours against it. Names are those of tests/numpy_cases.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from tests.numpy_cases import operands, print_call


def calls() -> Iterator[str]:
    """Every call, in the order of the goldens."""
    yield from _fft()


def _fft() -> Iterator[str]:
    one = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for name, x in itertools.product(one, "fihbcev"):
        yield f"np.fft.{name}({x})"
    for name, how in itertools.product(one, ("5", "2", "3, 0", "axis=0", "norm='ortho'", "norm='forward'", "4, 0, 'backward'")):
        yield f"np.fft.{name}({'f' if name in ('rfft', 'ihfft') else 'c'}, {how})"
    several = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
    for name, x in itertools.product(several, "fctu"):
        yield f"np.fft.{name}({x})"
    ways = ("(3, 4)", "(2, 2), (1, 0)", "axes=(0, 1), norm='ortho'", "norm='forward'", "(4, 3), axes=(0, 2)")
    for name, how in itertools.product(several, ways):
        yield f"np.fft.{name}({'t' if 'r' not in name or 'ir' not in name else 't * 1j'}, {how})"
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        yield from (f"np.fft.{name}(t, {how})" for how in ("(3,)", "axes=(1,)", "axes=(-1, 0, 1)", "(4, 2, 3)"))
    for n, d in itertools.product((1, 2, 5, 8), ("", ", 0.5", ", d=3")):
        yield from (f"np.fft.{name}({n}{d})" for name in ("fftfreq", "rfftfreq"))
    for name, how in itertools.product(("fftshift", "ifftshift"), ("v", "f", "t", "f, 0", "f, -1", "t, (0, 2)", "t, axes=(1, 2)")):
        yield f"np.fft.{name}({how})"
    yield from (
        "lax.fft(c, 'FFT', (3,))", "lax.fft(f, 'fft', (2, 3))", "lax.fft(c, lax.FftType.IFFT, (2, 3))",
        "lax.fft(f, 'RFFT', (3,))", "lax.fft(f, lax.FftType.RFFT, (2, 3))", "lax.fft(c, 'IRFFT', (4,))",
        "lax.fft(c, 'IRFFT', (2, 5))", "lax.fft(t, 'FFT', (2, 2, 2))", "lax.fft(i, 'FFT', (3,))",
    )  # fmt: skip


def main() -> None:
    """Write the goldens with JAX; what it refuses is left out."""
    import warnings

    import jax.lax
    import jax.numpy as jnp

    warnings.simplefilter("ignore")
    names = operands(jnp.asarray)
    for call in dict.fromkeys(calls()):
        if call.startswith(tuple(sys.argv[1:]) or ""):
            print_call(call, {"np": jnp, "lax": jax.lax}, names)


if __name__ == "__main__":
    main()
