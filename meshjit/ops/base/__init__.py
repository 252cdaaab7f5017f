"""What every rule is written with: elementwise ops, constants, shapes, whole-dim reductions, and what families of ops share.

Imports core, emit and sharding alone."""

from meshjit.ops.base import (
    annotations,
    arithmetic,
    batching,
    bits,
    comparison,
    constants,
    conversion,
    families,
    identity_elements,
    reblocking,
    reduction,
    shape,
    transcendental,
)
