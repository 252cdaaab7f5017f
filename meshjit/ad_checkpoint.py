"""`jax.ad_checkpoint`'s names."""

from meshjit.autodiff import (
    checkpoint as checkpoint,
    checkpoint_name as checkpoint_name,
    checkpoint_policies as checkpoint_policies,
)
