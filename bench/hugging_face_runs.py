"""Training of models as people have them on one GPU, ours on their traces and PyTorch on the modules, for the scripts of
this folder."""
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from random import Random

import bench_report as report
import gpu_run

# architecture, its configuration, micro batch, sequence, vocabulary
MODELS = {
    "gpt2": ("gpt2", {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50304, "resid_pdrop": 0,
                      "embd_pdrop": 0, "attn_pdrop": 0}, 16, 1024, 50304),
    "llama": ("llama", {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32,
                        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 2048}, 8, 1024, 32000),
    "qwen2": ("qwen2", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                        "num_key_value_heads": 2, "vocab_size": 32768, "max_position_embeddings": 2048}, 8, 1024, 32768),
    "bert": ("bert", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                      "vocab_size": 30522, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}, 32, 512, 30522),
    "bert-padded": ("bert", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                             "vocab_size": 30522, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}, 32, 512, 30522),
    "phi3": ("phi3", {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16,
                      "num_key_value_heads": 16, "vocab_size": 32064, "max_position_embeddings": 2048, "pad_token_id": 0}, 8, 1024, 32064),
    "gemma": ("gemma", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 8,
                        "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 32768, "max_position_embeddings": 2048}, 8, 1024, 32768),
    "gpt_neox": ("gpt_neox", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
                              "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_dropout": 0, "attention_dropout": 0},
                 8, 1024, 50304),
    "mixtral": ("mixtral", {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
                            "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
                            "max_position_embeddings": 2048}, 8, 1024, 32000),
    "qwen3_moe": ("qwen3_moe", {"hidden_size": 1024, "moe_intermediate_size": 512, "num_hidden_layers": 8, "head_dim": 64,
                                "num_attention_heads": 16, "num_key_value_heads": 8, "num_experts": 32, "num_experts_per_tok": 8,
                                "vocab_size": 32000, "max_position_embeddings": 2048}, 8, 1024, 32000),
    "gpt-163m": ("", {}, 16, 1024, gpu_run.VOCABULARY),
    "gpt-1.4b": ("", {}, 8, 1024, gpu_run.VOCABULARY),
}
PEER = os.path.join(report.ROOT, "bench/peers/train_hugging_face.py")


