import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class P:
    x: chex.ArrayDevice
    y: chex.ArrayDevice


p = P(x=jnp.ones(2), y=jnp.zeros(3))
print(jax.tree.map(lambda a: a + 1, p))
chex.assert_shape(p.x, (2,))
chex.assert_trees_all_close(p, p)
chex.assert_rank([p.x, p.y], 1)
