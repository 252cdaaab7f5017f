"""Checkpoints: trees of arrays in a folder that all processes see, written by all of them, read back under any other mesh.

    checkpoints.save("run", {"params": params, "step": step}, step=100, keep=3)      returns once the arrays are copied
    state = checkpoints.restore("run", like=state)                                    the latest; placed as `like` is
    checkpoints.latest("run")                                                         100, or None

    run/step-00000100/index.json                path, shape, dtype of each leaf; its shards with place, bytes and SHA-256
    run/step-00000100/00003.0_512.npy           a shard: `numpy.load` reads it

`save_zarr` and `restore_zarr` do the same with TensorStore, for object stores and other programs.
A checkpoint is there whole or not at all: it is written aside, and renamed when all of it is on disk.
"""

from meshjit.checkpoints.index import CheckpointError as CheckpointError, latest as latest, steps as steps
from meshjit.checkpoints.reading import restore as restore
from meshjit.checkpoints.writing import Saving as Saving, save as save
from meshjit.checkpoints.zarr import restore_zarr as restore_zarr, save_zarr as save_zarr