class Bench:
    """args: those of Runner, steps, warm (steps that are not counted) and set (KEY=VALUE of dslaunch's config). `gpu`: its
    number; None: the first one. `samples`: (name, number of samples) -> {argument or labels: numbers of all samples}."""

    def __init__(self, args, folder, gpu=None, samples=None):
        self.args, self.folder, self.samples = args, folder, samples or random_samples
        self.runner = gpu_run.Runner(args, folder)
        if gpu is not None:
            self.runner.env["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.python, self.env = self.runner.python, self.runner.env

    def saved(self, name):
        """What the peers load."""
        architecture, config, *_ = MODELS[name]
        if not architecture:
            return name
        path = os.path.join(self.folder, f"{name}.saved")
        if not os.path.exists(path):
            head = "masked-lm" if architecture == "bert" else "causal-lm"
            report.checked([self.python, PEER, "save", architecture, "--config", json.dumps(config), "--head", head, "--out", path],
                           env=self.env, timeout=300)
        return path

    def model(self, name):
        if not MODELS[name][0]:
            return self.runner.model(name)
        path = os.path.join(self.folder, f"{name}.pt")
        if not os.path.exists(path):
            inputs = ["--inputs", "input_ids,attention_mask"] if name == "bert-padded" else []
            report.checked([self.python, os.path.join(report.ROOT, "tools/export"), "--hf", self.saved(name), *inputs, path],
                           env=self.env, timeout=300)
        return path

    def data(self, name):
        _, _, micro, sequence, _ = MODELS[name]
        path, count = os.path.join(self.folder, f"{name}.safetensors"), micro * self.args.steps
        if not os.path.exists(path):
            write_safetensors(path, self.samples(name, count), [count, sequence])
        return path

    def config(self, name):
        path = os.path.join(self.folder, f"{name}.json")
        with open(path, "w") as file:
            json.dump({"train_micro_batch_size_per_gpu": MODELS[name][2], "bf16": {"enabled": True}, "gradient_clipping": 1.0,
                       "zero_optimization": {"stage": 1, "overlap_comm": True},
                       "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}}, "data": {"shuffle": False},
                       "checkpoint": {"at_end": False}}, file)
        return path

    def job(self, name, settings):
        """Arguments of dslaunch's commands: what is trained, and how."""
        return ["--device", "cuda", "--config", self.config(name), "--data", self.data(name),
                *(part for setting in [*self.args.set, *settings] for part in ("--set", setting)), self.model(name)]

    def ours(self, name, settings=()):
        run_dir = os.path.join(self.folder, f"{name}-{time.monotonic_ns()}")
        command = [self.runner.dslaunch, "--num_gpus", "1", "--run_dir", run_dir, "--steps", str(self.args.steps),
                   *self.job(name, settings)]
        first_step_s = self.seconds_to_first_step(command, run_dir)
        with open(os.path.join(run_dir, "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        return {"step_ms": [row["step_ms"] for row in rows[self.args.warm:]], "loss": [row["loss"] for row in rows],
                "gpu_mem_bytes": max(row.get("gpu_mem_bytes") or 0 for row in rows), "first_step_s": first_step_s}

    def profile(self, name, settings=()):
        """The text of dslaunch bench step."""
        return report.checked([self.runner.dslaunch, "bench", "step", "--warmup", "8", "--steps", "8", *self.job(name, settings)],
                              env=self.env, timeout=300)

    def seconds_to_first_step(self, command, run_dir):
        """Runs the command to its end."""
        metrics = os.path.join(run_dir, "metrics.jsonl")
        with open(run_dir + ".log", "w+") as log:
            began = time.monotonic()
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.env, stdin=subprocess.DEVNULL)
            while not (os.path.exists(metrics) and os.path.getsize(metrics)) and process.poll() is None:
                time.sleep(0.01)
            seconds = time.monotonic() - began
            process.wait(timeout=300)
            log.seek(0)
            text = log.read()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{text[-4000:]}")
        print(text, file=sys.stderr)
        return seconds

    def prepare(self, name):
        self.model(name)
        self.data(name)

    def peer(self, name, kind):
        return Peer(self, name, kind)


class Peer:
    """A PyTorch program that trains once at the start and once more with each `train`; what it compiled stays."""

    def __init__(self, bench, name, kind):
        precision, mode = kind.split("+")
        recipe = precision.removeprefix("torchao-")
        in_fp8 = [] if recipe == precision else ["--float8", recipe]
        weights = [] if MODELS[name][0] else ["--weights", bench.model(name)]
        self.args, self.log = bench.args, tempfile.TemporaryFile("w+", dir=bench.folder)
        self.process = subprocess.Popen(
            [bench.python, PEER, "train", "--model", bench.saved(name), *weights, "--data", bench.data(name), "--micro",
             str(MODELS[name][2]), "--steps", str(bench.args.steps), "--precision", "masters" if in_fp8 else precision, "--compile",
             mode, *in_fp8],
            env=bench.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.results = [self.read()]

    def train(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.results.append(self.read())

    def train_again(self):
        self.train()
        return self

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            raise RuntimeError(f"{self.process.args} ended with {self.process.returncode}:\n{self.log.read()[-4000:]}")
        result = json.loads(line)
        return {**result, "step_ms": result["step_ms"][self.args.warm:]}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def random_samples(name, count):
    """A label is a function of its token, so that losses fall and say something when they are compared."""
    _, _, _, sequence, vocabulary = MODELS[name]
    random = Random(0)
    tokens = random.choices(range(vocabulary), k=count * sequence)
    arrays = {"input_ids": array("q", tokens), "labels": array("q", [(5 * token + 7) % vocabulary for token in tokens])}
    if name == "bert-padded":
        lengths = [random.randint(sequence // 2, sequence) for _ in range(count)]
        arrays["attention_mask"] = array("q", [int(i < length) for length in lengths for i in range(sequence)])
        arrays["labels"] = array("q", [label if counts else -100 for label, counts
                                       in zip(arrays["labels"], arrays["attention_mask"])])
    return arrays


def write_safetensors(path, arrays, shape):
    header, offset = {}, 0
    for name, values in arrays.items():
        size = len(values) * values.itemsize
        header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header)
    text += " " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text.encode())
        for values in arrays.values():
            values.tofile(file)
