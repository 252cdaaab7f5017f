"""`jax._src.distributed`: this process among the others, as orbax asks for it."""

from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime.distributed import membership


class _State:
    """`client` is jaxlib's client of the coordination service, None where a process runs alone."""

    @property
    def client(self) -> Any:
        return membership().coordinator

    @property
    def service(self) -> Any:
        return membership().service

    @property
    def process_id(self) -> int:
        return membership().process_id

    @property
    def num_processes(self) -> int:
        return membership().num_processes

    @property
    def coordinator_address(self) -> str | None:
        return membership().address


global_state = _State()

_explain(__name__)
