"""Who am I: tables of environments, as launchers set them, and what must be read from them."""

from __future__ import annotations

import pytest

from launch.cluster import Cluster, ClusterError, detect, expand_counts, expand_nodes
from tests.tools.cluster_environments import (
    BSUB,
    EXPLICIT,
    HYDRA,
    INTEL,
    JOBSET,
    JSRUN,
    KUBERNETES,
    OPEN_MPI_4,
    OPEN_MPI_5,
    QSUB,
    SBATCH,
    SRUN,
    SSH_INTO_ALLOCATION,
    TORCHRUN,
    TPU_SLICE,
    TPU_SLICES,
)


@pytest.mark.parametrize(
    ("environ", "launcher", "numbers"),
    [
        (OPEN_MPI_4, "open mpi", (3, 8, 1, 2)),
        (OPEN_MPI_5, "open mpi", (3, 8, 1, 2)),
        (HYDRA, "mpich", (3, 8, 1, 2)),
        (INTEL, "intel mpi", (3, 8, 1, 2)),
        (SRUN, "slurm", (3, 8, 1, 2)),
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "8"}, "slurm", (3, 8, 1, 2)),  # srun --mpi=pmi2
        ({**SRUN, "PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.77.0"}, "slurm", (3, 8, 1, 2)),  # srun --mpi=pmix
        ({**SRUN, **HYDRA, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, "mpich", (3, 8, 1, 2)),  # proxies by srun
        ({**SBATCH, **OPEN_MPI_4}, "open mpi", (3, 8, 1, 2)),
        ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "prterun-a-1@1"}, "pmix", (3, 0, 0, 1)),
        (EXPLICIT, "explicit", (3, 8, 0, 1)),
        ({**EXPLICIT, **OPEN_MPI_4, "MESHJIT_PROCESS_ID": "5"}, "explicit", (5, 8, 0, 1)),
        (
            {**KUBERNETES, "MESHJIT_COORDINATOR": "job-0.svc:1234", "MESHJIT_NUM_PROCESSES": "8"},
            "kubernetes",
            (3, 8, 0, 1),
        ),
        (TORCHRUN, "torchrun", (3, 8, 1, 2)),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "8", "JAX_PROCESS_ID": "3"}, "jax", (3, 8, 0, 1)),
        (JSRUN, "jsrun", (3, 8, 1, 4)),
        ({**JSRUN, **OPEN_MPI_4}, "open mpi", (3, 8, 1, 2)),  # Spectrum MPI under jsrun
        ({**QSUB, **HYDRA}, "mpich", (3, 8, 1, 2)),
        (TPU_SLICE, "tpu", (3, 4, 0, 1)),
        (TPU_SLICES, "tpu", (7, 8, 0, 1)),
        (JOBSET, "jobset", (3, 8, 0, 1)),
        (BSUB, "none", (0, 1, 0, 1)),
        (QSUB, "none", (0, 1, 0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "none", (0, 1, 0, 1)),  # anybody's words
        ({}, "none", (0, 1, 0, 1)),
        (SBATCH, "none", (0, 1, 0, 1)),
        (SSH_INTO_ALLOCATION, "none", (0, 1, 0, 1)),
        ({**SRUN, "SLURM_STEP_ID": "4294967291"}, "none", (0, 1, 0, 1)),  # the batch step
        ({**SRUN, "SLURM_STEP_ID": "batch"}, "none", (0, 1, 0, 1)),
        (KUBERNETES, "none", (0, 1, 0, 1)),
        ({**TPU_SLICE, "MESHJIT_PLATFORMS": "cpu"}, "none", (0, 1, 0, 1)),  # the machine's variables, of which nothing is used
        ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}, "none", (0, 1, 0, 1)),  # a slice of one host
    ],
)
def test_launcher_and_numbers(environ: dict[str, str], launcher: str, numbers: tuple[int, ...]) -> None:
    found = detect(environ)
    assert (found.launcher, (found.rank, found.size, found.local_rank, found.local_size)) == (launcher, numbers)


def test_what_is_not_believed_is_said() -> None:
    assert detect(SSH_INTO_ALLOCATION).passed_over == (
        "SLURM: SLURM_PROCID and SLURM_LOCALID and SLURM_STEP_NUM_TASKS and SLURM_STEP_NODELIST and SLURM_STEP_ID "
        "not set: a shell in an allocation, not a task that srun started",
    )
    assert "indexed job" in detect(KUBERNETES).passed_over[0]
    assert "PMIX_NAMESPACE is not" in detect({"PMIX_RANK": "0"}).passed_over[0]
    assert "PMI_RANK is set but PMI_SIZE is not" in detect({"PMI_RANK": "0"}).passed_over[0]


