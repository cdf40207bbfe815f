# SPDX-License-Identifier: Apache-2.0
"""A Slurm of this machine alone: its own munge, controller and nodes, in a scratch folder, on free ports."""
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo", "squeue")
CPUS, GPUS = 96, 8  # that each node claims to have

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
GresTypes=gpu
MpiDefault=none
JobRequeue=1
KillWait=2
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""  # cred_expire: a requeued job waits that long and a second; default 120 s


def program(name):
    """Path of a program; daemons may be outside a user's PATH."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")


def missing():
    """Names of the programs that a Slurm needs and that are not there."""
    return [name for name in PROGRAMS if program(name) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """Used by `with`: the daemons run inside it; neither they nor a job of theirs is left after it, even if the test is
    killed."""

    def __init__(self, nodes):
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.names = [f"n{i + 1}" for i in range(nodes)]
        # Nothing of a Slurm that the test itself may run under.
        outer = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        self.environment = outer | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []

    def __enter__(self):
        self._keep_watch()
        try:
            self._configure()
            self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                        f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                        f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
            self.wait((self.folder / "munge.socket").exists, 20, "munge")
            self._start("slurmctld", "-D")
            for name in self.names:
                self._start("slurmd", "-D", "-N", name)
            idle = ["idle"] * len(self.names)
            self.wait(lambda: self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == idle, 60, "idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """Jobs first, then the daemons; the watcher does the rest."""
        if len(self.daemons) > 1:
            self.run("scancel", "-u", self._user(), "-s", "KILL", "-f", check=False)
            self.run("scancel", "-u", self._user(), check=False)
            end = time.monotonic() + 15
            while self.run("squeue", "-h", check=False) and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        os.close(self.watched)
        os.waitpid(self.watcher, 0)

    def processes(self):
        """Ids of the processes that run under this Slurm's configuration, the daemons too."""
        setting = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if setting in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def run(self, name, *arguments, check=True, **more):
        """Standard output of a Slurm command."""
        result = subprocess.run([program(name), *arguments], env=self.environment | more, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=60)
        if check and result.returncode != 0:
            raise AssertionError(f"{name} {' '.join(arguments)}: {result.returncode}: {result.stdout}{result.stderr}")
        return result.stdout + (result.stderr if "--test-only" in arguments else "")

    def submit(self, *arguments, **environment):
        """Submits a batch script; returns the job's id."""
        return self.run("sbatch", "--parsable", *arguments, **environment).strip()

    def job(self, number):
        """What `scontrol show job` tells, by name."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "-o", "show", "job", number)))

    def wait(self, condition, seconds, what):
        """Waits for a condition; a daemon that ended, or time that ran out, is an error with the end of every log."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                logs = [f"\n== {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log")]
                raise AssertionError(f"no {what} after {seconds} s at most" + "".join(logs))
            time.sleep(0.2)

    def _keep_watch(self):
        """Starts a process that waits for the end of this one, or of the `with`, and then ends what is left."""
        reader, self.watched = os.pipe()
        self.watcher = os.fork()
        if self.watcher == 0:
            os.setsid()
            os.close(self.watched)
            os.read(reader, 1)
            end = time.monotonic() + 30
            while (left := self.processes()) and time.monotonic() < end:
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.1)
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)
        os.close(reader)

    def _start(self, name, *arguments):
        with open(self.folder / f"{name}{len(self.daemons)}.out.log", "w") as out:
            self.daemons.append(subprocess.Popen([program(name), *arguments], env=self.environment, stdout=out,
                                                 stderr=out, stdin=subprocess.DEVNULL))

    def _configure(self):
        host = socket.gethostname().split(".")[0]
        controller_port, *ports = free_ports(1 + len(self.names))
        text = CONFIGURATION.format(folder=self.folder, user=self._user(), host=host, controller_port=controller_port)
        for name, port in zip(self.names, ports):
            text += (f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} Gres=gpu:{GPUS} "
                     "State=UNKNOWN\n")
            (self.folder / name).mkdir()
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")  # loaded, not used
        for i in range(GPUS):
            (self.folder / f"gpu{i}").symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)

    @staticmethod
    def _user():
        return pwd.getpwuid(os.getuid()).pw_name
