"""`jax.ad_checkpoint`'s names."""

from meshjit.autodiff import checkpoint as checkpoint
from meshjit.autodiff import checkpoint_name as checkpoint_name
from meshjit.autodiff import checkpoint_policies as checkpoint_policies
