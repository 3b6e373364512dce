"""What a model is trained for: transformers' classes by head, and which of them a config means."""
import dataclasses

from failure import Failure
from hf import packages


@dataclasses.dataclass(frozen=True)
class Head:
    auto_class: str
    mapping: str  # in transformers.models.auto.modeling_auto
    labels: tuple = ("labels",)
    labels_are_tokens: bool = False  # labels that do not count are -100


# In the order in which the head of a bare architecture is chosen.
HEADS = {
    "speech": Head("AutoModelForSpeechSeq2Seq", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", labels_are_tokens=True),
    "ctc": Head("AutoModelForCTC", "MODEL_FOR_CTC_MAPPING_NAMES"),
    "seq2seq": Head("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", labels_are_tokens=True),
    "masked": Head("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", labels_are_tokens=True),
    "causal": Head("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", labels_are_tokens=True),
    "image-classification": Head("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    "audio-classification": Head("AutoModelForAudioClassification", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"),
    "sequence-classification": Head("AutoModelForSequenceClassification",
                                    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"),
    "token-classification": Head("AutoModelForTokenClassification", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
                                 labels_are_tokens=True),
    "question-answering": Head("AutoModelForQuestionAnswering", "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
                               labels=("start_positions", "end_positions")),
}


def classes_of(head, model_type):
    """Names of the classes that an architecture has for a head."""
    packages.import_transformers()
    from transformers.models.auto import modeling_auto

    names = getattr(modeling_auto, HEADS[head].mapping, {}).get(model_type, ())
    return (names,) if isinstance(names, str) else tuple(names)


def heads_of(model_type):
    return [head for head in HEADS if classes_of(head, model_type)]


def choose(config, wanted):
    """The head's name and class of a config: the wanted one, that of the saved model, or the first that it has."""
    transformers = packages.import_transformers()
    has = heads_of(config.model_type)
    if not has:
        raise Failure(65, f"'{config.model_type}' has none of the heads that can be exported ({', '.join(HEADS)})")
    if wanted and wanted not in has:
        raise Failure(65, f"'{config.model_type}' has no head '{wanted}'; it has {', '.join(has)}")
    saved = (config.architectures or [""])[0]
    head = wanted or next((head for head in has if saved in classes_of(head, config.model_type)), None)
    if head is None:
        is_text_decoder = not config.is_encoder_decoder and "seq2seq" in has
        head = next(head for head in has if not (is_text_decoder and head == "seq2seq") or len(has) == 1)
    names = classes_of(head, config.model_type)
    return head, getattr(transformers, saved if saved in names else names[0])
