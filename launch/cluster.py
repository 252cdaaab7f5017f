"""Who am I: rank and size from the environment alone, by one small function per launcher.

A launcher is believed only when everything it sets is there. A shell inside a SLURM allocation (salloc, sbatch, ssh)
has some SLURM_ variables but is no task of a step; believing those makes one process wait for others that never come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


class ClusterError(RuntimeError):
    """The environment contradicts itself: a rank outside its size, a word where a number should be."""


@dataclass(frozen=True)
class Cluster:
    """What the environment says about this process and its kin."""

    rank: int
    size: int  # 0: the launcher does not say, MPI will (plain PMIx)
    local_rank: int = 0  # among the processes of this host
    local_size: int = 1
    coordinator: str | None = None  # "host:port" where the environment settles it
    launcher: str = "none"
    evidence: tuple[str, ...] = ()  # "VARIABLE=value", what was believed
    passed_over: tuple[str, ...] = ()  # launchers with traces in the environment that were not believed, and why

    @property
    def is_mpi(self) -> bool:
        """Whether MPI can bring the processes together."""
        return self.launcher in ("open mpi", "mpich", "intel mpi", "mvapich", "pmix")

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def explain(self) -> str:
        """A few lines for people: the launcher, its variables, and what was not believed."""
        size = self.size or "? (MPI will say)"
        lines = [f"launcher: {self.launcher}", f"process {self.rank} of {size}"]
        lines[1] += f", {self.local_rank} of {self.local_size} on this host"
        if self.coordinator:
            lines.append(f"coordinator: {self.coordinator}")
        lines += [f"because {fact}" for fact in self.evidence]
        lines += [f"not believed: {reason}" for reason in self.passed_over]
        return "\n".join(lines)


Environment = Mapping[str, str]
Detector = Callable[[Environment], "Cluster | str | None"]  # a cluster | why its traces do not suffice | no traces


def detect(environ: Environment) -> Cluster:
    """The first launcher that the environment proves; alone when there is none. Pure: reads nothing but its argument.

    Raises ClusterError for contradictory variables."""
    passed_over: list[str] = []
    for detector in DETECTORS:
        verdict = detector(environ)
        if isinstance(verdict, Cluster):
            return _checked(_with(verdict, environ.get("MESHJIT_COORDINATOR"), passed_over))
        if verdict is not None:
            passed_over.append(verdict)
    return Cluster(0, 1, passed_over=tuple(passed_over))


def _with(cluster: Cluster, coordinator: str | None, passed_over: list[str]) -> Cluster:
    """MESHJIT_COORDINATOR alone overrides where the processes of a detected launcher meet."""
    evidence = cluster.evidence
    if coordinator and cluster.coordinator is None:
        evidence = (*evidence, f"MESHJIT_COORDINATOR={coordinator}")
    return Cluster(
        cluster.rank, cluster.size, cluster.local_rank, cluster.local_size, cluster.coordinator or coordinator,
        cluster.launcher, evidence, tuple(passed_over),
    )  # fmt: skip


def _checked(cluster: Cluster) -> Cluster:
    facts = ", ".join(cluster.evidence)
    if cluster.size and not 0 <= cluster.rank < cluster.size:
        raise ClusterError(f"{cluster.launcher}: rank {cluster.rank} is not below size {cluster.size} ({facts})")
    return cluster


# --- one function per launcher ---------------------------------------------------------------------------------------


def _explicit(environ: Environment) -> Cluster | str | None:
    """MESHJIT_COORDINATOR, _NUM_PROCESSES and _PROCESS_ID; the last may come from a Kubernetes indexed job."""
    names = ("MESHJIT_COORDINATOR", "MESHJIT_NUM_PROCESSES", "MESHJIT_PROCESS_ID")
    variables = [name for name in names if environ.get(name)]
    if variables == list(names[:2]) and environ.get("JOB_COMPLETION_INDEX"):
        names, launcher = (*names[:2], "JOB_COMPLETION_INDEX"), "kubernetes"
    elif len(variables) == 3:
        launcher = "explicit"
    else:
        return _partial_explicit(variables, names)
    evidence = _evidence(environ, *names)
    size, rank = _number(environ, names[1]), _number(environ, names[2])
    return Cluster(rank, size, coordinator=environ[names[0]], launcher=launcher, evidence=evidence)


def _partial_explicit(variables: list[str], names: tuple[str, ...]) -> None:
    if variables and variables != ["MESHJIT_COORDINATOR"]:  # that one alone may go with any launcher
        missing = [name for name in names if name not in variables]
        raise ClusterError(f"{' and '.join(variables)} is set, but {' and '.join(missing)} is not: set all three or none")


def _open_mpi(environ: Environment) -> Cluster | str | None:
    """Open MPI's mpirun; version 5 (PRRTE) sets the same four for MPI programs, beside PMIX_ ones."""
    return _complete(
        environ, "open mpi",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    )  # fmt: skip


def _mvapich(environ: Environment) -> Cluster | str | None:
    return _complete(
        environ, "mvapich",
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
    )  # fmt: skip


