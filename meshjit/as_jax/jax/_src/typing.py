"""`jax._src.typing`."""

from meshjit.missing import explain as _explain
from meshjit.typing import Array as Array, ArrayLike as ArrayLike, DTypeLike as DTypeLike

_explain(__name__)
