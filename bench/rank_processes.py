"""The processes of a job's ranks, from outside: what the kernel knows of their memory and of their reads and writes."""
import os
import re


def rank_pids(pid):
    """The dsworker processes below process `pid`."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                before, _, after = file.read().rpartition(")")
        except OSError:
            continue
        children.setdefault(int(after.split()[1]), []).append((int(name), before.partition("(")[2]))
    out, todo = [], [pid]
    while todo:
        for child, program in children.get(todo.pop(), []):
            todo.append(child)
            if program.startswith("dsworker"):
                out.append(child)
    return out


def numbers_of(pid, name):
    """{entry: number} of /proc/PID/`name`; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8") as file:
            return {key: int(number) for key, number in re.findall(r"^(\w+):\s+(\d+)", file.read(), re.M)}
    except OSError:
        return {}


def peak_memory(pid):
    """VmHWM in bytes; none if the process has ended."""
    kib = numbers_of(pid, "status").get("VmHWM")
    return None if kib is None else kib * 1024
