"""States on a mesh, saved and loaded: by managers, while the program goes on, under other shardings, with keys of generators."""

import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp_v1

warnings.filterwarnings("ignore", message="Sharding info not provided")
folder = tempfile.mkdtemp()
mesh = jax.make_mesh((4, 2), ("data", "model"))
rows = jax.NamedSharding(mesh, jax.P("data", "model"))
state = {
    "w": jax.device_put(jnp.arange(64.0).reshape(8, 8), rows),
    "b": jax.device_put(jnp.ones(16, jnp.bfloat16), jax.NamedSharding(mesh, jax.P("model"))),
    "layers": [jnp.zeros((3, 5)), {"on": jnp.ones(2, bool)}],
    "step": 3,
    "key": jax.random.key(3),
}

with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(f"{folder}/standard", state)
    checkpointer.wait_until_finished()
    loaded = checkpointer.restore(f"{folder}/standard", jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    print(jax.tree.map(lambda x: (getattr(x, "dtype", type(x)), getattr(x, "sharding", None)), loaded))
    print(jax.random.key_data(loaded["key"]), loaded["w"].sum())
    print(checkpointer.metadata(f"{folder}/standard").item_metadata.tree["w"].sharding)

other = jax.make_mesh((8,), ("x",))
with ocp.PyTreeCheckpointer() as checkpointer:
    whole = {"w": state["w"], "b": state["b"]}
    checkpointer.save(f"{folder}/tree", whole)
    columns = ocp.ArrayRestoreArgs(sharding=jax.NamedSharding(other, jax.P("x")), dtype=jnp.float16)
    loaded = checkpointer.restore(f"{folder}/tree", restore_args={"w": columns, "b": ocp.RestoreArgs(restore_type=np.ndarray)})
    print(loaded["w"].sharding, loaded["w"].dtype, [shard.data.shape for shard in loaded["w"].addressable_shards], type(loaded["b"]))

with ocp.CheckpointManager(f"{folder}/steps", options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
    for step in range(4):
        scaled = {"w": state["w"] * step}
        manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(scaled), meta=ocp.args.JsonSave({"a": step})))
    manager.wait_until_finished()
    like = {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P("model", "data")))}
    loaded = manager.restore(3, args=ocp.args.Composite(state=ocp.args.StandardRestore(like), meta=ocp.args.JsonRestore()))
    print(manager.all_steps(), loaded.meta, loaded.state["w"].sharding, loaded.state["w"].sum())

ocp_v1.save_async(f"{folder}/v1", {"w": state["w"]}).result()
print(ocp_v1.load(f"{folder}/v1")["w"].sharding, ocp_v1.metadata(f"{folder}/v1").metadata["w"].shape)
