"""`jax._src.pretty_printer`: documents of one text, which haliax hands to who prints trees."""

from __future__ import annotations

from dataclasses import dataclass

from meshjit.missing import explain as _explain


@dataclass(frozen=True)
class Doc:
    """What is printed."""

    text: str

    def __str__(self) -> str:
        return self.text

    def format(self) -> str:
        return self.text


text = Doc

_explain(__name__)
