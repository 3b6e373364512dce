#!/usr/bin/env python3
"""Checks that words which the tree has given up for the field's terms do not come back: in identifiers and file names,
in messages (string literals of the programs and tools) and in headings of the documentation; in the rooms of models
also in comments and in the prose of tests.

Names that users rely on stay; docs/glossary.md lists them under "Names that stay", and exactly those are exempt.

usage: check_words.py [ROOT]     exit status 1 and one line a problem, FILE:LINE: what"""
import os
import re
import sys

FOLDERS = ("apps", "bench", "kernels", "lib", "tests", "tools")
SUFFIXES = (".cpp", ".hpp", ".cu", ".cuh", ".py")

# Retired identifier -> what it is called now. Plain words that mean other things elsewhere are not listed.
RETIRED = {
    "Attempts": "RestartLoop", "BetweenAttempts": "RestartSignalGuard", "BorrowedInPlace": "ExternalParametersScope",
    "CallSurroundings": "ForwardContext", "CheckpointFolder": "CheckpointDirectory", "CyclePlace": "CyclePosition",
    "EndExplainer": "ExitDiagnostics", "ExecMaker": "ExecPlanner", "FailureLatch": "AbortFlag",
    "FirstPass": "RecomputeForward", "FolderLock": "DirectoryLock", "FolderShare": "CheckpointStorageTopology",
    "GradientMoves": "GradientCopies", "HangWatch": "Watchdog", "HollowArchive": "SparseArchiveWriter",
    "HostTransfers": "HostStagingBuffers", "JobCourse": "JobLifecycle", "JobField": "LaunchContext",
    "JobMaker": "JobPlanner", "LastWords": "OutputTail", "LateWatch": "CollectiveTimeout",
    "LineFolder": "LineDeduplicator", "LockStep": "CollectiveOrder", "MadeArray": "GeneratedArray",
    "NewFolders": "CreatedDirectories", "ParameterPlace": "ParameterLocation",
    "ParameterPlaceInGroup": "SegmentLocation", "Parcel": "TransferBuffer", "PlacedPiece": "LocatedPiece",
    "Pulse": "HeartbeatMonitor", "RankBoard": "RankRegistry", "RunMaker": "TrainPlanner",
    "SamplesAgain": "SampleReplay", "ScopeEnd": "ScopeExit", "SkeletonAside": "TemporarySkeleton",
    "StepStarts": "StepSnapshots", "UnitInPlace": "UnitParametersScope", "WayCut": "Interrupted",
    "WayFailed": "ConnectError", "WayToNode0": "MasterEndpoint", "WholeGradients": "BucketedAllReduce",
    "ZipDirectoryPlace": "ZipDirectoryExtent",
    "absent_from": "missing_from", "add_hollow": "add_placeholder", "all_ranks_can_record": "all_ranks_can_capture",
    "answer_slip": "on_leftover_args", "back_to_its_beginning": "restart_from_beginning",
    "begin_again_if_gone": "recreate_if_removed", "begin_micro_step": "begin_accumulation_step",
    "break_all": "abort_all_waits", "break_with": "set_abort_action", "complained_about": "has_error",
    "cut_by_group": "split_by_group", "describe_circle": "describe_deadlock", "draws_a_mask": "samples_mask",
    "driver_is_there": "has_driver", "end_as_sigpipe_does": "exit_as_sigpipe",
    "end_micro_step": "end_accumulation_step", "failure_without_a_word": "unreported_failure",
    "find_frozen_places": "locate_frozen_parameters", "find_places": "locate_parameters",
    "folder_of_step": "directory_of_step", "follow_autocast_regions": "apply_autocast_regions",
    "follow_training_flag": "bind_training_flag", "forget_below": "drop_below",
    "forget_gradients": "release_gradients", "forget_pages": "drop_pages", "forget_places": "clear_positions",
    "forget_save_before": "erase_previous_save", "format_micro_step_times": "format_accumulation_step_times",
    "give_up_readers": "drop_slow_readers", "go_on_from": "continue_from", "go_to_node_0": "connect_to_master",
    "hand_back_changes": "apply_changes", "hear_verdict": "receive_verdict", "heeded": "accepts_messages",
    "holding_wait": "blocking_wait", "holds_host": "blocks_host", "hollow_tensors": "placeholder_tensors",
    "is_for_later": "is_unsupported", "is_lock_stepped": "orders_collectives", "is_one_folder": "is_single_directory",
    "is_owed_at_end": "is_missing_at_end", "is_owed_on_the_way": "is_missing_midway", "job_sweep": "process_cleanup",
    "kAgain": "kRecompute", "kAwaitCulprit": "kAwaitRootCause", "keep_last_step": "write_last_step",
    "keep_secondary": "store_secondary", "last_micro_step": "last_accumulation_step",
    "last_patience": "final_timeout", "leave_unread": "pause_reading", "lies_elsewhere": "is_remote",
    "lock_step_options": "collective_order_options", "look_ahead": "analyze",
    "look_at_checkpoint": "inspect_checkpoint", "machine_error": "resource_error", "make_folder": "make_directory",
    "make_whole_gradients": "make_bucketed_all_reduce", "meant_folder": "resolve_checkpoint_path",
    "meet_all": "store_barrier", "miss_required": "report_missing_required", "misuse": "usage_error",
    "names_of_moving": "mutable_param_names", "note_what_has_no_effect": "note_ineffective_keys",
    "own_fault": "local_error", "parenthood": "process_tree", "patient_poll": "epoll_backoff",
    "place_for": "buffer_for", "places_of": "paths_of_name", "polls_patiently": "backoff_is_active",
    "quiet_wait": "warn_after", "rank_0_says": "decision_of_rank_0", "record_step": "capture_step",
    "recording_obstacle": "capture_obstacle", "refuse_hidden_ways": "reject_side_channel_gradients",
    "refuse_strangers": "reject_unknown_parameters", "refuse_what_is_for_later": "reject_unsupported",
    "refused_thread": "thread_error", "remote_pieces": "shard_exchange", "right_place_of": "correct_path_of",
    "run_folder_of": "run_directory_of", "run_forks_plainly": "disable_optimizer_in_forks",
    "second_pass": "time_recomputation", "set_speaker": "set_prefix", "side_by_side": "parallel_for_each",
    "skip_once_broken": "skip_after_nonfinite", "spares_output": "discards_output",
    "spoken_list": "join_alternatives", "standard_output_is_left": "standard_output_is_closed",
    "start_anew": "reset_generator", "start_trouble": "spawn_error", "step_set_aside": "replaced_step",
    "step_standing_in": "usable_replaced_step", "still_waits": "is_still_waiting", "sweep_job": "cleanup_job",
    "sweep_nodes": "cleanup_nodes", "sync_folder": "sync_directory", "take_cast_off": "remove_cast",
    "take_over_state": "load_state_from", "take_run_folder": "lock_run_directory", "tell_loaded": "report_loaded",
    "tell_story": "format_summary", "tell_the_others": "notify_peers", "tell_troubles": "report_errors",
    "teller": "manifest_sender", "throw_unless_another_may_do": "throw_if_final",
    "to_hear_verdict": "verdict_deadline", "travelling": "shard_senders", "usual_place": "canonical_order",
    "verify_travelling": "verify_sent_shards", "visible_time": "fs_visibility_timeout",
    "waiting_for_each_other": "find_deadlocked", "what_it_does": "describe_activity", "whole_number": "parse_int",
    "with_a_moment": "with_minimum_time", "word_of_failure": "failure_message", "write_again": "rewrite_last",
    "writing_folder": "writing_directory",
    # of the rooms of models
    "CutProducts": "fuse_linear_cuts", "ProductOptions": "GemmOptions", "RegionFunctions": "FusionFunctions",
    "RegionKernel": "FusionExecutor", "RegionProgram": "FusionProgram", "RegionServices": "FusionServices",
    "WeightProduct": "WeightGemm", "cut_products": "fuse_linear_cuts", "fused_operators": "layers",
    "handed_on": "detached, passthrough", "is_handed_on": "is_passthrough", "is_region_operator": "is_fusible",
    "kCutProducts": "kCutGemms", "kOwnProducts": "kOwnGemms", "kPlainProducts": "kPlainGemms", "kProduct": "kGemm",
    "region_derivative": "autodiff", "region_finder": "segmenter",
    "region_functions": "fusion_functions", "region_operator": "fused_operator", "region_program": "program",
    "region_services": "services", "region_source": "codegen", "take_product": "take_gemm",
    "weight_product": "weight_gemm",
}
NAMES = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(sorted(RETIRED)) + r")_?(?![A-Za-z0-9_])")
CONSTANTS = re.compile(r"(?<![A-Za-z0-9_])k(?:(Most|Longest|Usual)(?=[A-Z])\w*|\w*(Patience))(?![A-Za-z0-9_])")
NOW = {"Most": "kMax...", "Longest": "kMax...", "Usual": "kDefault...", "Patience": "k...Timeout"}

