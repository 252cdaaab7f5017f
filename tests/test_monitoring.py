"""Who listens hears what is recorded, and what jit does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import monitoring
from meshjit.experimental.compilation_cache import compilation_cache

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True)
def nobody_listens() -> Iterator[None]:
    yield
    monitoring.clear_event_listeners()


KINDS: list[tuple[Any, Any, Any, tuple[float, ...]]] = [
    (monitoring.register_event_listener, monitoring.unregister_event_listener, monitoring.record_event, ()),
    (
        monitoring.register_event_duration_secs_listener, monitoring.unregister_event_duration_listener,
        monitoring.record_event_duration_secs, (0.5,),
    ),
    (
        monitoring.register_event_time_span_listener, monitoring.unregister_event_time_span_listener,
        monitoring.record_event_time_span, (1.0, 2.0),
    ),
    (monitoring.register_scalar_listener, monitoring.unregister_scalar_listener, monitoring.record_scalar, (3,)),
]  # fmt: skip


@pytest.mark.parametrize(("register", "unregister", "record", "values"), KINDS, ids=["event", "duration", "span", "scalar"])
def test_listeners(register: Any, unregister: Any, record: Any, values: tuple[float, ...]) -> None:
    heard: list[Any] = []

    def listen(*args: Any, **kwargs: Any) -> None:
        heard.append((args, kwargs))

    register(listen)
    register(listen)
    record("/mine/step", *values, model="a")
    assert heard == [(("/mine/step", *values), {"model": "a"})] * 2
    unregister(listen)
    record("/mine/step", *values)
    assert len(heard) == 3
    monitoring.clear_event_listeners()
    record("/mine/step", *values)
    assert len(heard) == 3
    with pytest.raises(ValueError, match="does not listen to these events"):
        unregister(listen)


def test_what_jit_does(tmp_path: Path) -> None:
    durations: list[Any] = []
    events: list[str] = []
    monitoring.register_event_duration_secs_listener(lambda name, seconds, **more: durations.append((name, seconds, more)))
    monitoring.register_event_listener(lambda name, **more: events.append(name))
    with mj.config.using(persistent_cache_min_compile_time_secs=0.0):
        compilation_cache.set_cache_dir(tmp_path)
        for n in range(2):
            step = mj.jit(lambda x: mnp.sin(x) + 1)
            step(np.ones(3, np.float32))
            step(np.ones(3, np.float32))
            assert [name.rpartition("/")[2] for name, _, _ in durations] == [
                "jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration",
            ] * (n + 1)  # fmt: skip
        compilation_cache.reset_cache()
        assert mj.config.compilation_cache_dir is None
    assert all(seconds > 0 and "lambda" in more["fun_name"] for _, seconds, more in durations)
    assert events == ["/jax/compilation_cache/cache_misses", "/jax/compilation_cache/cache_hits"]
