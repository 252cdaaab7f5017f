"""Microseconds of calls outside of jit, of functions, methods and indices on small arrays, beside JAX.

    python benchmarks/eager.py [--jax /path/to/a/python/with/jax] [--rounds 3] [call ...]

One CPU device. Each library runs in processes of its own, by turns; of each call the least counts of all rounds. Calls
before do not count: the first hundred of a kind may go op by op. On a busy machine both columns vary, alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys

SETUP = """
import numpy as np
import {library} as library
import {library}.numpy as jnp
from {library} import lax, nn, random
n = np.ones((8, 8), np.float32)
x = jnp.asarray(n); y = x + 1; b = x > 0; v = jnp.arange(8.0); places = jnp.arange(8); key = random.key(0)
tree = {{str(i): x + 0 for i in range(50)}}
add = library.jit(lambda a: a + 1); add_all = library.jit(lambda t: {{k: a + 1 for k, a in t.items()}})
numbers = iter(int(i) % 6 for i in range(10**9))
"""
CALLS = """add(x); add_all(tree); x + 1; x / 3; x @ y; -x; abs(x); jnp.tanh(x); jnp.exp(x); jnp.sqrt(x); jnp.isnan(x)
lax.tanh(x); lax.add(x, y)
nn.relu(x); nn.gelu(x); nn.sigmoid(x); nn.silu(x); nn.softmax(x); nn.log_softmax(x, axis=-1)
x.sum(); jnp.sum(x, axis=1); jnp.sum(x, axis=-1, keepdims=True); x.mean(); x.max(); b.any(); jnp.all(b)
x.argmax(); x.std(); jnp.cumsum(x, axis=0)
jnp.where(x > 0, x, 1); jnp.where(b, x, y); jnp.clip(x, 0, 1); jnp.maximum(x, 0); jnp.add(x, y); jnp.greater(x, y)
jnp.equal(x, 1); x**2
x.reshape(-1); x.T; x.astype(jnp.int32); x.ravel(); jnp.squeeze(x); jnp.expand_dims(x, 0); jnp.broadcast_to(v, (8, 8))
jnp.matmul(x, y); jnp.dot(x, y); jnp.einsum("ij,jk->ik", x, y); jnp.concatenate([x, y])
jnp.stack([x, y], axis=1); jnp.split(x, 2)
x[1]; x[next(numbers)]; x[2:4]; x[:, 0]; x[1, 2]; x[None]; x[places]; jnp.take(x, places, axis=0)
x.at[1].set(0.0); x.at[next(numbers)].set(v); x.at[places].add(1.0)
library.device_put(n); jnp.asarray(n); jnp.array([1.0, 2.0, 3.0]); jnp.zeros((8, 8)); jnp.arange(8)
jnp.linalg.norm(x); jnp.sort(x); random.normal(key, (8, 8)); random.split(key)"""
MEASURE = """
import json, time
best = {{}}
for text in {calls!r}:
    call = eval("lambda: " + text)
    for _ in range(250):
        library.block_until_ready(call())
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(100):
            result = call()
        best[text] = min(best.get(text, 1.0), (time.perf_counter() - start) / 100)
        library.block_until_ready(result)
print(json.dumps(best))
"""


def measure(library: str, python: str, calls: list[str]) -> dict[str, float]:
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "MESHJIT_NUM_CPU_DEVICES": "1"}
    command = [python, "-W", "ignore", "-c", (SETUP + MEASURE).format(library=library, calls=calls)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", default=sys.executable if importlib.util.find_spec("jax") else None, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("calls", nargs="*", default=[call.strip() for call in CALLS.replace("\n", ";").split(";")])
    options = parser.parse_args()
    libraries = {"meshjit": sys.executable, **({"jax": options.jax} if options.jax else {})}
    rounds = [[measure(*item, options.calls) for item in libraries.items()] for _ in range(options.rounds)]
    best = [{call: min(turn[i][call] for turn in rounds) for call in options.calls} for i in range(len(libraries))]
    print(f"{'us per call':34}{''.join(f'{library:>10}' for library in libraries)}{'ratio':>8}" + f"   best of {options.rounds}")
    for call in options.calls:
        row = [times[call] * 1e6 for times in best]
        ratio = f"{row[0] / row[-1]:8.2f}" if len(row) > 1 else ""
        print(f"{call:34}{''.join(f'{time:10.1f}' for time in row)}{ratio}")


if __name__ == "__main__":
    main()
