"""Collectives: the ops through which devices, or the members of a batch, exchange values. Imports base."""

from meshjit.ops.collective import collectives, float_order, members, rules, varying
