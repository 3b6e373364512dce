"""Which task the columns of a table are for, and which column has which role in it."""
import dataclasses

from failure import Failure, suggestion
from samples.rows import require_characters, type_of

TEXTS = ("text", "content", "body", "document", "raw_content", "sentence", "review")
PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"),
         ("question", "sentence"))
SUMMARIES = (("source", "target"), ("src", "tgt"), ("article", "highlights"), ("document", "summary"), ("dialogue", "summary"),
             ("text", "summary"), ("article", "summary"), ("input_text", "target_text"), ("inputs", "targets"))
PROMPTS = (("prompt", "completion"), ("prompt", "response"), ("instruction", "output"),
           ("instruction", "response"), ("input", "output"), ("question", "answer"), ("query", "response"))
LABELS = ("label", "labels", "class", "category", "sentiment", "fine_label", "coarse_label")

# Roles of each task; those that a table may lack come second.
ROLES = {
    "chat": (("messages",), ("tools",)),
    "question-answering": (("question", "context", "answers"), ("answer_start",)),
    "images": (("image", "label"), ()),
    "completion": (("prompt", "completion"), ("input",)),
    "seq2seq": (("source", "target"), ()),
    "classification": (("text", "label"), ("text2",)),
    "text": (("text",), ()),
}


@dataclasses.dataclass
class Plan:
    task: str
    columns: dict  # {role: column}

    def sentence(self):
        named = ", ".join(f"{role} is '{column}'" if role != column else f"'{column}'"
                          for role, column in self.columns.items())
        return f"task {self.task}: {named}"

    def fetch(self, row, role):
        column = self.columns[role]
        try:
            return row.get(column)
        except KeyError:
            raise Failure(65, f"{row.place()}: no column '{column}'; it has {', '.join(row.values) or 'none'}")

    def text(self, row, role):
        """None where the column is empty."""
        value = self.fetch(row, role)
        if value is not None and not isinstance(value, str):
            raise Failure(65, f"{row.place()}: column '{self.columns[role]}' is {type_of(value)}, expected a text")
        return require_characters(value, row)


def first_pair(names, pairs):
    return next((pair for pair in pairs if set(pair) <= set(names)), None)


def first_of(names, wanted):
    return next((name for name in wanted if name in names), None)


def find_chat(values):
    for name in ("messages", "conversations", "conversation", "chat"):
        if isinstance(values.get(name), list):
            return {"messages": name, **({"tools": "tools"} if isinstance(values.get("tools"), list) else {})}
    return None


def find_answers(values):
    if not {"question", "context"} <= set(values):
        return None
    answers = first_of(values, ("answers", "answer", "answer_text"))
    found = {"question": "question", "context": "context", "answers": answers}
    return answers and {**found, **({"answer_start": "answer_start"} if "answer_start" in values else {})}


def find_images(values):
    image = first_of(values, ("image", "img", "pixel_values"))
    label = first_of(values, LABELS)
    if image and label and isinstance(values[image], (dict, bytes)):
        return {"image": image, "label": label}
    return None


def find_completion(values):
    pair = first_pair(values, PROMPTS)
    if not pair:
        return None
    more = {"input": "input"} if pair[0] == "instruction" and "input" in values else {}
    return {"prompt": pair[0], "completion": pair[1], **more}


def find_seq2seq(values):
    inner = values.get("translation")
    if isinstance(inner, dict) and len(inner) == 2:
        source, target = inner
        return {"source": f"translation.{source}", "target": f"translation.{target}"}
    pair = first_pair(values, SUMMARIES)
    return {"source": pair[0], "target": pair[1]} if pair else None


def find_classes(values):
    label = first_of(values, LABELS)
    pair = first_pair(values, PAIRS)
    if label and pair:
        return {"text": pair[0], "text2": pair[1], "label": label}
    text = first_of(values, TEXTS)
    return {"text": text, "label": label} if text and label else None


def find_text(values):
    name = first_of(values, TEXTS)
    if name is None:
        texts = [key for key, value in values.items() if isinstance(value, str)]
        name = texts[0] if len(texts) == 1 and len(values) == 1 else None
    return {"text": name} if name else None


FINDERS = {"chat": find_chat, "question-answering": find_answers, "images": find_images, "completion": find_completion,
           "seq2seq": find_seq2seq, "classification": find_classes, "text": find_text}


def parse(text):
    """{role: column} of --columns."""
    found = {}
    every = {role for needed, more in ROLES.values() for role in needed + more}
    for entry in filter(None, (each.strip() for each in (text or "").split(","))):
        role, mark, column = entry.partition("=")
        if not mark or not role or not column:
            raise Failure(64, f"--columns wants ROLE=COLUMN[,ROLE=COLUMN...], not '{entry}'")
        if role not in every:
            raise Failure(64, f"--columns: no role '{role}'" + (suggestion(role, every) or f"; roles: {', '.join(sorted(every))}"))
        if role in found:
            raise Failure(64, f"--columns names the role '{role}' twice")
        found[role] = column
    return found


def plan(row, task, given, tasks=tuple(ROLES)):
    """From the first row. `task`: of --task, or None; `given`: of --columns; `tasks`: those that the output allows."""
    values = row.values
    if task is None and given:
        fitting = [each for each in tasks if set(given) <= set(sum(ROLES[each], ()))]
        if not fitting:
            raise Failure(64, f"--columns {','.join(given)}: these roles are not of one task; --task names it")
        complete = [each for each in fitting if set(ROLES[each][0]) <= set(given)]
        task = complete[-1] if complete else fitting[0] if len(fitting) == 1 else None
    for each in [task] if task else tasks:
        found = {**(FINDERS[each](values) or {}), **given}
        needed, more = ROLES[each]
        if set(needed) <= set(found) and set(found) <= set(needed + more):
            chosen = Plan(each, {role: found[role] for role in needed + more if role in found})
            for role in chosen.columns:
                chosen.fetch(row, role)
            return chosen
        if task:
            missing = [role for role in needed if role not in found]
            stranger = [role for role in found if role not in needed + more]
            if stranger:
                raise Failure(64, f"--columns: task {task} has no role '{stranger[0]}'; it has {', '.join(needed + more)}")
            raise Failure(65, f"'{row.path}': which column is the {' and the '.join(missing)} of task {task}? It has "
                              f"{', '.join(values)}: --columns {','.join(f'{role}=COLUMN' for role in missing)}")
    raise Failure(65, f"'{row.path}': what are the columns {', '.join(values)} for? --task TASK and --columns "
                      f"ROLE=COLUMN say it (tasks and their roles: "
                      f"{'; '.join(name + ' ' + ', '.join(ROLES[name][0]) for name in tasks)})")
