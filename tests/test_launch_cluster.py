"""Who am I: tables of environments, as launchers set them, and what must be read from them."""

from __future__ import annotations

import pytest

from launch.cluster import Cluster, ClusterError, detect, expand_counts, expand_nodes
from tests.tools.cluster_environments import (
    EXPLICIT,
    HYDRA,
    INTEL,
    KUBERNETES,
    OPEN_MPI_4,
    OPEN_MPI_5,
    SBATCH,
    SRUN,
    SSH_INTO_ALLOCATION,
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
        ({}, "none", (0, 1, 0, 1)),
        (SBATCH, "none", (0, 1, 0, 1)),
        (SSH_INTO_ALLOCATION, "none", (0, 1, 0, 1)),
        ({**SRUN, "SLURM_STEP_ID": "4294967291"}, "none", (0, 1, 0, 1)),  # the batch step
        ({**SRUN, "SLURM_STEP_ID": "batch"}, "none", (0, 1, 0, 1)),
        (KUBERNETES, "none", (0, 1, 0, 1)),
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
    assert detect({**HYDRA, "SLURM_JOB_ID": "7"}).explain().splitlines()[:4] == [
        "launcher: mpich",
        "process 3 of 8, 1 of 2 on this host",
        "because PMI_RANK=3",
        "because PMI_SIZE=8",
    ]


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