# Words that no identifier of the programs has as a part -> what to say instead.
RETIRED_PARTS = {
    "folder": "directory", "folders": "directories", "hollow": "placeholder", "judge": "classify",
    "judgement": "verdict", "parcel": "transfer buffer", "patience": "timeout", "settle": "resolve, finalize, wait",
    "settled": "resolved, final", "story": "summary", "stranger": "unknown peer", "teller": "sender",
    "torn": "incomplete", "travelling": "sent", "trouble": "error", "troubles": "errors",
}
PART = re.compile(r"[A-Z]?[a-z]+")

# Phrases that no message and no heading has: a regular expression between word boundaries -> what to say instead.
RETIRED_PHRASES = {
    r"folders?": "directory", r"torn": "incomplete", r"anew": "again", r"afresh": "from scratch",
    r"once more": "again", r"(?:stood|stands?) still": "is blocked", r"standstill": "blocked",
    r"in vain": "timed out waiting for", r"(?:goes|go|went) on": "continues", r"going back": "falling back",
    r"(?<!there )(?:is|are|was|were) no(?= (?!longer|more|such))": "is not a", r"that (?:one|other)": "name the thing",
    r"went away": "disconnected", r"(?:nobody|somebody|no one)": "no process", r"at work": "in use, running",
    r"(?:says?|said) nothing": "does not report", r"without a word": "without a report",
    r"(?:takes?|took) nothing": "stopped accepting data", r"not come": "not arrived",
    r"not told": "timed out waiting for", r"micro steps?": "micro batch, accumulation step",
}
PHRASE = re.compile(r"\b(" + "|".join(RETIRED_PHRASES) + r")\b", re.IGNORECASE)

