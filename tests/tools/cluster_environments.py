"""The environment variables that launchers set: of process 3 of 8, unless its comment says otherwise."""

from __future__ import annotations

OPEN_MPI_4 = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.0.0.1:34911",
}  # fmt: skip
OPEN_MPI_5 = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "3", "PMIX_NAMESPACE": "prterun-a-1@1", "PRTE_LAUNCHED": "1",
}  # fmt: skip
HYDRA = {
    "PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2",
    "PMI_FD": "9", "HYDI_CONTROL_FD": "7", "PMI_HOSTNAME": "a",
}  # fmt: skip
INTEL = {
    "PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "9",
    "I_MPI_MPIRUN": "mpirun",
}  # fmt: skip
SRUN = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8", "SLURM_STEP_NODELIST": "gpu[01-04]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
}  # fmt: skip
SBATCH = {
    "SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "8",
    "SLURM_JOB_NODELIST": "gpu[01-04]", "SLURM_TASKS_PER_NODE": "2(x4)",
}  # fmt: skip
SSH_INTO_ALLOCATION = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "gpu[01-04]", "SLURM_NTASKS": "8"}
EXPLICIT = {"MESHJIT_COORDINATOR": "a:1234", "MESHJIT_NUM_PROCESSES": "8", "MESHJIT_PROCESS_ID": "3"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"}
TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "ROLE_RANK": "3",
    "MASTER_ADDR": "a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
JSRUN = {
    "LSB_JOBID": "77", "LSB_MCPU_HOSTS": "batch1 1 a 42 b 42", "JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "8",
    "JSM_NAMESPACE_LOCAL_RANK": "1", "JSM_NAMESPACE_LOCAL_SIZE": "4", "JSM_NAMESPACE_ID": "1",
}  # fmt: skip
BSUB = {"LSB_JOBID": "77", "LSB_MCPU_HOSTS": "a 42 b 42", "LSB_HOSTS": "a b"}
QSUB = {"PBS_JOBID": "77.server", "PBS_NODEFILE": "/var/spool/pbs/aux/77.server", "PBS_NODENUM": "0", "PBS_TASKNUM": "1"}
TPU_SLICE = {"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "t0,t1,t2,t3", "TPU_ACCELERATOR_TYPE": "v5p-32"}
TPU_SLICES = {
    **TPU_SLICE, "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "s0-t0:8080",
}  # fmt: skip
JOBSET = {
    **KUBERNETES, "JOBSET_NAME": "train", "HOSTNAME": "train-workers-0-3", "MESHJIT_NUM_PROCESSES": "8", "JOB_INDEX": "0",
}  # fmt: skip
