#!/usr/bin/env python3
"""Checks that names which the tree has given up for the field's terms do not come back, in identifiers and file names.

usage: check_words.py [ROOT]     exit status 1 and one line a problem, FILE:LINE: what"""
import os
import re
import sys

FOLDERS = ("apps", "bench", "kernels", "lib", "tests", "tools")
SUFFIXES = (".cpp", ".hpp", ".cu", ".cuh", ".py")

# Retired identifier -> what it is called now. Plain words that mean other things elsewhere are not listed.
RETIRED = {
    "Attempts": "RestartLoop", "BetweenAttempts": "RestartSignalGuard",
    "CallSurroundings": "ForwardContext", "EndExplainer": "ExitDiagnostics", "ExecMaker": "ExecPlanner",
    "FailureLatch": "AbortFlag", "FirstPass": "RecomputeForward", "FolderShare": "CheckpointStorageTopology",
    "HangWatch": "Watchdog", "HollowArchive": "SparseArchiveWriter", "HostCopies": "HostStagingBuffers",
    "JobCourse": "JobLifecycle", "JobField": "LaunchContext", "JobMaker": "JobPlanner", "LastWords": "OutputTail",
    "LateWatch": "CollectiveTimeout", "LineFolder": "LineDeduplicator", "LockStep": "CollectiveOrder",
    "Parcel": "TransferBuffer", "Pulse": "HeartbeatMonitor", "RankBoard": "RankRegistry", "RunMaker": "TrainPlanner",
    "ScopeEnd": "ScopeExit", "StepStarts": "StepSnapshots", "WayCut": "Interrupted", "WayFailed": "ConnectError",
    "WayToNode0": "MasterEndpoint", "WholeGradients": "BucketedAllReduce",
    "answer_slip": "on_leftover_args", "failure_without_a_word": "unreported_failure",
    "forget_gradients": "release_gradients", "give_up_readers": "drop_slow_readers",
    "go_to_node_0": "connect_to_master", "heeded": "accepts_messages", "job_sweep": "process_cleanup",
    "kAgain": "kRecompute", "kAwaitCulprit": "kAwaitRootCause", "leave_unread": "pause_reading",
    "look_ahead": "analyze", "machine_error": "resource_error", "meet_all": "store_barrier", "misuse": "usage_error",
    "own_fault": "local_error", "parenthood": "process_tree", "patient_poll": "epoll_backoff",
    "refuse_what_is_for_later": "reject_unsupported", "refused_thread": "thread_error",
    "remote_pieces": "shard_exchange", "side_by_side": "parallel_for_each",
    "skip_once_broken": "skip_after_nonfinite", "spares_output": "discards_output", "start_trouble": "spawn_error",
    "sweep_job": "cleanup_job", "sweep_nodes": "cleanup_nodes", "take_over_state": "load_state_from",
    "tell_story": "format_summary", "tell_troubles": "report_errors", "usual_place": "canonical_order",
    "visible_time": "fs_visibility_timeout", "whole_number": "parse_int", "word_of_failure": "failure_message",
}
NAMES = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(sorted(RETIRED)) + r")_?(?![A-Za-z0-9_])")
CONSTANTS = re.compile(r"(?<![A-Za-z0-9_])k(?:(Most|Longest|Usual)(?=[A-Z])\w*|\w*(Patience))(?![A-Za-z0-9_])")
NOW = {"Most": "kMax...", "Longest": "kMax...", "Usual": "kDefault...", "Patience": "k...Timeout"}


def sources(root):
    for top in FOLDERS:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below[:] = [name for name in below if name not in ("__pycache__", "data")]
            for name in sorted(names):
                if name.endswith(SUFFIXES) and name not in ("check_words.py", "test_check_words.py"):
                    yield os.path.join(folder, name)


def retired(root):
    for path in sources(root):
        shown = os.path.relpath(path, root)
        stem = os.path.splitext(os.path.basename(path))[0].removesuffix("_test")
        if stem in RETIRED:
            yield f"{shown}:1: the file's name is retired: {RETIRED[stem]}"
        with open(path, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                for found in NAMES.finditer(line):
                    yield f"{shown}:{number}: '{found[1]}' is retired: {RETIRED[found[1]]}"
                for found in CONSTANTS.finditer(line):
                    yield f"{shown}:{number}: '{found[0]}' is retired: {NOW[found[1] or found[2]]}"


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    problems = list(retired(root))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
