"""`jax.typing`: for annotations."""

from typing import Any, Protocol, TypeAlias, Union

import numpy as np

from meshjit.api.kinds import Array
from meshjit.missing import explain as _explain


class SupportsDType(Protocol):
    @property
    def dtype(self) -> np.dtype[Any]: ...


ArrayLike: TypeAlias = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007 - libraries look into it
DTypeLike: TypeAlias = Union[str, type[Any], np.dtype, SupportsDType]  # noqa: UP007

_explain(__name__)
