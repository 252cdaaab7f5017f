"""The options of `config`: in `table.py` meshjit's, in `of_jax.py` those that programs written for JAX set."""

from meshjit.options.kinds import Option as Option
from meshjit.options.of_jax import ACCEPTED as ACCEPTED, OF_JAX
from meshjit.options.table import OPTIONS as _OPTIONS, TRACED as TRACED

OPTIONS = (*_OPTIONS, *OF_JAX)
