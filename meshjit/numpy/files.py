"""Arrays in NumPy's files."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from meshjit.numpy.creation import array


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """An array into a `.npy` file, by name or open (`numpy.save`)."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Arrays into a `.npz` file (`numpy.savez`)."""
    arrays: dict[str, Any] = {name: np.asarray(x) for name, x in kwds.items()}
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle, **arrays)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """The array of a `.npy` file; of a `.npz` file what NumPy gives (`numpy.load`). Its 2-byte voids are bfloat16."""
    loaded = np.load(file, *args, **kwargs)
    if not isinstance(loaded, np.ndarray):
        return loaded
    return array(loaded.view(ml_dtypes.bfloat16) if loaded.dtype == "V2" else loaded)
