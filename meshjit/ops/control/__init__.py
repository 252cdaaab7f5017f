"""Ops whose params hold Programs: calls, branches, loops, checkpoints, device code. Imports base, collective and reduce."""

from meshjit.ops.control import (
    call,
    callback,
    case,
    check,
    checkpoint,
    custom,
    custom_batch,
    foreign,
    guarding,
    linear_call,
    manual,
    nested,
    own_partitioning,
    repeated,
    repeating,
    scan,
    scan_rules,
    while_loop,
)
