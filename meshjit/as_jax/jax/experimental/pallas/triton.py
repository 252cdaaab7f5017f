"""`jax.experimental.pallas.triton`: what describes kernels for Triton, refused."""

from typing import Any

from meshjit.as_jax.jax.experimental.pallas import refuse as _refuse
from meshjit.missing import explain as _explain


class CompilerParams:
    """How Triton compiles a kernel. Refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse("triton.CompilerParams")


_explain(__name__)
