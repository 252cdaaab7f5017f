"""PPO on a cart-pole written with lax.cond: environments in vmap, GAE by a reverse scan, minibatches by permutation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Env(NamedTuple):
    x: jax.Array
    t: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    logp: jax.Array
    value: jax.Array


def reset(key):
    return Env(jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.int32(0))


def env_step(key, env, action):
    p, dp, a, da = env.x
    force = jnp.where(action == 1, 10.0, -10.0)
    temp = (force + 0.05 * da**2 * jnp.sin(a)) / 1.1
    acc = (9.8 * jnp.sin(a) - jnp.cos(a) * temp) / (0.5 * (4 / 3 - 0.1 * jnp.cos(a) ** 2 / 1.1))
    new = Env(env.x + 0.02 * jnp.array([dp, temp - 0.05 * acc * jnp.cos(a) / 1.1, da, acc]), env.t + 1)
    done = (jnp.abs(new.x[0]) > 2.4) | (jnp.abs(new.x[2]) > 0.21) | (new.t >= 200)
    new = lax.cond(done, lambda k: reset(k), lambda _: new, key)
    return new, 1.0, done


def net(params, obs):
    h = jnp.tanh(obs @ params["w1"] + params["b1"])
    return h @ params["pi"], (h @ params["v"])[..., 0]


def rollout(params, envs, key, length=16):
    def step(carry, _):
        envs, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        logits, value = net(params, envs.x)
        action = jax.random.categorical(k1, logits)
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        new, reward, done = jax.vmap(env_step, in_axes=(0, 0, 0), out_axes=(0, None, 0))(jax.random.split(k2, len(action)), envs, action)
        return (new, key), Transition(envs.x, action, jnp.full(len(action), reward), done, logp, value)

    return lax.scan(step, (envs, key), None, length)


def advantages(batch, last, gamma=0.99, lam=0.95):
    def step(carry, t):
        adv, value = carry
        keep = 1.0 - t.done
        delta = t.reward + gamma * value * keep - t.value
        adv = delta + gamma * lam * keep * adv
        return (adv, t.value), adv

    _, adv = lax.scan(step, (jnp.zeros_like(last), last), batch, reverse=True)
    return adv, adv + batch.value


def loss(params, batch, adv, target):
    logits, value = net(params, batch.obs)
    logp = jax.nn.log_softmax(logits)
    ratio = jnp.exp(logp[jnp.arange(len(adv)), batch.action] - batch.logp)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy = -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
    entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
    return policy + 0.5 * jnp.square(value - target).mean() - 0.01 * entropy, {"entropy": entropy, "value": value.mean()}


@jax.jit
def iteration(state, _=None):
    params, envs, key = state
    key, k1, k2 = jax.random.split(key, 3)
    (envs, _), batch = rollout(params, envs, k1)
    adv, target = advantages(batch, net(params, envs.x)[1])
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (batch, adv, target))

    def epoch(params, key):
        order = jax.random.permutation(key, flat[1].shape[0])
        batches = jax.tree.map(lambda x: x[order].reshape(4, -1, *x.shape[1:]), flat)

        def minibatch(params, data):
            (value, aux), grads = jax.value_and_grad(loss, has_aux=True)(params, *data)
            return jax.tree.map(lambda p, g: p - 0.02 * g, params, grads), {"loss": value, **aux}

        return lax.scan(minibatch, params, batches)

    params, metrics = lax.scan(epoch, params, jax.random.split(k2, 2))
    return (params, envs, key), jax.tree.map(jnp.mean, metrics)


def main():
    key = jax.random.key(11)
    k1, k2, k3 = jax.random.split(key, 3)
    params = {"w1": jax.random.normal(k1, (4, 16)) * 0.5, "b1": jnp.zeros(16), "pi": jnp.zeros((16, 2)), "v": jnp.zeros((16, 1))}
    state = params, jax.vmap(reset)(jax.random.split(k2, 8)), k3
    for _ in range(2):
        state, metrics = iteration(state)
        print({k: round(float(v), 3) for k, v in sorted(metrics.items())})
    state, history = lax.scan(iteration, state, length=3)
    print("history", {k: v.shape for k, v in history.items()}, bool(jnp.isfinite(history["loss"]).all()), state[1].t.dtype)


main()
