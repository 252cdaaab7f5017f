"""`jax.ref`' names: arrays that are changed in place."""

from meshjit.core.ref import Ref as Ref
from meshjit.numpy.refs import (
    addupdate as addupdate,
    empty_ref as empty_ref,
    free_ref as free_ref,
    freeze as freeze,
    get as get,
    new_ref as new_ref,
    set as set,  # noqa: A004
    swap as swap,
)
from meshjit.trace.types import AbstractRef as AbstractRef
