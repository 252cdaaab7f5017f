import functools

import jax
import jax.numpy as jnp
import optax


@functools.partial(jax.vmap, in_axes=(None, 0))
def network(params, x):
    return jnp.dot(params, x)


def compute_loss(params, x, y):
    y_pred = network(params, x)
    return jnp.mean(optax.l2_loss(y_pred, y))


key = jax.random.PRNGKey(42)
target_params = 0.5
xs = jax.random.normal(key, (16, 2))
ys = jnp.sum(xs * target_params, axis=-1)
for opt in (
    optax.adam(1e-1),
    optax.sgd(0.1, momentum=0.9),
    optax.adamw(optax.cosine_decay_schedule(0.1, 100)),
    optax.chain(optax.clip_by_global_norm(1.0), optax.lion(0.05)),
    optax.rmsprop(0.01),
    optax.adafactor(0.05),
    optax.MultiSteps(optax.adam(0.1), 2),
):
    params = jnp.array([0.0, 0.0])
    state = opt.init(params)

    @functools.partial(jax.jit, static_argnames="opt")
    def step(params, state, opt=opt):
        grads = jax.grad(compute_loss)(params, xs, ys)
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(40):
        params, state = step(params, state)
    print([round(float(p), 3) for p in params])
logits = jnp.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
labels = jnp.array([2, 0])
print(
    optax.softmax_cross_entropy_with_integer_labels(logits, labels),
    optax.sigmoid_binary_cross_entropy(logits[0], jnp.array([0.0, 1.0, 1.0])),
    optax.huber_loss(logits[1]),
    optax.global_norm({"a": logits}),
)
