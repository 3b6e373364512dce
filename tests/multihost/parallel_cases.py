"""Runs the cases of a test program on several clusters at once, each in a process of its own: most of a case's time is
waiting. `main(...)` is the end of every test program here; it skips with a word on machines that cannot do it."""
import multiprocessing
import os
import signal
import sys
import time
import traceback
import unittest

import isolation
import netns

SKIPPED = 77
CASE_LIMIT_S = 100  # a case that hangs is told with its traceback, before ctest ends all of them
REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def visible_paths():
    """What hosts must see although it may lie in a home or in /tmp: sources, programs, Python, LibTorch."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    paths = [REPO, os.environ["DSLAUNCH_BIN"], sys.base_prefix, sys.prefix, f"{cache}/dslaunch/torch-2.11.0"]
    return [os.path.realpath(path) for path in paths]


def skip(name, reason):
    print(f"{name}: SKIPPED: {reason}", flush=True)
    sys.exit(SKIPPED)


def long_running(method):
    """Mostly waits; such cases are begun first."""
    method.long_running = True
    return method


class _Result(unittest.TestResult):
    """What became of one case, as text."""

    def __init__(self):
        super().__init__()
        self.problems, self.skip_reason = [], None

    def _note(self, error):
        self.problems.append("".join(traceback.format_exception(*error)))

    def addError(self, test, err):
        self._note(err)

    def addFailure(self, test, err):
        self._note(err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.problems.append(f"{subtest}\n" + "".join(traceback.format_exception(*err)))

    def addSkip(self, test, reason):
        self.skip_reason = reason


def _all_cases(module, names):
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)

    def flat(item):
        return [case for part in item for case in flat(part)] if isinstance(item, unittest.TestSuite) else [item]

    return sorted(flat(suite), key=lambda case: not getattr(getattr(case, case._testMethodName, None), "long_running", False))


def _too_late(*_):
    raise TimeoutError(f"the case ran for more than {CASE_LIMIT_S} s")


def _work(cases, make_cluster, tasks, results):
    """Takes case after case and runs them on one cluster."""
    signal.signal(signal.SIGALRM, _too_late)
    try:
        with make_cluster() as cluster:
            while (number := tasks.get()) is not None:
                case, result, began = cases[number], _Result(), time.monotonic()
                case.cluster = cluster
                signal.alarm(CASE_LIMIT_S)
                case.run(result)
                signal.alarm(0)
                results.put((number, time.monotonic() - began, result.problems, result.skip_reason))
    except BaseException:  # the parent tells it
        results.put((None, 0, [traceback.format_exc()], None))


def _run_all(cases, make_cluster, workers):
    tasks, results = multiprocessing.Queue(), multiprocessing.Queue()
    for number in [*range(len(cases)), *[None] * workers]:
        tasks.put(number)
    processes = [multiprocessing.Process(target=_work, args=(cases, make_cluster, tasks, results)) for _ in range(workers)]
    for process in processes:
        process.start()
    failed, done = [], 0
    while done < len(cases):
        number, seconds, problems, skip_reason = results.get()
        name = cases[number].id().split(".", 1)[1] if number is not None else "a worker process"
        word = "FAILED" if problems else f"skipped: {skip_reason}" if skip_reason else "ok"
        print(f"{seconds:6.2f} s  {name}: {word}", flush=True)
        for problem in problems:
            print("    " + problem.rstrip().replace("\n", "\n    "), flush=True)
        if problems:
            failed.append(name)
        if number is None:
            break  # the others may wait for ever
        done += 1
    for process in processes:
        if done < len(cases):
            process.terminate()
        process.join()
    return failed


def main(name, make_cluster, needed_programs, workers, begin=lambda: None):
    """make_cluster(keep) gives the cluster; begin() is called once, in the world of the test, before the first case.
    Options of the program: names of cases (Class.method); -j N."""
    if not os.access(os.path.join(os.environ.get("DSLAUNCH_BIN", ""), "dslaunch"), os.X_OK):
        sys.exit(f"{name}: DSLAUNCH_BIN has to be the folder of dslaunch")
    if os.geteuid() != 0:
        skip(name, "hosts are network namespaces, which need root; run it as root")
    missing = netns.missing_programs(needed_programs)
    if missing:
        skip(name, f"these programs are not installed: {', '.join(missing)} (scripts/setup installs them)")
    arguments = sys.argv[1:]
    if arguments[:1] == ["-j"]:
        workers, arguments = int(arguments[1]), arguments[2:]
    keep = visible_paths()
    try:
        isolation.enter_private_world()
        isolation.cover("/tmp", keep)
        os.environ["TMPDIR"] = "/tmp"
        with make_cluster(keep=list(keep)):
            pass  # bridges, mounts and device files may be forbidden where namespaces are not
    except (isolation.NotPossible, PermissionError) as error:
        skip(name, f"no hosts can be made on this machine: {error}")
    cases = _all_cases(sys.modules["__main__"], arguments)
    begin()
    began = time.monotonic()
    failed = _run_all(cases, lambda: make_cluster(keep=list(keep)), min(workers, len(cases)))
    print(f"{name}: {len(cases)} cases on {workers} clusters in {time.monotonic() - began:.1f} s, {len(failed)} failed"
          + "".join(f"\n  {one}" for one in failed), flush=True)
    sys.exit(1 if failed else 0)
