"""Ops whose params hold Programs: calls, branches, loops, checkpoints. Imports base and reduce."""

from meshjit.ops.control import call, case, checkpoint, guarding, nested, repeating, scan, scan_rules, while_loop
