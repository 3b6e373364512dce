"""tools/export in the process of a test: directories as save_pretrained writes them, and what is exported of them."""
import atexit
import contextlib
import io
import json
import os
import sys
import unittest
import warnings

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import pooled  # noqa: E402

LENGTH, VOCABULARY = hugging_face.LENGTH, hugging_face.VOCABULARY
# Directories as save_pretrained writes them: (architecture, class, dtype).
SAVED = {"gpt2": ("gpt2", "AutoModelForCausalLM", torch.float32),
         "llama": ("llama", "AutoModelForCausalLM", torch.float32),
         "llama-bf16": ("llama", "AutoModelForCausalLM", torch.bfloat16),
         "mixtral": ("mixtral", "AutoModelForCausalLM", torch.float32),
         "bert": ("bert", "AutoModelForMaskedLM", torch.float32),
         "t5": ("t5", "AutoModelForSeq2SeqLM", torch.float32),
         "vit": ("vit", "AutoModelForImageClassification", torch.float32),
         "whisper": ("whisper", "AutoModelForSpeechSeq2Seq", torch.float32)}
LORA = '{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}'


def config_of(name):
    entries = dict(hugging_face.CONFIGS[name])
    if name == "bert":
        del entries["attention_dropout"]  # no entry of its config, which transformers does not mind
    return entries


def built(name, kind):
    import transformers

    config = transformers.AutoConfig.for_model(name, **config_of(name))
    return getattr(transformers, kind).from_config(config)


class SharedEnv(pooled.PoolEnv):
    """Of all classes of a process."""

    def close(self):
        """At its end."""


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class ExportTest(pooled.PooledTest):
    """Exports in this process, from directories that are made once; what was asked for before is not exported again."""

    shared, exported = None, {}

    @classmethod
    def make_env(cls):
        if ExportTest.shared is None:
            ExportTest.shared = SharedEnv(cls.parent_folder)
            atexit.register(pooled.PoolEnv.close, ExportTest.shared)
        return ExportTest.shared

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()

    def directory(self, name):
        path = self.env.path("saved", name)  # the names alone are those of architectures
        if not os.path.exists(path):
            architecture, kind, dtype = SAVED[name]
            torch.manual_seed(3)
            built(architecture, kind).to(dtype).save_pretrained(path)
        return path

    def say(self, *arguments):
        """(exit code, what the tool says)"""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.chdir(self.env.folder):
            try:
                self.env.tool.main(list(arguments))
            except self.env.tool.Failure as failure:
                return failure.code, str(failure)
        return 0, said.getvalue()

    def export(self, *arguments):
        """(path, traced module, metadata); the file is not to be changed."""
        if arguments not in self.exported:
            path = self.env.path(f"export{len(self.exported)}.pt")
            code, text = self.say(*arguments, path)
            self.assertEqual(code, 0, text)
            self.exported[arguments] = path
        path, files = self.exported[arguments], {"dslaunch.json": ""}
        traced = torch.jit.load(path, _extra_files=files)
        return path, traced, json.loads(files["dslaunch.json"])

    def assert_close(self, got, want, bound=1e-5):
        self.assertEqual(got.shape, want.shape)
        self.assertLessEqual((got.double() - want.double()).abs().max().item(), bound * max(1.0, want.abs().max().item()))
