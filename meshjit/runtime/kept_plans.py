"""Plans on disk, so that the next process need not search: those of programs that are placed automatically, beside what was
compiled, in `config.compilation_cache_dir`.

An entry is JSON, named by what the plan depends on: the Program without source lines, its annotations, the mesh, the target, and
the version of meshjit. It says where things lie, and is planned by as a saved plan is. Whatever is no plan of the same, or takes
other seconds than it did, is ignored with a warning and written anew. What a `time_limit` may have ended is not kept: all
processes have to have the same plan.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshjit.config import config
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.target import Target
from meshjit.monitoring import record_event
from meshjit.plan.automatic.kept import kept_of, key_of, plan_again
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan, plan_by_search
from meshjit.plan.automatic.task import Task, task_of
from meshjit.plan.graph import Annotations
from meshjit.runtime import cache_files, cache_folder
from meshjit.runtime.progress import progress_bar


def plan_or_load(
    program: Program, mesh: Any, annotations: Annotations, target: Target, ties: Mapping[int, int], limits: Limits
) -> Plan:
    """`make_automatic_plan`, or the plan that an earlier process has found for the same."""
    folder = cache_folder.folder() if limits.plan is None and limits.time_limit is None else None
    if folder is None:
        with progress_bar(program.name):
            return make_automatic_plan(program, mesh, annotations, target, ties=ties, limits=limits)
    task = task_of(program, mesh, annotations, target, ties, limits)
    path = folder / (key_of(task) + cache_folder.PLAN)
    plan = _load(path, task)
    record_event(f"/meshjit/kept_plans/{'misses' if plan is None else 'hits'}")
    if plan is not None:
        cache_folder.touch(path)
        return plan
    start = time.perf_counter()
    with progress_bar(program.name):
        plan = plan_by_search(task)
    if time.perf_counter() - start >= config.persistent_cache_min_compile_time_secs:
        cache_folder.store(path, json.dumps(kept_of(plan)).encode())
    return plan


def _load(path: Path, task: Task) -> Plan | None:
    """The plan of an entry; None where there is none that can be used."""
    try:
        return plan_again(task, json.loads(cache_files.read(path, path.stem)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, cache_files.UselessEntryError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"the plan in {path} cannot be used: {error}\n  it is searched for and written anew", stacklevel=2)
        return None
