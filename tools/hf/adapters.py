"""--peft: adapters of the package peft. Only they are trained; peft itself freezes the rest."""
import inspect
import json
import os

from failure import Failure, first_lines, suggestion
from hf.source import ADAPTER
from python_packages import import_package

TASKS = {"causal": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM", "sequence-classification": "SEQ_CLS",
         "token-classification": "TOKEN_CLS", "question-answering": "QUESTION_ANS"}
NAME = "default"  # of the adapter inside the model; it is in no file


def add(model, head, given):
    """`given`: a directory or a hub id of an adapter, or a config as JSON."""
    peft = import_package("peft", "--peft")
    try:
        if given.lstrip().startswith("{"):
            config = new_config(peft, head, given)
            return peft.get_peft_model(model, config, adapter_name=NAME, autocast_adapter_dtype=False)
        if os.path.isdir(given) and not os.path.exists(os.path.join(given, ADAPTER)):
            raise Failure(65, f"the directory '{given}' has no {ADAPTER}, so it is not an adapter of peft")
        return peft.PeftModel.from_pretrained(model, given, adapter_name=NAME, is_trainable=True,
                                              autocast_adapter_dtype=False)
    except Failure:
        raise
    except Exception as error:
        raise Failure(65, f"the adapter '{given}' does not fit: {first_lines(error)}")


def new_config(peft, head, text):
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise Failure(64, f"--peft must be a directory or JSON: {error}")
    kind = entries.pop("peft_type", "LORA")
    known = peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING
    if kind not in known:
        raise Failure(65, f"peft {peft.__version__} knows no peft_type '{kind}' ({', '.join(sorted(known))})")
    fields = inspect.signature(known[kind]).parameters
    for name in entries:
        if name not in fields:
            raise Failure(65, f"--peft: {known[kind].__name__} has no entry '{name}'" + suggestion(name, list(fields)))
    return known[kind](**{"task_type": TASKS.get(head), **entries})


def describe(model):
    """For the file's metadata: peft's own config, and under which name its files have each adapter tensor."""
    import peft

    config = model.peft_config[NAME].to_dict()
    config = json.loads(json.dumps(config, default=lambda value: sorted(value) if isinstance(value, set) else str(value)))
    parameters = dict(model.named_parameters())
    saved = peft.get_peft_model_state_dict(model, state_dict=parameters, adapter_name=NAME, save_embedding_layers=False)
    names = {id(value): name for name, value in saved.items()}
    return config, {name: names[id(value)] for name, value in parameters.items() if id(value) in names}
