"""flax.nnx's quick start: a small CNN on made-up images, with BatchNorm and Dropout; then scan, vmap, split, merge and a sharded model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class CNN(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 8, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(8, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025)
        self.conv2 = nnx.Conv(8, 16, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm2 = nnx.BatchNorm(16, rngs=rngs)
        self.linear1 = nnx.Linear(16 * 2 * 2, 32, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.025)
        self.linear2 = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x, rngs: nnx.Rngs | None = None):
        x = nnx.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x), rngs=rngs))), (2, 2), strides=(2, 2))
        x = nnx.avg_pool(nnx.relu(self.batch_norm2(self.conv2(x))), (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nnx.relu(self.dropout2(self.linear1(x), rngs=rngs))
        return self.linear2(x)


def loss_fn(model, rngs, batch):
    logits = model(batch["image"], rngs)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
    return loss, logits


@nnx.jit
def train_step(model, optimizer, metrics, rngs, batch):
    grad_fn = nnx.value_and_grad(loss_fn, has_aux=True)
    (loss, logits), grads = grad_fn(model, rngs, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, grads)


@nnx.jit
def eval_step(model, metrics, batch):
    loss, logits = loss_fn(model, None, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])


def batches(seed, count):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        label = generator.integers(0, 4, 16)
        image = generator.normal(size=(16, 8, 8, 1)) * 0.3
        for i, k in enumerate(label):
            image[i, 4 * (k // 2) : 4 * (k // 2) + 4, 4 * (k % 2) : 4 * (k % 2) + 4] += 1
        yield {"image": jnp.asarray(image, jnp.float32), "label": jnp.asarray(label)}


model = CNN(rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(0.005, 0.9), wrt=nnx.Param)
metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
rngs = nnx.Rngs(0)
for step, batch in enumerate(batches(0, 20)):
    train_step(model, optimizer, metrics, rngs, batch)
    if step % 5 == 4:
        print("train", {k: f"{float(v):.3f}" for k, v in metrics.compute().items()})
        metrics.reset()
model.eval()
for batch in batches(1, 3):
    eval_step(model, metrics, batch)
print("test", {k: f"{float(v):.3f}" for k, v in metrics.compute().items()})

# split and merge, and a function of JAX's on the state
graphdef, state = nnx.split(model)
print(sum(leaf.size for leaf in jax.tree.leaves(state)))
again = nnx.merge(graphdef, jax.tree.map(lambda x: x, state))
print(bool(jnp.array_equal(again(batch["image"]), model(batch["image"]))))
print(sorted(nnx.to_pure_dict(nnx.state(model, nnx.Param))))


# layers made by vmap and run by scan
@nnx.split_rngs(splits=4)
@nnx.vmap(in_axes=(0,), out_axes=0)
def create(rngs):
    return nnx.Linear(6, 6, rngs=rngs)


@nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
def forward(layer, x):
    return jax.nn.gelu(layer(x))


layers = create(nnx.Rngs(1))
print(layers.kernel.shape, f"{float(forward(layers, jnp.ones((2, 6))).sum()):.4f}")


# sharded parameters (flax's SPMD guide)
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


class DotReluDot(nnx.Module):
    def __init__(self, depth, rngs):
        init = nnx.initializers.lecun_normal()
        self.dot1 = nnx.Linear(
            depth, depth, kernel_init=nnx.with_partitioning(init, (None, "model")), use_bias=False, rngs=rngs
        )
        self.w2 = nnx.Param(nnx.with_partitioning(init, ("model", None))(rngs.params(), (depth, depth)))

    def __call__(self, x):
        y = jax.nn.relu(self.dot1(x))
        y = jax.lax.with_sharding_constraint(y, jax.sharding.NamedSharding(mesh, jax.P("data", "model")))
        return jnp.dot(y, self.w2[...])


@nnx.jit
def create_sharded():
    model = DotReluDot(8, nnx.Rngs(0))
    state = nnx.state(model)
    nnx.update(model, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
    return model


with jax.set_mesh(mesh):
    sharded = create_sharded()
    print(sharded.dot1.kernel.sharding.spec, sharded.w2.sharding.spec)
    optimizer = nnx.Optimizer(sharded, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    x = jax.device_put(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), jax.sharding.NamedSharding(mesh, jax.P("data")))
    print([f"{float(step(sharded, optimizer, x, jnp.sin(x))):.4f}" for _ in range(4)])
    print(sharded.w2.sharding.spec[0])
