"""What every rule is written with: elementwise ops, constants, shapes, whole-dim reductions, and what families of ops share.

Imports core, emit and sharding alone. Rules that need ops of other packages call them as `ops.name` (meshjit/ops/__init__.py)."""

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