def _hydra(environ: Environment) -> Cluster | str | None:
    """MPICH and what descends from it. srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE, too: that is SLURM."""
    if "PMI_RANK" not in environ:
        return None
    if isinstance(_slurm(environ), Cluster) and not any(name in environ for name in ("HYDI_CONTROL_FD", "PMI_FD")):
        return None
    intel = any(name.startswith("I_MPI_") for name in environ) and "HYDI_CONTROL_FD" not in environ
    name = "intel mpi" if intel else "mpich"
    return _complete(environ, name, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def _slurm(environ: Environment) -> Cluster | str | None:
    """A task of a step that srun started, with all that belongs to it."""
    if not any(name.startswith("SLURM_") for name in environ):
        return None
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""
    needed = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
    missing = [name for name in needed if not environ.get(name)] + ([] if step else ["SLURM_STEP_ID"])
    if missing:
        return f"SLURM: {' and '.join(missing)} not set: a shell in an allocation, not a task that srun started"
    if not step.isdigit() or int(step) >= _SLURM_SPECIAL_STEPS:
        return f"SLURM: step {step} is the batch script or an interactive shell, not a step that srun started"
    tasks = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = _number(environ, "SLURM_NODEID", 0)
    return Cluster(
        rank=_number(environ, "SLURM_PROCID"),
        size=_number(environ, "SLURM_STEP_NUM_TASKS"),
        local_rank=_number(environ, "SLURM_LOCALID"),
        local_size=tasks[node] if node < len(tasks) else 1,
        launcher="slurm",
        evidence=_evidence(environ, *needed, "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_TASKS_PER_NODE"),
    )


_SLURM_SPECIAL_STEPS = 0xFFFFFFF0  # SLURM numbers batch, extern and interactive steps downwards from 2**32 - 2


def _pmix(environ: Environment) -> Cluster | str | None:
    """A PMIx launcher of which only the standard is known (prterun): the size is MPI's to say."""
    if "PMIX_RANK" not in environ:
        return None
    if "PMIX_NAMESPACE" not in environ:
        return "PMIx: PMIX_RANK is set but PMIX_NAMESPACE is not"
    evidence = _evidence(environ, "PMIX_RANK", "PMIX_NAMESPACE")
    return Cluster(_number(environ, "PMIX_RANK"), 0, launcher="pmix", evidence=evidence)


def _kubernetes(environ: Environment) -> Cluster | str | None:
    """A pod knows neither its job's size nor where its kin are: only explicit variables count (see _explicit)."""
    if "KUBERNETES_SERVICE_HOST" in environ and environ.get("JOB_COMPLETION_INDEX"):
        return "Kubernetes: an indexed job, but MESHJIT_COORDINATOR and MESHJIT_NUM_PROCESSES are not set"
    return None


DETECTORS: tuple[Detector, ...] = (_explicit, _open_mpi, _mvapich, _hydra, _slurm, _pmix, _kubernetes)


# --- reading ---------------------------------------------------------------------------------------------------------


def _complete(
    environ: Environment, launcher: str, rank: str, size: str, local_rank: str, local_size: str
) -> Cluster | str | None:
    """A launcher that sets a rank and a size; the local ones where it sets them."""
    if rank not in environ and size not in environ:
        return None
    missing = [name for name in (rank, size) if name not in environ]
    if missing:
        present = size if rank in missing else rank
        return f"{launcher}: {present} is set but {missing[0]} is not"
    return Cluster(
        rank=_number(environ, rank),
        size=_number(environ, size),
        local_rank=_number(environ, local_rank, 0),
        local_size=_number(environ, local_size, 1),
        launcher=launcher,
        evidence=_evidence(environ, rank, size, local_rank, local_size),
    )


def _evidence(environ: Environment, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}={environ[name]}" for name in names if name in environ)


def _number(environ: Environment, name: str, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdigit():
        raise ClusterError(f"{name}={text!r} is not a number")
    return int(text)


def expand_counts(text: str) -> list[int]:
    """SLURM's counts per node: "2(x3),1" -> [2, 2, 2, 1]."""
    result: list[int] = []
    for part in filter(None, text.split(",")):
        count, _, repeat = part.rstrip(")").partition("(x")
        result += [int(count)] * int(repeat or 1)
    return result


def expand_nodes(text: str) -> list[str]:
    """SLURM's list of nodes: "gpu[01-03,7],login" -> ["gpu01", "gpu02", "gpu03", "gpu7", "login"]."""
    return [name for part in _split_outside_brackets(text) for name in _expand_brackets(part)]


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def _expand_brackets(text: str) -> Iterator[str]:
    """One part; several brackets multiply: "rack[1-2]node[1-2]" gives four."""
    head, bracket, rest = text.partition("[")
    if not bracket:
        yield text
        return
    inside, _, tail = rest.partition("]")
    for item in inside.split(","):
        low, _, high = item.partition("-")
        for number in range(int(low), int(high or low) + 1):
            for end in _expand_brackets(tail):
                yield f"{head}{number:0{len(low)}d}{end}"