# In the rooms of models comments are checked too, and the prose of their tests; these words are not there either.
MODEL_ROOMS = ("lib/runtime/device/", "lib/runtime/model/", "tests/gpu/", "tests/unit/runtime/device/",
               "tests/unit/runtime/model/")
RETIRED_IN_MODELS = {
    r"products?": "GEMM", r"region finders?": "segmenter", r"carv(?:e|es|ed|ing)": "extract",
    r"(?:hand|hands|handed|handing) (?:\w+ ){0,2}on": "pass through",
}
# Of a namespace or a type, also in code.
RETIRED_IN_MODEL_CODE = {
    r"(?<!jit::)\b(?:regions|fused|script)::": "fusion, layers, torchscript", r"\bPlace\b": "name what it is",
    r"\bkSpread\b": "kBroadcast",
}

# What a C++ or Python source is made of, as far as strings and identifiers are told from comments.
CPP = re.compile(r'//[^\n]*|/\*.*?\*/|#include[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*'
                 r"|(?<!\w)'(?:\\.|[^'\\\n])+'|[A-Za-z_]\w*", re.DOTALL)
PYTHON = re.compile(r'#[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"(?:\s*f?"(?:\\.|[^"\\\n])*")*|[A-Za-z_]\w*', re.DOTALL)


def sources(root):
    for top in FOLDERS:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below[:] = [name for name in below if name != "__pycache__"]
            if os.path.relpath(folder, root) == os.path.join("tests", "data"):
                below.clear()
                continue
            for name in sorted(names):
                if name.endswith(SUFFIXES) and name not in ("check_words.py", "test_check_words.py"):
                    yield os.path.join(folder, name)


def names_that_stay(root):
    """The names in the first column of the table under "Names that stay"."""
    try:
        with open(os.path.join(root, "docs", "glossary.md"), encoding="utf-8") as page:
            section = page.read().partition("\n## Names that stay\n")[2].partition("\n## ")[0]
    except FileNotFoundError:
        return set()
    first_cells = [row.split("|")[1] for row in section.split("\n") if row.startswith("| `")]
    return {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}


