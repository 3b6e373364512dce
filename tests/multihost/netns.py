"""A small cluster on one machine: hosts as network namespaces on a bridge, each with its own processes, host name, home,
/tmp, /dev/shm and /run, and a real sshd. The host `head` has the key for the others and knows their host keys.

Hosts have process namespaces of their own as well: a job that sweeps by its id on one host must not find its processes on
another. The test stands outside and sees all of them. Needs the world of isolation.enter_private_world()."""
import contextlib
import glob
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import isolation

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import pace  # noqa: E402

HOME = pwd.getpwuid(0).pw_dir
COVERED = ("/tmp", "/dev/shm", "/run", HOME)  # what a host has for itself
FIRST_ADDRESS = 11
# Both networks in halves: routes that are more special than the ones of the interface.
HALVES = ("10.77.0.0/25", "10.77.0.128/25", "fd77::/65", "fd77:0:0:0:8000::/65")
NEEDED_PROGRAMS = ("ip", "ssh-keygen", "sshd")
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Everything off that asks the outside world or needs a session manager.
SSHD_CONFIG = """Port 22
ListenAddress 0.0.0.0
ListenAddress ::
HostKey {key}
AuthorizedKeysFile {home}/.ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PidFile none
MaxStartups 100
"""


def missing_programs(names=NEEDED_PROGRAMS):
    return [name for name in names if shutil.which(name, path=PATH) is None]


def wait_until(condition, limit_s, what):
    """The first true value of the condition. There is nobody to wake us in another process, so we look often, but for a
    fifth of the time at most: to look at all processes takes a while itself."""
    deadline = pace.Deadline(limit_s)
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if deadline.passed():
            raise TimeoutError(f"{what() if callable(what) else what}: not within {limit_s} s")
        time.sleep(min(0.1, max(0.005, 4 * (time.monotonic() - began))))


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it ended meanwhile
        return b""


