"""Importing this package fills the registry: every op stands in one of these files, with everything known about it."""

from meshjit.ops import (  # noqa: F401
    arg_reduction,
    arithmetic,
    bits,
    collectives,
    comparison,
    constants,
    contraction,
    conversion,
    cumulative,
    dynamic,
    gather,
    ordering,
    placement,
    random,
    reduction,
    scatter,
    shape,
    slicing,
    sort,
    transcendental,
)
