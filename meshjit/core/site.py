"""Where `device_put` brings a value outside of jit, and where it was before: the params of a `put`.

A Site is a number in texts. Where a value was is known once the put has run, and its cotangent is brought back there.
"""

from __future__ import annotations

import itertools
from typing import Any

from meshjit.core.program import Eqn, Program
from meshjit.core.region import with_regions_changed
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, padded

_numbers = itertools.count(1)


class Site(int):
    """`sharding`: of values that are or were here, None as long as nobody knows. A batch of them is at `batched(dim)`."""

    sharding: Any
    is_given: bool  # by the user
    alone: Site | None
    dim: int
    batches: dict[int, Site]

    @classmethod
    def of(cls, sharding: Any = None) -> Site:
        site = cls(next(_numbers))
        site.sharding, site.is_given = sharding, sharding is not None
        site.alone, site.dim, site.batches = None, 0, {}
        return site

    def batched(self, dim: int) -> Site:
        """Always the same for one dim, so that a cotangent finds where a batch was."""
        if dim not in self.batches:
            site = self.batches[dim] = Site.of()
            site.alone, site.dim = self, dim
        return self.batches[dim]

    def known(self) -> Any:
        """The sharding. For a batch that of one member, with the new dim whole; for a member of which only a batch was here, its
        devices. None where nothing was."""
        if self.sharding is not None:
            return self.sharding
        one = None if self.alone is None else self.alone.known()
        if one is not None:
            return _with_dim(one, self.dim)
        other = next((s.sharding for s in self.batches.values() if s.sharding is not None), None)
        return other.with_spec(PartitionSpec()) if isinstance(other, NamedSharding) else other


def batched(site: int, dim: int) -> int:
    """Of a batch of values; of a number that was read from a text, itself."""
    return site.batched(dim) if isinstance(site, Site) else site


def with_own_sites(program: Program) -> Program:
    """The Program, whose values move as before and were where they are the next time: for one that is used more than once."""
    sites: dict[Site, Site] = {}

    def fresh(site: Site) -> Site:
        if site.alone is not None:
            return fresh(site.alone).batched(site.dim)
        return sites.setdefault(site, Site.of(site.sharding if site.is_given else None))

    def own(eqn: Eqn) -> Eqn:
        places = {name: fresh(site) for name, site in eqn.params.items() if isinstance(site, Site)}
        return eqn.with_params({**eqn.params, **places}) if places else with_regions_changed(eqn, renewed)

    def renewed(program: Program) -> Program:
        eqns = tuple(map(own, program.eqns))
        unchanged = all(a is b for a, b in zip(eqns, program.eqns, strict=True))
        return program if unchanged else Program(program.name, program.inputs, eqns, program.outputs)

    return renewed(program)


def _with_dim(sharding: Any, dim: int) -> Any:
    if not isinstance(sharding, NamedSharding):
        return sharding
    entries = padded(sharding.spec, max(dim, len(sharding.spec))).partitions
    return sharding.with_spec(PartitionSpec(*entries[:dim], None, *entries[dim:]))
