import equinox as eqx
import jax
import jax.numpy as jnp


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size, out_size, key):
        wkey, bkey = jax.random.split(key)
        self.weight = jax.random.normal(wkey, (out_size, in_size))
        self.bias = jax.random.normal(bkey, (out_size,))

    def __call__(self, x):
        return self.weight @ x + self.bias


@jax.jit
@jax.grad
def loss_fn(model, x, y):
    pred_y = jax.vmap(model)(x)
    return jnp.mean((y - pred_y) ** 2)


model = Linear(2, 3, key=jax.random.PRNGKey(0))
x = jnp.ones((4, 2))
y = jnp.zeros((4, 3))
grads = loss_fn(model, x, y)
print(grads.weight, grads.bias)
mlp = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.PRNGKey(1))


@eqx.filter_jit
def step(mlp, x, y):
    loss, g = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y[:, :1]) ** 2))(mlp)
    return loss, eqx.apply_updates(
        mlp, jax.tree_util.tree_map(lambda d: None if d is None else -0.1 * d, g, is_leaf=lambda v: v is None)
    )


for _ in range(3):
    loss, mlp = step(mlp, x, y)
print(float(loss) < 10, jax.tree_util.tree_structure(mlp) == jax.tree_util.tree_structure(mlp))
print(eqx.filter_eval_shape(mlp, x[0]))
eqx.tree_pprint(mlp.layers[0])
