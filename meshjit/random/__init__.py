"""`jax.random` for meshjit."""

from meshjit.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_impl,
    split,
    wrap_key_data,
)
