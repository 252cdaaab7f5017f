"""`jax.experimental.pjit`."""

from meshjit.api import pjit as pjit
from meshjit.api.constraint import with_sharding_constraint as with_sharding_constraint
from sharding import AUTO as AUTO
