"""Who am I: rank and size from the environment alone, by one small function per launcher.

A launcher is believed only when everything it sets is there. A shell inside a SLURM allocation (salloc, sbatch, ssh)
has some SLURM_ variables but is no task of a step; believing those makes one process wait for others that never come.
"""

from __future__ import annotations

import zlib
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
    def doubts(self) -> list[str]:
        """Of what was passed over, what looks like a job of several processes of which a part is missing."""
        return [reason for reason in self.passed_over if " is set but " in reason]

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def explain(self) -> str:
        """Sentences for people: who this process is, by which variables, where it meets the others, and what was not believed."""
        if self.launcher == "none":
            lines = ["This process is alone: no variables say that a launcher has started it."]
        else:
            by = _STARTERS[self.launcher]
            size = self.size or "several (MPI will say how many)"
            here = f"{self.local_rank} of {self.local_size}"
            lines = [f"This is process {self.rank} of {size}, started by {by}; on this host it is {here}."]
            lines += [f"That is what these variables say: {', '.join(self.evidence)}."]
            lines += [] if self.is_alone else [self._meeting()]
        return "\n".join([*lines, *(f"Not believed: {reason}." for reason in self.passed_over)])

    def _meeting(self) -> str:
        if self.coordinator:
            return f"The processes meet at {self.coordinator}."
        if self.is_mpi:
            return "MPI tells them where they meet: at a free port of process 0's host."
        return "They meet on the first host of SLURM_STEP_NODELIST, at a port that job and step determine."


_STARTERS = {
    "explicit": "somebody who set MESHJIT_ variables",
    "jax": "somebody who set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID",
    "kubernetes": "a Kubernetes indexed job",
    "jobset": "a Kubernetes JobSet",
    "open mpi": "Open MPI's mpirun",
    "mvapich": "MVAPICH's mpirun",
    "mpich": "MPICH's mpirun (Hydra)",
    "intel mpi": "Intel MPI's mpirun",
    "slurm": "SLURM's srun",
    "pmix": "a PMIx launcher",
    "torchrun": "torchrun",
    "jsrun": "LSF's jsrun",
    "tpu": "whoever started every host of a Cloud TPU slice",
}


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
    elif "MESHJIT_NUM_PROCESSES" in variables and (cluster := _job_set(environ)):
        return cluster
    else:
        return _partial_explicit(variables, names)
    evidence = _evidence(environ, *names)
    size, rank = _number(environ, names[1]), _number(environ, names[2])
    local = _number(environ, "MESHJIT_LOCAL_RANK", 0), _number(environ, "MESHJIT_LOCAL_SIZE", 1)  # `meshjit run` sets them
    return Cluster(rank, size, *local, environ[names[0]], launcher, evidence)


def _job_set(environ: Environment) -> Cluster | None:
    """A pod of a Kubernetes JobSet, whose pods find each other by name: <set>-<job>-<number>-<index>.<set>."""
    index, group, host = (environ.get(name, "") for name in ("JOB_COMPLETION_INDEX", "JOBSET_NAME", "HOSTNAME"))
    if not index or not group or not host.endswith(f"-{index}"):
        return None
    first = f"{host.removesuffix(index)}0.{group}"
    evidence = _evidence(environ, "MESHJIT_NUM_PROCESSES", "JOB_COMPLETION_INDEX", "JOBSET_NAME", "HOSTNAME")
    rank, size = _number(environ, "JOB_COMPLETION_INDEX"), _number(environ, "MESHJIT_NUM_PROCESSES")
    return Cluster(rank, size, coordinator=f"{first}:{port_of(first, str(size))}", launcher="jobset", evidence=evidence)


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
        shell = f"SLURM: {' and '.join(missing)} not set: a shell in an allocation, not a task that srun started"
        return _batch(environ) or shell
    if not step.isdigit() or int(step) >= _SLURM_SPECIAL_STEPS:
        shell = f"SLURM: step {step} is the batch script or an interactive shell, not a step that srun started"
        return _batch(environ) or shell
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


def _batch(environ: Environment) -> str:
    """What a batch script that starts Python without srun, although its job has several tasks, is to be told."""
    tasks = environ.get("SLURM_NTASKS", "")
    is_script = environ.get("SLURM_PROCID") == "0" and "SLURM_STEP_NODELIST" not in environ
    if not is_script or not tasks.isdigit() or int(tasks) < 2:
        return ""
    fix = f"a batch script runs once; srun python script.py runs {tasks} times"
    return f"SLURM: SLURM_NTASKS={tasks} is set but no step is: {fix}"


_SLURM_SPECIAL_STEPS = 0xFFFFFFF0  # SLURM numbers batch, extern and interactive steps downwards from 2**32 - 2


def _pmix(environ: Environment) -> Cluster | str | None:
    """A PMIx launcher of which only the standard is known (prterun): the size is MPI's to say."""
    if "PMIX_RANK" not in environ:
        return None
    if "PMIX_NAMESPACE" not in environ:
        return "PMIx: PMIX_RANK is set but PMIX_NAMESPACE is not"
    evidence = _evidence(environ, "PMIX_RANK", "PMIX_NAMESPACE")
    return Cluster(_number(environ, "PMIX_RANK"), 0, launcher="pmix", evidence=evidence)


