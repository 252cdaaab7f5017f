"""`jax._src.checkify`: what flax.nnx asks of it."""

from typing import TypeVar

from meshjit.experimental.checkify import Error as Error, checkify as checkify, user_checks as user_checks
from meshjit.missing import explain as _explain

Out = TypeVar("Out")

_explain(__name__)
