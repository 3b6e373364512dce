"""Rates of reads and writes past the page cache, for the scripts of this folder: fio, blocking calls of many threads
(bench/file_rounds), and the engine of a run, all of one file without a name."""
import json
import shutil
import subprocess

import bench_report as report

SETTINGS = [{"block_size": block, "queue_depth": depth, "intra_op_parallelism": 1}
            for block in (1 << 18, 1 << 20, 1 << 22) for depth in (8, 32) if block * depth <= 64 << 20]


def has_fio():
    return shutil.which("fio") is not None


class DirectFile:
    """A file of `size` bytes in `directory`, filled, that is gone when this is left."""

    def __init__(self, bin_dir, directory, size):
        self.size = size
        self.process = subprocess.Popen([report.program(bin_dir, "file_rounds"), directory, str(size)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.path = self.answer().split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            report.fail(74, f"bench/file_rounds ended with {self.process.wait()}; its message is above")
        return line

    def measure(self, program, work, setting, seconds):
        """(read, written) in bytes per second. `program`: fio, plain or engine; `work`: read, write or, but for engine, the
        percentage of what is read."""
        if program == "fio":
            return self.fio(work, setting, seconds)
        words = [program, work, int(seconds * 1000), setting["block_size"], setting["queue_depth"]]
        if program == "engine":
            words.append(setting["intra_op_parallelism"])
        else:
            words[-1] *= setting["intra_op_parallelism"]
        print(*words, file=self.process.stdin, flush=True)
        return tuple(map(float, self.answer().split()))

    def fio(self, work, setting, seconds):
        jobs = setting["intra_op_parallelism"]
        share = self.size // jobs // setting["block_size"] * setting["block_size"]
        pattern = [f"--rw={work}"] if work in ("read", "write") else ["--rw=rw", f"--rwmixread={work}"]
        done = subprocess.run(["fio", "--name=dslaunch", f"--filename={self.path}", "--allow_file_create=0", f"--size={share}",
                               f"--offset_increment={share}", *pattern, f"--bs={setting['block_size']}", "--direct=1",
                               f"--numjobs={jobs}", f"--runtime={int(seconds * 1000)}ms", "--time_based", "--thread",
                               "--group_reporting", "--ioengine=io_uring", "--fixedbufs=1",
                               f"--iodepth={setting['queue_depth']}", "--output-format=json"], capture_output=True, text=True)
        if done.returncode:
            report.fail(74, f"fio ended with {done.returncode}: {done.stderr.strip()}")
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        return job["read"]["bw_bytes"], job["write"]["bw_bytes"]

    def best_setting(self, program, work, seconds, settings=None):
        return max(settings or SETTINGS, key=lambda setting: sum(self.measure(program, work, setting, seconds)))


def own_setting(bin_dir, directory, seconds, env):
    """What `dslaunch bench io` finds: its JSON document."""
    command = [report.program(bin_dir, "dslaunch"), "bench", "io", "--dir", directory, "--seconds", str(seconds), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        report.fail(done.returncode, f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def describe(setting):
    return (f"{setting['block_size'] >> 10} KiB × {setting['queue_depth']}"
            + (f" × {setting['intra_op_parallelism']} threads" if setting["intra_op_parallelism"] > 1 else ""))