def _torchrun(environ: Environment) -> Cluster | str | None:
    """torchrun's variables. Its own store has MASTER_PORT; we meet at another port of that host."""
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        return f"torchrun: TORCHELASTIC_RUN_ID is set but {' and '.join(missing)} is not"
    port = port_of(environ["TORCHELASTIC_RUN_ID"], environ["MASTER_PORT"], environ.get("TORCHELASTIC_RESTART_COUNT", ""))
    return Cluster(
        _number(environ, "RANK"), _number(environ, "WORLD_SIZE"), _number(environ, "LOCAL_RANK", 0),
        _number(environ, "LOCAL_WORLD_SIZE", 1), f"{environ['MASTER_ADDR']}:{port}", "torchrun",
        _evidence(environ, *needed, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    )  # fmt: skip


def _torch_without_torchrun(environ: Environment) -> str | None:
    """RANK and WORLD_SIZE are anybody's words: they are not believed, but several processes may be meant."""
    size = environ.get("WORLD_SIZE", "")
    if "TORCHELASTIC_RUN_ID" in environ or not size.isdigit() or int(size) < 2:
        return None
    return f"torchrun: WORLD_SIZE={size} is set but TORCHELASTIC_RUN_ID is not: start with torchrun, or set MESHJIT_ variables"


def _jax(environ: Environment) -> Cluster | str | None:
    """The three variables that jax.distributed.initialize reads."""
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    there = [name for name in names if environ.get(name)]
    if not there:
        return None
    if len(there) < len(names):
        missing = [name for name in names if name not in there]
        return f"JAX: {' and '.join(there)} is set but {' and '.join(missing)} is not: set all three or none"
    size, rank = _number(environ, names[1]), _number(environ, names[2])
    return Cluster(rank, size, coordinator=environ[names[0]], launcher="jax", evidence=_evidence(environ, *names))


def _jsrun(environ: Environment) -> Cluster | str | None:
    """LSF's jsrun: the first host of the job that is none of its launch nodes has process 0."""
    if "LSB_JOBID" not in environ:
        return None
    needed = ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "LSB_MCPU_HOSTS")
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        return f"LSF: {' and '.join(missing)} not set: a shell in a job, not a task that jsrun started"
    hosts = environ["LSB_MCPU_HOSTS"].split()[::2]
    host = next((name for name in hosts if not name.startswith(("batch", "login"))), hosts[0])
    port = port_of(environ["LSB_JOBID"], environ.get("JSM_NAMESPACE_ID", ""))
    local = ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE")
    return Cluster(
        _number(environ, needed[0]), _number(environ, needed[1]), _number(environ, local[0], 0), _number(environ, local[1], 1),
        f"{host}:{port}", "jsrun", _evidence(environ, *needed, *local, "LSB_JOBID"),
    )  # fmt: skip


def _pbs(environ: Environment) -> str | None:
    """PBS starts one shell; processes are mpirun's."""
    if "PBS_JOBID" not in environ:
        return None
    return "PBS: PBS_JOBID is set, but PBS numbers no processes: start them with mpirun, or set MESHJIT_ variables"


def _tpu(environ: Environment) -> Cluster | str | None:
    """One process per host of a Cloud TPU slice, or of several slices (MEGASCALE_)."""
    if not environ.get("TPU_WORKER_HOSTNAMES"):
        return None
    if not environ.get("TPU_WORKER_ID"):
        return "Cloud TPU: TPU_WORKER_HOSTNAMES is set but TPU_WORKER_ID is not"
    platforms = environ.get("MESHJIT_PLATFORMS") or environ.get("JAX_PLATFORMS") or "tpu"
    if "tpu" not in platforms.split(","):
        return f"Cloud TPU: TPU_WORKER_HOSTNAMES belongs to this machine, but only the platforms {platforms} are used"
    hosts = environ["TPU_WORKER_HOSTNAMES"].split(",")
    slices, number = _number(environ, "MEGASCALE_NUM_SLICES", 1), _number(environ, "MEGASCALE_SLICE_ID", 0)
    first = hosts[0]
    if slices > 1:
        first = environ.get("MEGASCALE_COORDINATOR_ADDRESS", "").partition(":")[0]
        if not first:
            return "Cloud TPU: MEGASCALE_NUM_SLICES is set but MEGASCALE_COORDINATOR_ADDRESS is not"
    of_slices = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
    evidence = _evidence(environ, "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", *of_slices)
    rank, size = number * len(hosts) + _number(environ, "TPU_WORKER_ID"), slices * len(hosts)
    if (rank, size) == (0, 1):
        return None  # a slice of one host: nobody has started anything
    return Cluster(rank, size, coordinator=f"{first}:{port_of(first, str(size))}", launcher="tpu", evidence=evidence)


def port_of(*facts: str) -> int:
    """A port that processes which know the same facts of their job work out alone: above those that Linux gives away (32768 to
    60999)."""
    return 61440 + zlib.crc32("\n".join(facts).encode()) % 4096


def _kubernetes(environ: Environment) -> Cluster | str | None:
    """A pod knows neither its job's size nor where its kin are: only explicit variables count (see _explicit)."""
    if "KUBERNETES_SERVICE_HOST" in environ and environ.get("JOB_COMPLETION_INDEX"):
        return "Kubernetes: an indexed job, but MESHJIT_COORDINATOR and MESHJIT_NUM_PROCESSES are not set"
    return None


DETECTORS: tuple[Detector, ...] = (
    _explicit, _jax, _open_mpi, _mvapich, _hydra, _slurm, _pmix, _torchrun, _torch_without_torchrun, _jsrun, _tpu, _kubernetes,
    _pbs,
)  # fmt: skip


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
