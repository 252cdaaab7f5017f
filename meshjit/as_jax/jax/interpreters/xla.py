"""`jax.interpreters.xla`: where libraries put how objects of their classes become arrays.

meshjit asks the objects themselves, by `__jax_array__` and `__array__`, and does not read what is put here."""

from typing import Any

import numpy as np

from meshjit.missing import explain as _explain

canonicalize_dtype_handlers: dict[type, Any] = {np.ndarray: np.asarray}


def apply_primitive(primitive: Any, *operands: Any, **params: Any) -> Any:
    """What the primitive's lowering means, of arrays. NotImplementedError where its lowering is text alone."""
    if primitive.lowered is None:
        raise NotImplementedError(
            f"the primitive {primitive.name} is lowered to text of its own, which meshjit does not run\n"
            "  fix: mlir.register_lowering(primitive, mlir.lower_fun(f)) with a function f"
        )
    return primitive.lowered(*operands, **params)


_explain(__name__)
