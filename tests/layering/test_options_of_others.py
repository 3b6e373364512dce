"""Options that people bring from transformers' Trainer and `accelerate launch`: each is answered, and what the answer says to
write is accepted. Their names are read from the sources of the packages, as far as they are here."""
import ast
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import model_packages  # noqa: E402

BIN = os.environ["DSLAUNCH_BIN"]
# Of releases before those that are here.
OLDER = ("overwrite_output_dir evaluation_strategy evaluate_during_training per_gpu_train_batch_size per_gpu_eval_batch_size "
         "logging_dir no_cuda fp16_opt_level half_precision_backend fp16_backend save_safetensors group_by_length adafactor "
         "sharded_ddp use_ipex use_mps_device jit_mode_eval torchdynamo ray_scope include_inputs_for_metrics split_batches "
         "tpu_num_cores past_index push_to_hub_model_id include_tokens_per_second warmup_ratio ddp_backend")
VALUES = {"optim": "adamw", "lr_scheduler_type": "cosine", "fp16_opt_level": "O2", "metric_for_best_model": "loss",
          "adafactor": "True", "greater_is_better": "False", "offload_optimizer_device": "cpu", "offload_param_device": "cpu",
          "label_names": "labels", "zero_stage": "2", "logging_dir": "logs", "run_name": "a", "learning_rate": "1e-4"}
# Options of dslaunch itself, with the meaning they have there.
OWN = {"seed", "debug", "log_dir", "max_restarts", "tee", "quiet", "role", "module", "no_python", "monitor_interval", "rdzv_backend",
       "rdzv_conf", "help", "local_rank", "deepspeed", "nproc_per_node", "env"}


def fields_of_trainer(folder):
    """The annotated members of TrainingArguments and Seq2SeqTrainingArguments."""
    for file in ("training_args.py", "training_args_seq2seq.py"):
        with open(os.path.join(folder, "transformers", file)) as source:
            for node in ast.parse(source.read()).body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("TrainingArguments"):
                    yield from (each.target.id for each in node.body if isinstance(each, ast.AnnAssign))


def options_of_accelerate(folder):
    with open(os.path.join(folder, "accelerate/commands/launch.py")) as source:
        for node in ast.walk(ast.parse(source.read())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = [word.value for word in node.args if isinstance(word, ast.Constant) and str(word.value).startswith("--")]
                yield from (name[2:].replace("-", "_") for name in names[-1:])


def run(words):
    return subprocess.run([os.path.join(BIN, "dslaunch"), "--device", "cpu", *words, "nowhere.pt"], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)


def main():
    folder = model_packages.folder()
    names = set(OLDER.split())
    if model_packages.WHY_NOT is None:
        names |= set(fields_of_trainer(folder)) | set(options_of_accelerate(folder))
        assert {"eval_strategy", "hub_token", "num_machines", "fsdp_offload_params"} <= names, names
    names = sorted(names - OWN)
    given = [word for name in names for word in ("--" + name, VALUES.get(name, "3"))]
    answers = {}
    for line in run(given).stderr.splitlines():
        if found := re.search(r"error: --(\w+)\b(.*)", line):
            answers[found[1]] = found[2]
    wrong = [f"--{name} is not answered" for name in names if name not in answers]
    for name, answer in answers.items():
        suggested = re.search(r"(--set .*)$|is (--\w+ \S+) here$", answer)
        if not suggested:
            continue
        words = shlex.split(suggested[1] or suggested[2])
        outcome = run(words)
        if outcome.returncode not in (0, 66):  # 66: the model, or the file that a path names, is not there
            wrong.append(f"--{name} is answered with {words}: exit {outcome.returncode}: {outcome.stderr}")
    print("\n".join(wrong), f"\n{len(names)} options")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
