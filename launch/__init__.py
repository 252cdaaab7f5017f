"""Processes: who am I, how do we meet, how do we end together. Knows neither meshjit, nor sharding, nor jaxlib.

detect(os.environ)             rank, size and why we think so (pure; `.explain()` says it to a person)
meet(cluster)                  the coordinator's address, agreed through MPI or worked out from SLURM
watch(rank, end_job, finish)   a process that fails ends the whole job, with its traceback, in seconds
"""

from launch.cluster import Cluster, ClusterError, detect
from launch.rendezvous import Meeting, RendezvousError, meet
from launch.supervise import Supervisor, watch

__all__ = [
    "Cluster",
    "ClusterError",
    "Meeting",
    "RendezvousError",
    "Supervisor",
    "detect",
    "meet",
    "watch",
]
