"""The meaning of Programs, where users of the simulator look for it."""

from meshjit.core.evaluate import evaluate as evaluate, evaluate_eqn as evaluate_eqn
