"""What is checked when a function is exported or called, and how a user says that it is not to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshjit.runtime import client
from meshjit.targets import PLATFORMS


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that is left out (`jax.export.DisabledSafetyCheck`)."""

    _impl: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """That a function is called on a platform that it was exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """That a custom call stays what it is. Exported functions hold none here: this is taken, and means nothing."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the target, of a check of a custom call."""
        kind, _, target = self._impl.partition(":")
        return target if kind == "custom_call" else None

    def __str__(self) -> str:
        return self._impl

    __repr__ = __str__


def default_export_platform() -> str:
    """The platform that functions are exported for where none is said: "cpu", "cuda", "rocm" or "tpu"."""
    return client.default_backend()


def checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    if platforms is None:
        return (default_export_platform(),)
    if isinstance(platforms, str):
        raise ValueError(f"export: platforms is the string {platforms!r}\n  fix: platforms=[{platforms!r}]")
    unknown = [p for p in platforms if p not in PLATFORMS]
    if unknown or not platforms:
        fault = f"has {unknown[0]!r}" if unknown else "is empty"
        raise ValueError(f"export: platforms {fault}\n  fix: use some of {', '.join(PLATFORMS)}")
    return tuple(platforms)


def check_platform(name: str, platforms: Sequence[str], checks: Sequence[DisabledSafetyCheck]) -> None:
    here = default_export_platform()
    same = {here, "gpu"} if here in ("cuda", "rocm") else {here}
    if not same & set(platforms) and DisabledSafetyCheck.platform() not in checks:
        raise ValueError(
            f"{name} was exported for {', '.join(platforms)}, and is called on {here}\n"
            f"  fix: export(..., platforms=[{here!r}, ...]), or disabled_checks=[DisabledSafetyCheck.platform()]"
        )
