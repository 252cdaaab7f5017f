import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

print(
    isinstance(jnp.ones((2, 3)), Float[Array, "a b"]),
    isinstance(jnp.ones((2, 3)), Int[Array, "a b"]),
    isinstance(jnp.ones(3), Float[Array, "a b"]),
    isinstance({"a": jnp.ones(2)}, PyTree[Float[Array, "n"]]),
    isinstance(jax.random.key(0), Key[Array, ""]),
)


@jax.jit
def f(x):
    assert isinstance(x, Float[Array, "3"])
    return x


print(f(jnp.ones(3)))
