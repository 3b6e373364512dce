"""A real Slurm on the hosts of netns.py: munged and slurmctld on `head`, slurmd on every node, two GPUs a node that are only
device files. All state lies in the cluster's folder, and goes with it; Slurm's own ports are free on every host."""
import os
import stat
import subprocess

import netns

NEEDED_PROGRAMS = netns.NEEDED_PROGRAMS + ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel", "scontrol")
GPUS_PER_NODE = 2
CONTROLLER_PORT, NODE_PORT = 6817, 6818

# A requeued job waits until its credentials have expired; 5 s is the least that Slurm takes.
CONFIG = """ClusterName=multihost
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=3
MailProg=/bin/true
GresTypes=gpu
NodeName=node[1-{nodes}] CPUs=8 RealMemory=1000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class SlurmCluster(netns.Cluster):
    """The same, with `srun`, `sbatch`, `salloc` for what runs on `head` (environment() has SLURM_CONF)."""

    def __enter__(self):
        super().__enter__()
        try:
            self._configure()
            self._start_daemons()
        except BaseException:
            self.close()
            raise
        return self

    def _configure(self):
        values = {"folder": self.folder, "nodes": len(self.nodes), "gpus": GPUS_PER_NODE,
                  "controller_port": CONTROLLER_PORT, "node_port": NODE_PORT}
        self.config = self.write("slurm.conf", CONFIG.format(**values))
        self.write("cgroup.conf", "")
        for index in range(GPUS_PER_NODE):  # Slurm wants device files; these are the null device
            os.mknod(self.path(f"gpu{index}"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        self.write("gres.conf", f"Name=gpu File={self.folder}/gpu[0-{GPUS_PER_NODE - 1}]\n")
        for name, mode in [("munge", 0o755), ("state", 0o700)] + [(f"spool-{node}", 0o755) for node in self.nodes]:
            os.mkdir(self.path(name), mode)
        with open(self.path("munge/key"), "wb") as file:
            file.write(os.urandom(128))
        os.chmod(self.path("munge/key"), 0o400)
        # What a login on a host of a Slurm cluster has.
        for host in self.hosts.values():
            host.environment = lambda host=host, **extra: netns.Host.environment(host, SLURM_CONF=self.config, **extra)

    def _start_daemons(self):
        os.chmod(self.folder, 0o755)  # munged refuses a socket that others cannot reach
        munge = self.path("munge")
        self._daemon(self.head, "munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
                     f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        netns.wait_until(lambda: os.path.exists(f"{munge}/socket"), 10, "munged's socket")
        self._daemon(self.head, "slurmctld", "-D", "-c")
        for node in self.nodes:
            self._daemon(node, "slurmd", "-D", "-N", node.name)
        netns.wait_until(lambda: self.node_states() == {node.name: "idle" for node in self.nodes}, 30,
                         "all nodes of Slurm are idle")
        for host in self.hosts.values():
            host.remember_furniture()

    def _daemon(self, host, *argv):
        with open(self.path(f"{argv[0]}-{host}.out"), "wb") as out:
            host.popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def node_states(self):
        """node -> state, as sinfo has it; empty while the controller does not answer."""
        answer = self.head.run(["sinfo", "-h", "-N", "-o", "%N %T"], check=False)
        return dict(line.split() for line in answer.stdout.splitlines()) if answer.returncode == 0 else {}

    def ports_of(self, host):
        return {22, CONTROLLER_PORT} if host.name == self.head_name else {22, NODE_PORT}

    def jobs(self):
        """job id -> state of all jobs that have not ended."""
        lines = self.head.run(["squeue", "-h", "-o", "%i %T"]).stdout.splitlines()
        return dict(line.split() for line in lines)

    def restore(self):
        for job in self.jobs():
            self.head.run(["scancel", "--signal=KILL", "--full", job], check=False)
            self.head.run(["scancel", job], check=False)
        netns.wait_until(lambda: not self.jobs(), 20, "an empty queue")
        super().restore()
        netns.wait_until(lambda: set(self.node_states().values()) == {"idle"}, 20, "idle nodes")
