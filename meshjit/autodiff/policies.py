"""Checkpoint policies: which values a checkpointed function's derivative keeps (`jax.checkpoint_policies`).

A policy is a function (primitive, *types of its operands, **its params) -> bool, or Saveable, Recompute, Offloadable. What is
offloaded lies in the host's memory between forward and backward pass, where the machine tells that from the devices' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from meshjit.core.region import Rule
from meshjit.ops.control.checkpoint import POLICIES, Policy
from meshjit.trace import function_name


@dataclass(frozen=True)
class Named:
    """A policy that Programs print: the name of one of POLICIES, and its arguments."""

    key: tuple[str, ...]

    def __call__(self, prim: Any, *avals: Any, **params: Any) -> bool:
        return POLICIES[self.key[0]](prim.name, params, *self.key[1:])

    def __repr__(self) -> str:
        name, *arguments = self.key
        return f"{name}({', '.join(map(repr, arguments))})" if arguments else name


class _Verdict:
    """What a policy may answer in place of a bool."""

    def __init__(self, name: str, keeps: bool) -> None:
        self.name, self.keeps = name, keeps

    def __bool__(self) -> bool:
        return self.keeps

    def __repr__(self) -> str:
        return self.name


Saveable, Recompute = _Verdict("Saveable", True), _Verdict("Recompute", False)


class Offloadable(NamedTuple):
    """Keep the value, in another memory: `src` and `dst` are kinds such as "device" and "pinned_host"."""

    src: str
    dst: str


class _Policies:
    """`meshjit.checkpoint_policies`."""

    nothing_saveable = Named(("nothing_saveable",))
    everything_saveable = Named(("everything_saveable",))
    dots_saveable = checkpoint_dots = Named(("dots_saveable",))
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = Named(("dots_with_no_batch_dims_saveable",))

    @staticmethod
    def save_only_these_names(*names: str) -> Named:
        return Named(("save_only_these_names", *names))

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Named:
        return Named(("save_anything_except_these_names", *names))

    @staticmethod
    def save_any_names_but_these(*names: str) -> Named:
        return Named(("save_any_names_but_these", *names))

    @staticmethod
    def save_from_both_policies(policy_1: Callable[..., Any], policy_2: Callable[..., Any]) -> Callable[..., bool]:
        """What either of the two keeps."""

        def either(prim: Any, *avals: Any, **params: Any) -> bool:
            answers = policy_1(prim, *avals, **params), policy_2(prim, *avals, **params)
            if not all(isinstance(answer, bool) for answer in answers):
                raise ValueError(
                    f"The return value of the policies should be a boolean. Got: {answers[0]} and {answers[1]}\n"
                    "  fix: write one policy that answers Saveable, Offloadable(...) or Recompute"
                )
            return answers[0] or answers[1]

        return either

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Callable[..., Any]:
        def policy(prim: Any, *avals: Any, **params: Any) -> Any:
            keeps = _Policies.dots_with_no_batch_dims_saveable(prim, *avals, **params)
            return Offloadable(offload_src, offload_dst) if keeps else Recompute

        return policy

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Iterable[str],
        names_which_can_be_offloaded: Iterable[str],
        offload_src: str,
        offload_dst: str,
    ) -> Callable[..., Any]:
        saved, offloaded = set(names_which_can_be_saved), set(names_which_can_be_offloaded)
        if both := saved & offloaded:
            raise ValueError(
                "The names should be exclusive and should not intersect in names_which_can_be_saved and "
                f"names_which_can_be_offloaded: both have {', '.join(map(repr, sorted(both)))}"
            )

        def policy(prim: Any, *avals: Any, **params: Any) -> Any:
            name = params["name"] if prim.name == "name" else None
            return Saveable if name in saved else Offloadable(offload_src, offload_dst) if name in offloaded else Recompute

        return policy


checkpoint_policies = _Policies()


def policy_of(policy: Any) -> Policy:
    """The param of the op; TypeError for what is no policy."""
    if policy is None:
        return checkpoint_policies.nothing_saveable.key
    if isinstance(policy, Named):
        return policy.key
    if not callable(policy):
        raise TypeError(
            f"checkpoint: policy must be one of meshjit.checkpoint_policies, got {policy!r}\n"
            f"  there are {', '.join(POLICIES)}, or any function (primitive, *types, **params) -> bool"
        )
    return Rule(function_name(policy), policy)