def names_in(shown, text):
    stem = os.path.splitext(os.path.basename(shown))[0].removesuffix("_test")
    if stem in RETIRED:
        yield 1, f"the file's name is retired: {RETIRED[stem]}"
    for number, line in enumerate(text.split("\n"), 1):
        for found in NAMES.finditer(line):
            yield number, f"'{found[1]}' is retired: {RETIRED[found[1]]}"
        for found in CONSTANTS.finditer(line):
            yield number, f"'{found[0]}' is retired: {NOW[found[1] or found[2]]}"


def parts_in(shown, text):
    stem = os.path.splitext(os.path.basename(shown))[0]
    for part in retired_parts(stem):
        yield 1, f"the file's name has the retired word '{part}': {RETIRED_PARTS[part]}"
    for found in CPP.finditer(text):
        if found[0][0].isalpha() and '"' not in found[0]:
            for part in retired_parts(found[0]):
                yield text.count("\n", 0, found.start()) + 1, \
                    f"'{found[0]}' has the retired word '{part}': {RETIRED_PARTS[part]}"


def retired_parts(name):
    return [part.lower() for part in PART.findall(name) if part.lower() in RETIRED_PARTS]


def messages_in(text, language, stay):
    for found in language.finditer(text):
        if '"' not in found[0] or found[0].startswith(("//", "/*", "#")):
            continue
        message = re.sub(r'"\s*f?"', "", found[0]).strip('"')
        if message in stay:
            continue
        for phrase in phrases_in(message):
            yield text.count("\n", 0, found.start()) + 1, f"a message says {phrase}"


def phrases_in(text):
    for found in PHRASE.finditer(text):
        instead = next(what for phrase, what in RETIRED_PHRASES.items()
                       if re.fullmatch(phrase.partition("(?= ")[0], found[0], re.IGNORECASE))
        yield f"'{found[0]}': {instead}"


def model_words_in(shown, text):
    for pattern, instead in RETIRED_IN_MODEL_CODE.items():
        for found in re.finditer(pattern, text):
            yield text.count("\n", 0, found.start()) + 1, f"'{found[0]}' is retired: {instead}"
    for found in CPP.finditer(text):
        is_comment = found[0].startswith(("//", "/*"))
        if not is_comment and not (shown.startswith("tests/") and found[0].startswith('"')):
            continue
        place, number = "a comment" if is_comment else "a test", text.count("\n", 0, found.start()) + 1
        yield from ((number, f"{place} says {phrase}") for phrase in phrases_in(found[0]))
        for pattern, instead in RETIRED_IN_MODELS.items():
            for word in re.finditer(rf"(?<![\w/`]){pattern}(?![\w`])", found[0], re.IGNORECASE):
                yield number, f"{place} says '{word[0]}': {instead}"


def headings(root):
    pages = [os.path.join(root, "README.md")]
    if os.path.isdir(os.path.join(root, "docs")):
        pages += sorted(os.path.join(root, "docs", name) for name in os.listdir(os.path.join(root, "docs")))
    for path in pages:
        if path.endswith(".md") and os.path.isfile(path):
            with open(path, encoding="utf-8") as page:
                yield from ((path, number, line) for number, line in enumerate(page, 1) if line.startswith("#"))


def problems(root):
    stay = names_that_stay(root)
    for path in sources(root):
        shown = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        found = list(names_in(shown, text))
        if shown.startswith(("apps/", "kernels/", "lib/")):
            found += list(parts_in(shown, text)) + list(messages_in(text, CPP, stay))
        elif shown.startswith("tools/"):
            found += list(messages_in(text, PYTHON, stay))
        if shown.startswith(MODEL_ROOMS) and shown.endswith((".cpp", ".hpp")):
            found += list(model_words_in(shown, text))
        yield from (f"{shown}:{number}: {what}" for number, what in sorted(found))
    for path, number, line in headings(root):
        yield from (f"{os.path.relpath(path, root)}:{number}: a heading says {phrase}" for phrase in phrases_in(line))


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    found = list(problems(root))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
