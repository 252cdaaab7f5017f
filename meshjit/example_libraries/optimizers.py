"""Optimizers as triples of functions (`jax.example_libraries.optimizers`): `init(parameters)` gives a state,
`update(step, gradient, state)` the next one, `get_params(state)` the parameters.

    init, update, get_params = adam(1e-3)

Each is written for one array; `optimizer` makes it one for trees. `step_size` is a number or a function of the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import meshjit.numpy as np
from meshjit.tree_util import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten

Schedule: TypeAlias = Callable[[Any], Any]
StepSize: TypeAlias = float | Schedule


class Optimizer(NamedTuple):
    init_fn: Callable[..., Any]
    update_fn: Callable[..., Any]
    params_fn: Callable[..., Any]


class OptimizerState(NamedTuple):
    """A state as jit takes it: the leaves of every parameter's state, and two levels of structure."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda structure, leaves: OptimizerState(leaves[0], *structure),
)


def optimizer(opt_maker: Callable[..., tuple[Callable[..., Any], ...]]) -> Callable[..., Optimizer]:
    """An optimizer for trees, of one for single arrays; a decorator."""

    @functools.wraps(opt_maker)
    def for_trees(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(parameters: Any) -> OptimizerState:
            leaves, structure = tree_flatten(parameters)
            return _packed([init(leaf) for leaf in leaves], structure)

        def tree_update(i: Any, gradient: Any, state: OptimizerState) -> OptimizerState:
            gradients, structure = tree_flatten(gradient)
            if structure != state.tree_def:
                raise TypeError(
                    f"optimizer update: the gradient has not the structure of the parameters: {structure}, and {state.tree_def}"
                )
            states = [update(i, g, s) for g, s in zip(gradients, _states(state), strict=True)]
            if [tree_structure(s) for s in states] != list(state.subtree_defs):
                raise TypeError("optimizer update: it gives a state of another structure than it was given")
            return _packed(states, structure)

        def tree_params(state: OptimizerState) -> Any:
            return tree_unflatten(state.tree_def, [get_params(s) for s in _states(state)])

        return Optimizer(tree_init, tree_update, tree_params)

    return for_trees


def _packed(states: Sequence[Any], structure: Any) -> OptimizerState:
    return OptimizerState(tuple(tuple(tree_leaves(s)) for s in states), structure, tuple(tree_structure(s) for s in states))


def _states(state: OptimizerState) -> list[Any]:
    return [tree_unflatten(s, leaves) for s, leaves in zip(state.subtree_defs, state.packed_state, strict=True)]


class JoinPoint:
    """Marks where one tree ends and the next begins, in `unpack_optimizer_state`."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A tree like the parameters, with a JoinPoint of a parameter's state at each leaf: for files."""
    return tree_unflatten(opt_state.tree_def, [JoinPoint(s) for s in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """What `unpack_optimizer_state` unpacked."""
    points, structure = tree_flatten(marked_pytree)
    if not all(isinstance(point, JoinPoint) for point in points):
        raise TypeError("pack_optimizer_state: every leaf has to be a JoinPoint, as unpack_optimizer_state gives them")
    return _packed([point.subtree for point in points], structure)


# --- the optimizers


@optimizer
def sgd(step_size: StepSize) -> Any:
    """x ← x − step · g."""
    size = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - size(i) * g, lambda x: x


@optimizer
def momentum(step_size: StepSize, mass: float) -> Any:
    """v ← mass · v + g; x ← x − step · v (Polyak, 1964)."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, v = state
        v = mass * v + g
        return x - size(i) * v, v

    return lambda x: (x, np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def nesterov(step_size: StepSize, mass: float) -> Any:
    """As momentum, with the gradient's next step looked ahead (Nesterov, 1983)."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, v = state
        v = mass * v + g
        return x - size(i) * (mass * v + g), v

    return lambda x: (x, np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def adagrad(step_size: StepSize, momentum: float = 0.9) -> Any:
    """Steps divided by the root of the sum of squares so far (Duchi, Hazan and Singer, 2011), with momentum."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + np.square(g)
        m = (1 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - size(i) * m, squares, m

    return lambda x: (x, np.zeros_like(x), np.zeros_like(x)), update, lambda state: state[0]


def _inverse_root(squares: Any) -> Any:
    return np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0)


@optimizer
def rmsprop(step_size: StepSize, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Steps divided by the root of a running mean of squares (Tieleman and Hinton, 2012)."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean = state
        mean = mean * gamma + np.square(g) * (1 - gamma)
        return x - size(i) * g / np.sqrt(mean + eps), mean

    return lambda x: (x, np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def rmsprop_momentum(step_size: StepSize, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """rmsprop, its steps with momentum."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, v = state
        mean = mean * gamma + np.square(g) * (1 - gamma)
        v = momentum * v + size(i) * g / np.sqrt(mean + eps)
        return x - v, mean, v

    return lambda x: (x, np.zeros_like(x), np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def adam(step_size: StepSize, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Kingma and Ba, 2014."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * np.square(g) + b2 * v
        first, second = (mean / (1 - np.asarray(b, m.dtype) ** (i + 1)) for mean, b in ((m, b1), (v, b2)))
        return x - size(i) * first / (np.sqrt(second) + eps), m, v

    return lambda x: (x, np.zeros_like(x), np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def adamax(step_size: StepSize, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the greatest of the past instead of a mean of squares (Kingma and Ba, 2014, section 7)."""
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = np.maximum(b2 * u, np.abs(g))
        return x - size(i) / (1 - np.asarray(b1, m.dtype) ** (i + 1)) * m / (u + eps), m, u

    return lambda x: (x, np.zeros_like(x), np.zeros_like(x)), update, lambda state: state[0]


@optimizer
def sm3(step_size: StepSize, momentum: float = 0.9) -> Any:
    """Adagrad with one square per row of each dim in place of one per element (Anil, Gupta, Koren and Singer, 2019)."""
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        x = np.asarray(x)
        return x, np.zeros_like(x), [np.zeros(extent, x.dtype) for extent in x.shape]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, rows = state
        dims = range(x.ndim)
        squares = functools.reduce(np.minimum, [np.expand_dims(r, [e for e in dims if e != d]) for d, r in enumerate(rows)])
        squares = squares + np.square(g)
        m = (1 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - size(i) * m, m, [squares.max([e for e in dims if e != d]) for d in dims]

    return init, update, lambda state: state[0]


# --- step sizes


def make_schedule(scalar_or_schedule: StepSize) -> Schedule:
    """A function of the step. TypeError for what is neither a number nor a function."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if np.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(f"make_schedule: expected a number or a function of the step, got {type(scalar_or_schedule).__name__}")


def constant(step_size: Any) -> Schedule:
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: float, decay_rate: float) -> Schedule:
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: float, decay_steps: float, decay_rate: float, staircase: bool = False) -> Schedule:
    return lambda i: step_size / (1 + decay_rate * (np.floor(i / decay_steps) if staircase else i / decay_steps))


def polynomial_decay(step_size: float, decay_steps: float, final_step_size: float, power: float = 1.0) -> Schedule:
    def schedule(i: Any) -> Any:
        left = (1 - np.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """values[k] up to boundaries[k]. ValueError where there is not one value more than boundaries."""
    ends, sizes = np.array(boundaries), np.array(values)
    if not ends.ndim == sizes.ndim == 1:
        raise ValueError("piecewise_constant: boundaries and values must be sequences")
    if len(ends) != len(sizes) - 1:
        raise ValueError(f"piecewise_constant: {len(ends)} boundaries need {len(ends) + 1} values, and {len(sizes)} were given")
    return lambda i: sizes[np.sum(i > ends)]


# --- gradients


def l2_norm(tree: Any) -> Any:
    """The root of the sum of the squares of all elements."""
    return np.sqrt(sum(np.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The gradient, scaled down to this norm where it is longer."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: np.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)
