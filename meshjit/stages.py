"""The stages of compilation, under the names of `jax.stages`; and `Planned`, a stage of our own that holds the Plan."""

from collections.abc import Mapping
from typing import Any

from meshjit.api.call import ArgInfo as ArgInfo
from meshjit.api.compiled import Compiled as Compiled
from meshjit.api.memory import MemoryAnalysis as MemoryAnalysis
from meshjit.api.stages import Lowered as Lowered, Planned as Planned, Traced as Traced
from meshjit.api.wrapped import Wrapped as Wrapped
from meshjit.core.plan import Plan as Plan

CompilerOptions = Mapping[str, Any]