class Host:
    def __init__(self, cluster, name, number):
        self.cluster, self.name = cluster, name
        self.address = f"10.77.0.{FIRST_ADDRESS + number}"
        self.address6 = f"fd77::{FIRST_ADDRESS + number}"
        self.port_on_bridge = f"{cluster.bridge}p{number}"
        self.sshd = None
        self.children = []  # started by the test and perhaps not reaped yet
        self.hidden = []
        self.furniture, self.daemons = set(), set()  # paths and pids that are no job's
        self.first_pid = isolation.start_first_process(self._furnish)
        self.namespaces = isolation.NamespaceHandles(self.first_pid)
        self.pid_namespace = os.readlink(f"/proc/{self.first_pid}/ns/pid")

    def __repr__(self):
        return self.name

    def _furnish(self):
        socket.sethostname(self.name)
        for folder in COVERED:
            isolation.cover(folder, self.cluster.keep, 0o700 if folder == HOME else 0o1777 if folder != "/run" else 0o755)
        isolation.mount("proc", "/proc", "proc", isolation.MS_NOSUID | isolation.MS_NODEV)
        isolation.bind(self.cluster.path("hosts"), "/etc/hosts")
        os.mkdir("/run/sshd")
        os.makedirs("/run/user/0", 0o700)
        self._fill_home()

    def _fill_home(self):
        os.mkdir(f"{HOME}/.ssh", 0o700)
        of_the_head = ["id_ed25519", "id_ed25519.pub", "known_hosts"]
        for name in ["authorized_keys"] + (of_the_head if self.name == self.cluster.head_name else []):
            shutil.copy(self.cluster.path(name), f"{HOME}/.ssh/{name}")
            os.chmod(f"{HOME}/.ssh/{name}", 0o600)

    # --- processes -----------------------------------------------------------------------------------------------

    def environment(self, **extra):
        """What a login here has; nothing of the test's own."""
        return {"PATH": PATH, "HOME": HOME, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh", "LANG": "C.UTF-8",
                "XDG_RUNTIME_DIR": "/run/user/0", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", **extra}

    def popen(self, argv, env=None, cwd="/", **options):
        """A process on this host, a child of the test: its pid here is the test's own."""
        def go_there():
            self.namespaces.enter()
            os.chdir(cwd)

        with self.namespaces.children_inside():
            process = subprocess.Popen(argv, env=self.environment() if env is None else env, preexec_fn=go_there, **options)
        self.children = [child for child in self.children if child.returncode is None] + [process]
        return process

    def run(self, argv, check=True, timeout=30, **options):
        """A command here, to its end; its output is in the result."""
        process = self.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise TimeoutError(f"{self.name}: {argv} ran for {timeout} s\n{out}{err}") from None
        if check and process.returncode != 0:
            raise RuntimeError(f"{self.name}: {argv} ended with {process.returncode}\n{out}{err}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def all_processes(self):
        """pid (the test's) -> command line of all living processes here, the first one and sshd's listener included."""
        found = {}
        for entry in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(f"{entry}/ns/pid") != self.pid_namespace:
                    continue
                if re.search(rb"^State:\s+[ZX]", read(f"{entry}/status"), re.M):
                    continue
                found[int(entry[6:])] = read(f"{entry}/cmdline").replace(b"\0", b" ").decode(errors="replace").rstrip()
        return found

    def processes(self, mark=None):
        """The same without what belongs to the host; with a mark, those that carry NAME=VALUE in their environment."""
        return {pid: command for pid, command in self.all_processes().items() if pid not in self.daemons
                and (mark is None or mark.encode() in read(f"/proc/{pid}/environ").split(b"\0"))}

    def kill(self, pattern, number=signal.SIGKILL):
        """Sends the signal to the processes here whose command line matches; gives their pids."""
        pids = [pid for pid, command in self.processes().items() if re.search(pattern, command)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    # --- sshd ----------------------------------------------------------------------------------------------------

    def start_sshd(self):
        config = self.cluster.path(f"{self.name}.sshd_config")
        log = self.cluster.path(f"{self.name}.sshd.log")
        self.sshd = self.popen([SSHD, "-D", "-f", config, "-E", log], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.daemons.add(self.sshd.pid)

    def sshd_answers(self):
        return 22 in self.listening_ports()

    def kill_sshd(self):
        """The listener and every session's process: their clients see the end of the connection."""
        self.kill(r"^sshd:|/sshd ")
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd.wait()
            self.sshd = None

    # --- what is left --------------------------------------------------------------------------------------------

    def root(self, path):
        """A path of this host as the test reaches it."""
        return f"/proc/{self.first_pid}/root{path}"

    def files(self):
        """All files and folders in what the host has for itself, without what it was furnished with."""
        return self._all_files() - self.furniture

    def _all_files(self):
        found = set()
        for folder in COVERED:
            device = os.stat(self.root(folder)).st_dev
            for parent, folders, names in os.walk(self.root(folder)):
                folders[:] = [name for name in folders if os.lstat(os.path.join(parent, name)).st_dev == device
                              or os.path.islink(os.path.join(parent, name))]
                for name in folders + names:
                    if os.lstat(os.path.join(parent, name)).st_dev == device:
                        found.add(os.path.join(parent, name)[len(self.root("")):])
        return found

    def remember_furniture(self):
        """What is here now belongs to the host."""
        self.furniture, self.daemons = self._all_files(), set(self.all_processes())

    def listening_ports(self):
        found = set()
        for table in ("tcp", "tcp6"):
            for line in read(f"/proc/{self.first_pid}/net/{table}").decode().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found.add(int(fields[1].rsplit(":", 1)[1], 16))
        return found

    def remove_files(self):
        for path in sorted(self.files(), reverse=True):
            there = self.root(path)
            with contextlib.suppress(OSError):
                (os.rmdir if os.path.isdir(there) and not os.path.islink(there) else os.unlink)(there)

    def hide(self, folder):
        """An empty folder in its place, on this host only."""
        self.run(["mount", "-n", "-t", "tmpfs", "tmpfs", folder])
        self.hidden.append(folder)

    def unhide(self):
        for folder in self.hidden:
            self.run(["umount", "-n", "-l", folder])
        self.hidden = []

    def end(self):
        """All processes here, at once: the kernel ends them with the first one, which waits for what others have to reap."""
        os.kill(self.first_pid, signal.SIGKILL)
        for child in self.children:
            child.wait()
        os.waitpid(self.first_pid, 0)
        self.namespaces.close()


class Cluster:
    """`with Cluster(keep=[...]) as cluster:` hosts `head`, `node1`, `node2`, `node3`, found by name everywhere. `keep`: paths
    (programs, sources) that stay visible on every host. One cluster is used by one thread."""

    head_name = "head"
    numbers = itertools.count(1)

    def __init__(self, nodes=3, keep=()):
        self.keep = list(keep)
        self.names = [self.head_name] + [f"node{number}" for number in range(1, nodes + 1)]
        # Other worker processes of the same test program have bridges beside this one.
        self.bridge = f"dsl{os.getpid()}x{next(self.numbers)}"
        self.folder = None
        self.hosts = {}
        self.partitioned = {}

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="dsl-hosts-")
        self.keep.append(self.folder)
        try:
            self._make_keys()
            self._write_hosts_file()
            for number, name in enumerate(self.names):
                self.hosts[name] = Host(self, name, number)
            self._connect()
            for host in self.hosts.values():
                host.start_sshd()
            for host in self.hosts.values():
                wait_until(host.sshd_answers, 10, f"sshd of {host} listens")
                host.remember_furniture()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        try:
            return self.__dict__["hosts"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def nodes(self):
        return [host for host in self.hosts.values() if host.name != self.head_name]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        """A file that all hosts see, as on a shared file system."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def _make_keys(self):
        for name in ["id_ed25519"] + [f"{host}.key" for host in self.names]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", self.path(name)], check=True)
        shutil.copy(self.path("id_ed25519.pub"), self.path("authorized_keys"))
        known = []
        for number, name in enumerate(self.names):
            with open(self.path(f"{name}.key.pub"), encoding="utf-8") as file:
                key = " ".join(file.read().split()[:2])
            known.append(f"{name},10.77.0.{FIRST_ADDRESS + number},fd77::{FIRST_ADDRESS + number} {key}\n")
            self.write(f"{name}.sshd_config", SSHD_CONFIG.format(key=self.path(f"{name}.key"), home=HOME))
        self.write("known_hosts", "".join(known))

    def _write_hosts_file(self):
        lines = ["127.0.0.1 localhost\n::1 localhost ip6-localhost\n"]
        lines += [f"10.77.0.{FIRST_ADDRESS + number} {name}\n" for number, name in enumerate(self.names)]
        self.write("hosts", "".join(lines))

    def _connect(self):
        outside = [f"link add {self.bridge} type bridge", f"link set {self.bridge} up"]
        for host in self.hosts.values():
            outside += [f"link add {host.port_on_bridge} type veth peer name eth0 netns {host.first_pid}",
                        f"link set {host.port_on_bridge} master {self.bridge}", f"link set {host.port_on_bridge} up"]
        self._ip(outside)
        for host in self.hosts.values():
            self._ip(["link set lo up", f"addr add {host.address}/24 dev eth0",
                      f"addr add {host.address6}/64 dev eth0 nodad", "link set eth0 up"], host)

    def _ip(self, lines, host=None):
        """Commands of ip(8) in one go."""
        text = "".join(line + "\n" for line in lines)
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = host.popen(["ip", "-batch", "-"], **options) if host else subprocess.Popen(["ip", "-batch", "-"], **options)
        out = process.communicate(text)[0]
        if process.returncode != 0:
            raise isolation.NotPossible(f"ip(8) on {host or 'the bridge'}: {out.strip()}\n{text}")

    # --- faults --------------------------------------------------------------------------------------------------

    def partition(self, host, how="blackhole"):
        """The host's packets go nowhere and nobody is told. `blackhole`: by its own routes; `unplugged`: its port leaves the
        bridge, so what others send is lost too."""
        if how == "blackhole":
            self._ip([f"route add blackhole {half}" for half in HALVES], host)
        else:
            self._ip([f"link set {host.port_on_bridge} nomaster"])
        self.partitioned[host] = how

    def heal(self, host):
        if self.partitioned.pop(host) == "blackhole":
            self._ip([f"route del blackhole {half}" for half in HALVES], host)
        else:
            self._ip([f"link set {host.port_on_bridge} master {self.bridge}"])

    # --- between cases -------------------------------------------------------------------------------------------

    def processes(self, mark=None):
        """All hosts: {"node1": {pid: command}, …}, only hosts that have any."""
        found = {host.name: host.processes(mark) for host in self.hosts.values()}
        return {name: processes for name, processes in found.items() if processes}

    def leftovers(self, allowed=r"^$"):
        """What hosts have beyond their furniture: processes, listening ports, files; paths that match `allowed` may be."""
        found = {}
        for host in self.hosts.values():
            files = sorted(path for path in host.files() if not re.search(allowed, path))
            ports = sorted(host.listening_ports() - self.ports_of(host))
            for kind, things in (("processes", host.processes()), ("ports", ports), ("files", files)):
                if things:
                    found.setdefault(host.name, {})[kind] = things
        return found

    def ports_of(self, _host):
        """The ports of the host's own daemons."""
        return {22}

    def restore(self):
        """As after __enter__: for the next case, whatever the last one did."""
        for host in list(self.partitioned):
            self.heal(host)
        for host in self.hosts.values():
            for pid in host.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda host=host: not host.processes(), 10, f"an end of all processes on {host}")
            host.unhide()
            host.remove_files()
            for name in ("known_hosts", "authorized_keys"):
                if os.path.exists(host.root(f"{HOME}/.ssh/{name}")):
                    shutil.copy(self.path(name), host.root(f"{HOME}/.ssh/{name}"))
            if host.sshd is None:
                host.start_sshd()
        for host in self.hosts.values():
            wait_until(host.sshd_answers, 10, f"sshd of {host} listens")

    def close(self):
        for host in self.hosts.values():
            host.end()
        self.hosts = {}
        subprocess.run(["ip", "link", "del", self.bridge], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
