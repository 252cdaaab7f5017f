"""`jax.experimental.array_serialization.serialization`: the interface that orbax names. `meshjit.checkpoints` saves and loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from meshjit.missing import explain as _explain


class GlobalAsyncCheckpointManagerBase(ABC):
    """Writes arrays while the program goes on, and reads them under shardings."""

    @abstractmethod
    def check_for_errors(self) -> None: ...

    @abstractmethod
    def wait_until_finished(self) -> None: ...

    @abstractmethod
    def serialize(
        self, arrays: Sequence[Any], tensorstore_specs: Sequence[Any], *, on_commit_callback: Callable[[], None]
    ) -> None: ...

    @abstractmethod
    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Any],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
    ) -> Sequence[Any]: ...


_explain(__name__)
