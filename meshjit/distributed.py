"""`jax.distributed` for meshjit: joining the processes of one job."""

from meshjit.runtime.distributed import initialize as initialize, is_initialized as is_initialized, shutdown as shutdown
