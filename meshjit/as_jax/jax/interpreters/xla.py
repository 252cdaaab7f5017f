"""`jax.interpreters.xla`: where libraries put how objects of their classes become arrays.

meshjit asks the objects themselves, by `__jax_array__` and `__array__`, and does not read what is put here."""

from typing import Any

import numpy as np

from meshjit.missing import explain as _explain

canonicalize_dtype_handlers: dict[type, Any] = {np.ndarray: np.asarray}

_explain(__name__)
