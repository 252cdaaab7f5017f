"""`jax.experimental.custom_partitioning`: functions that say how they are cut up."""

from meshjit.lax.custom_partitioning import custom_partitioning as custom_partitioning
from meshjit.lax.sharding_rule import (
    BATCHING as BATCHING,
    ArrayMapping as ArrayMapping,
    CompoundFactor as CompoundFactor,
    SdyShardingRule as SdyShardingRule,
)
from meshjit.missing import explain as _explain

_explain(__name__)
