"""What batch rules are written with: bringing the batch dims of several operands to one place."""

from __future__ import annotations

from collections.abc import Sequence

from meshjit.core.program import Var
from meshjit.ops.base.shape import broadcast_in_dim, transpose


def batch_size(operands: Sequence[Var], dims: Sequence[int | None]) -> int:
    """The extent that the batch dims have in common; ValueError if they differ or there is none."""
    sizes = {x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None}
    if len(sizes) != 1:
        raise ValueError(f"batch dims of one extent are needed, got {sorted(sizes) or 'none'}")
    return sizes.pop()


def move(var: Var, source: int, target: int) -> Var:
    """`var` with dim `source` moved to `target`, the others in their order (np.moveaxis)."""
    if source == target:
        return var
    order = [d for d in range(var.rank) if d != source]
    order.insert(target, source)
    return transpose(var, permutation=tuple(order))


def insert(var: Var, dim: int, size: int) -> Var:
    """`var` repeated along a new dim `dim` of extent `size`."""
    shape = (*var.shape[:dim], size, *var.shape[dim:])
    return broadcast_in_dim(var, shape=shape, dimensions=tuple(d for d in range(len(shape)) if d != dim))


def align(operands: Sequence[Var], dims: Sequence[int | None], target: int = 0) -> list[Var]:
    """All operands with the batch dim at `target`; those without one are broadcast along it.

    Operands must have equal ranks apart from the batch dim if `target` is to mean the same dim of all.
    """
    size = batch_size(operands, dims)
    pairs = zip(operands, dims, strict=True)
    return [insert(x, target, size) if d is None else move(x, d, target) for x, d in pairs]


def align_to_first(operands: Sequence[Var], dims: Sequence[int | None]) -> tuple[list[Var], int]:
    """All operands with the batch dim where the first batched one has it, and that place: fewest transposes."""
    target = next(d for d in dims if d is not None)
    return align(operands, dims, target), target


def shifted(dim: int, batch_dim: int) -> int:
    """Where dim `dim` is once a batch dim stands at `batch_dim`."""
    return dim if dim < batch_dim else dim + 1


def doubled(dims: Sequence[int], dim: int | None) -> tuple[int, ...]:
    """Dims of a value once its dim `dim` is two: what lies behind it moves, and where it stands itself both stand."""
    if dim is None:
        return tuple(dims)
    return tuple(new for d in dims for new in ((d, d + 1) if d == dim else (shifted(d, dim + 1),)))
