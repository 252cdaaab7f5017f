"""`jax.distributed` for meshjit: joining the processes of one job."""

from meshjit.runtime.distributed import initialize as initialize
from meshjit.runtime.distributed import is_initialized as is_initialized
from meshjit.runtime.distributed import shutdown as shutdown
