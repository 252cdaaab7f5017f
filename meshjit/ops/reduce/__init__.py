"""Contractions, running totals, and places of extremes along dims. Imports base, collective and slicing."""

from meshjit.ops.reduce import arg_reduction, contraction, cumulative
