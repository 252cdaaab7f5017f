import jax
import jax.numpy as jnp
from einops import einsum, pack, rearrange, reduce, repeat, unpack

x = jnp.arange(24.0).reshape(2, 3, 4)
print(
    rearrange(x, "b h w -> b (h w)").shape,
    reduce(x, "b h w -> b", "mean"),
    repeat(x, "b h w -> b (h 2) w").shape,
    einsum(x, x, "b h w, b k w -> b h k").shape,
)
print(
    jax.jit(lambda x: rearrange(x, "b (h a) w -> b h a w", a=3))(x).shape,
    jax.grad(lambda x: reduce(x, "b h w -> ", "sum"))(x).sum(),
)
p, ps = pack([x, x[:, 0]], "b * w")
print(p.shape, [u.shape for u in unpack(p, ps, "b * w")], isinstance(p, jax.Array))