def test_explain() -> None:
    assert detect({**HYDRA, "SLURM_JOB_ID": "7"}).explain().splitlines() == [
        "This is process 3 of 8, started by MPICH's mpirun (Hydra); on this host it is 1 of 2.",
        "That is what these variables say: PMI_RANK=3, PMI_SIZE=8, MPI_LOCALRANKID=1, MPI_LOCALNRANKS=2.",
        "MPI tells them where they meet: at a free port of process 0's host.",
    ]
    assert detect(SRUN).explain().splitlines()[2].startswith("They meet on the first host of SLURM_STEP_NODELIST")
    assert detect(TORCHRUN).explain().splitlines()[2].startswith("The processes meet at a:6")
    assert detect(QSUB).explain().splitlines() == [
        "This process is alone: no variables say that a launcher has started it.",
        "Not believed: PBS: PBS_JOBID is set, but PBS numbers no processes: start them with mpirun, or set MESHJIT_ variables.",
    ]


@pytest.mark.parametrize(
    "environ", [OPEN_MPI_4, OPEN_MPI_5, HYDRA, INTEL, SRUN, EXPLICIT, TORCHRUN, JSRUN, TPU_SLICE, JOBSET, {"PMIX_RANK": "0", "PMIX_NAMESPACE": "x"}]
)
def test_every_launcher_can_be_explained(environ: dict[str, str]) -> None:
    text = detect(environ).explain()
    assert text.startswith("This is process ") and "started by" in text and "meet" in text


def test_a_coordinator_alone_goes_with_any_launcher() -> None:
    found = detect({**SRUN, "MESHJIT_COORDINATOR": "gpu09:1234"})
    assert (found.launcher, found.coordinator) == ("slurm", "gpu09:1234")
    assert found.evidence[-1] == "MESHJIT_COORDINATOR=gpu09:1234"


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"MESHJIT_PROCESS_ID": "1"}, "MESHJIT_COORDINATOR and MESHJIT_NUM_PROCESSES is not"),
        ({**EXPLICIT, "MESHJIT_PROCESS_ID": "8"}, "rank 8 is not below size 8"),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_SIZE": "many"}, "OMPI_COMM_WORLD_SIZE='many' is not a number"),
    ],
)
def test_contradictions(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        detect(environ)


def test_is_pure_and_frozen() -> None:
    environ = dict(HYDRA)
    assert detect(environ) == detect(environ) and environ == HYDRA
    assert isinstance(hash(detect(environ)), int)
    assert detect({"PMI_RANK": "0", "PMI_SIZE": "1"}).is_alone
    assert detect(OPEN_MPI_5).is_mpi and not detect(SRUN).is_mpi and not Cluster(0, 1).is_mpi


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b1", ["a", "b1"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
        ("n[9-11]-ib", ["n9-ib", "n10-ib", "n11-ib"]),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert expand_nodes(text) == names


def test_counts() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1] and expand_counts("") == [] and expand_counts("4") == [4]


@pytest.mark.parametrize(
    ("environ", "host"),
    [(TORCHRUN, "a"), (JSRUN, "a"), (TPU_SLICE, "t0"), (TPU_SLICES, "s0-t0"), (JOBSET, "train-workers-0-0.train")],
)
def test_where_processes_meet_is_the_same_for_all(environ: dict[str, str], host: str) -> None:
    """At a port that is worked out from what all of them know, and that is not one which the launcher uses itself."""
    address = detect(environ).coordinator
    others = {"RANK": "0", "JSM_NAMESPACE_RANK": "0", "TPU_WORKER_ID": "0", "LOCAL_RANK": "0"}
    first = {name: others.get(name, value) for name, value in environ.items()}
    if "JOBSET_NAME" in environ:
        first |= {"JOB_COMPLETION_INDEX": "0", "HOSTNAME": "train-workers-0-0"}
    assert address == detect(first).coordinator and address is not None
    assert address.rpartition(":")[0] == host and 61440 <= int(address.rpartition(":")[2]) < 65536


@pytest.mark.parametrize(
    ("environ", "doubt"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1"}, "open mpi: OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "1"}, "torchrun: TORCHELASTIC_RUN_ID is set but WORLD_SIZE and MASTER_ADDR and MASTER_PORT is not"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "Cloud TPU: TPU_WORKER_HOSTNAMES is set but TPU_WORKER_ID is not"),
        (SBATCH, "SLURM: SLURM_NTASKS=8 is set but no step is: a batch script runs once; srun python script.py runs 8 times"),
        ({**SBATCH, "SLURM_NTASKS": "1"}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "torchrun: WORLD_SIZE=8 is set but TORCHELASTIC_RUN_ID is not: start with torchrun, or set MESHJIT_ variables"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"PMI_SIZE": "4"}, "mpich: PMI_SIZE is set but PMI_RANK is not"),
        ({"JAX_PROCESS_ID": "1"}, "JAX: JAX_PROCESS_ID is set but JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES is not: set all three or none"),
        (SSH_INTO_ALLOCATION, None),
        (QSUB, None),
    ],
)
def test_what_is_there_in_part_is_doubted(environ: dict[str, str], doubt: str | None) -> None:
    assert detect(environ).doubts == ([doubt] if doubt else [])
