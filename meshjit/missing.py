"""Names of JAX's that meshjit does not have yet, and what asking for one says. README's "Not there yet" lists the same names.

    meshjit.ffi                     AttributeError: meshjit has no ffi yet ...; hasattr is False
    from meshjit import ffi         ImportError with the same text
    meshjit.devicse                 AttributeError: meshjit has no devicse; did you mean devices?

A name that arrives must leave `NOT_THERE` and README: tests hold both to what is really missing.
"""

from __future__ import annotations

import difflib
import sys
from opcode import opmap
from types import FrameType
from typing import Any, NoReturn

_NUMPY = "NumPy's own function, on np.asarray(x) outside of jit"

# Module → name → what does the same today ("" where nothing does).
NOT_THERE: dict[str, dict[str, str]] = {
    "meshjit": {
        "export": "",
        "ffi": "",
    },
    "meshjit.numpy": {
        "frompyfunc": "", "gcd": _NUMPY, "histogram2d": _NUMPY, "histogramdd": _NUMPY, "lcm": _NUMPY, "poly": _NUMPY,
        "polyfit": _NUMPY, "roots": _NUMPY,
    },
    "meshjit.lax": {
        "composite": "", "platform_dependent": "", "ragged_dot": "", "rng_bit_generator": "random.bits",
        "scatter_apply": "x.at[i].apply(f)",
    },
    "meshjit.lax.linalg": {"hessenberg": "", "householder_product": "", "schur": "", "tridiagonal": "", "tridiagonal_solve": ""},
    "meshjit.scipy": {
        "cluster": "", "fft": "", "integrate": "numpy.trapezoid", "interpolate": "numpy.interp", "ndimage": "",
        "signal": "numpy.convolve, numpy.correlate", "sparse": "", "spatial": "",
    },
    "meshjit.scipy.special": {
        "bernoulli": "", "bessel_jn": "", "dawsn": "", "erfcx": "", "exp1": "", "expi": "", "expn": "",
        "fresnel": "", "hyp1f1": "", "hyp2f1": "",
        "owens_t": "",
        "sici": "", "spence": "", "sph_harm_y": "", "wofz": "",
    },
    "meshjit.scipy.stats": {"gaussian_kde": "", "rankdata": "numpy.argsort", "vonmises": ""},
    "meshjit.scipy.linalg": {
        "eigh_tridiagonal": "", "expm": "", "funm": "", "hessenberg": "", "polar": "linalg.svd", "rsf2csf": "", "schur": "",
        "solve_sylvester": "", "sqrtm": "",
    },
}  # fmt: skip


def explain(module: str) -> None:
    """Let a module say of a name that it does not have what is known about it."""

    vars(sys.modules[module])["__getattr__"] = lambda name: refuse(module, name, sys._getframe(1))


def refuse(module: str, name: str, caller: FrameType, prefix: str = "") -> NoReturn:
    """Raise the error that this frame gets for a name that the module does not have."""
    text = prefix + text_of(module, name)
    if _is_import(caller) and not name.startswith("__"):
        raise ImportError(text, name=name, path=getattr(sys.modules[module], "__file__", None))
    raise AttributeError(text)


def _is_import(frame: FrameType) -> bool:
    """Whether the frame is in the middle of `from module import name`, which drops the text of an AttributeError."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def text_of(module: str, name: str) -> str:
    known = NOT_THERE.get(module, {})
    if name in known:
        instead = f"\n  instead: {known[name]}" if known[name] else ""
        return f'{module} has no {name} yet (README, "Not there yet"){instead}'
    if name.startswith("_"):
        return f"module {module!r} has no attribute {name!r}"
    close = difflib.get_close_matches(name, _public(sys.modules[module]), 1, cutoff=0.75)
    return f"{module} has no {name}" + (f"; did you mean {close[0]}?" if close and close[0] != name else "")


def _public(module: Any) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]
