"""Linux namespaces for tests, by system call: a world of its own for a test program, and the mounts inside it.

Everything a test makes in here (interfaces, mounts, daemons, ranks that no one ended) goes when its processes go, also when
the test is killed with SIGKILL: the kernel ends a process namespace with its first process. One thread at a time."""
import contextlib
import ctypes
import os
import signal
import stat

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_PIDS, NEW_NET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
ALL_BUT_PIDS = {"mnt": NEW_MOUNTS, "uts": NEW_UTS, "ipc": NEW_IPC, "net": NEW_NET}
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


class NotPossible(Exception):
    """This machine, or this user's rights, do not allow it; the text says what was tried and what came back."""


def checked(result, what):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def unshare(flags):
    checked(libc.unshare(flags), "unshare")


def enter_namespace(fd, flag):
    checked(libc.setns(fd, flag), "setns")


def mount(source, target, kind=None, flags=0, data=None):
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    checked(libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]), f"mount {source} on {target}")


def die_with_parent():
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def bind(source, target):
    mount(source, target, None, MS_BIND | MS_REC)


def lies_under(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def cover(folder, keep=(), mode=0o755):
    """An empty folder in memory over this one. The paths of `keep` that lie in it stay as they are."""
    held = [(path, os.open(path, os.O_PATH)) for path in sorted(set(keep)) if lies_under(path, folder) and os.path.exists(path)]
    mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o}")
    for path, fd in held:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8"):
                pass
        bind(f"/proc/self/fd/{fd}", path)
        os.close(fd)


def reap_until_end_of(child):
    """The first process of a namespace inherits all orphans. Returns the status of `child`."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def exit_like(status):
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def enter_private_world():
    """Goes on in a child that has its own processes, network, mounts and System V objects. The caller's process waits for it
    and ends with its code; when that one is killed, all of the world dies. Raises NotPossible."""
    flags = NEW_PIDS | NEW_NET | NEW_MOUNTS | NEW_IPC | NEW_UTS
    try:
        unshare(flags)
    except OSError as error:
        raise NotPossible(f"cannot create namespaces ({error})") from error
    first = os.fork()
    if first != 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the child tells what it found
        exit_like(os.waitpid(first, 0)[1])
    die_with_parent()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    child = os.fork()
    if child != 0:
        exit_like(reap_until_end_of(child))


class NamespaceHandles:
    """The namespaces of a living process, held open so that others can be started in them."""

    def __init__(self, pid):
        self.pids = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.others = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), flag)
                       for name, flag in ALL_BUT_PIDS.items()]

    def close(self):
        for fd in [self.pids] + [fd for fd, _ in self.others]:
            os.close(fd)

    @contextlib.contextmanager
    def children_inside(self):
        """What this thread forks meanwhile becomes a process there; the child calls enter() for the rest."""
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        enter_namespace(self.pids, NEW_PIDS)
        try:
            yield
        finally:
            enter_namespace(own, NEW_PIDS)
            os.close(own)

    def enter(self):
        for fd, flag in self.others:
            enter_namespace(fd, flag)


def start_first_process(set_up):
    """A child in new namespaces of all kinds, the first process of its own: it runs set_up() there and then only reaps. Gives
    its pid once set_up is done, and raises NotPossible with the reason when that failed."""
    report_read, report_write = os.pipe()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    unshare(NEW_PIDS)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report_read)
            _be_first_process(set_up, report_write)
        except BaseException as error:  # whatever it is, the parent tells it
            os.write(report_write, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    enter_namespace(own, NEW_PIDS)
    os.close(own)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as report:
        answer = report.read().decode()
    if answer != "ready":
        os.waitpid(pid, 0)
        raise NotPossible(f"the first process of a host failed: {answer or 'it was killed'}")
    return pid


def _be_first_process(set_up, report):
    die_with_parent()
    os.setsid()
    unshare(NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_NET)
    set_up()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.write(report, b"ready")
    os.closerange(3, 1024)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
