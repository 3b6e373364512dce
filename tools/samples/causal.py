"""Documents for causal models, as tokens and flags of those to learn: of texts, conversations, prompts with completions. A
long text file comes in several pieces, so that no file has to fit into memory."""
import array
import re

from failure import Failure
from samples import chat, source_files
from samples.batches import in_batches
from samples.rows import require_characters

PIECE_BYTES = 1 << 20
PIECE_END = re.compile(rb"[^\s]\n(?=[^\s])")  # a tokenizer hardly ever joins what stands around such a line feed

ALPACA = ("Below is an instruction that describes a task{}. Write a response that appropriately completes the request.\n\n"
          "### Instruction:\n{}\n\n{}### Response:\n")


class Ending:
    """The token that ends each document."""

    def __init__(self, tokenizer, given):
        self.id = None if given == "none" else tokenizer.id_of(given) if given else tokenizer.eos_id

    def add(self, ids, flags=None):
        """Where it is not there already; a model shall always learn it."""
        if self.id is None:
            return ids, flags
        if not ids or ids[-1] != self.id:
            return ids + [self.id], None if flags is None else bytes(flags) + b"\1"
        return ids, None if flags is None else bytes(flags[:-1]) + b"\1"


def strings_of(text):
    """What --prompt-format names: {column}."""
    return re.findall(r"\{([^{}]+)\}", text)


class Prompts:
    """The prompt of a row: its column, or a format with {column} in it; an instruction with its input as Alpaca has it."""

    def __init__(self, plan, given):
        self.plan, self.given = plan, given.replace("\\n", "\n") if given else None

    def of(self, row):
        if self.given:
            return re.sub(r"\{([^{}]+)\}", lambda match: self.column(row, match[1]), self.given)
        prompt = self.plan.text(row, "prompt")
        if prompt is None or "input" not in self.plan.columns:
            return prompt
        more = self.plan.text(row, "input")
        return ALPACA.format(", paired with an input that provides further context" if more else "", prompt,
                             f"### Input:\n{more}\n\n" if more else "")

    def column(self, row, name):
        try:
            value = row.get(name)
        except KeyError:
            raise Failure(65, f"{row.place()}: --prompt-format names the column '{name}'; it has {', '.join(row.values)}")
        return "" if value is None else str(value)


def of_texts(rows, plan, tokenizer, ending, progress, stats):
    def wanted():
        for row in rows:
            text = plan.text(row, "text")
            if text:
                yield row, text
            else:
                stats.empty += 1

    for batch in in_batches(wanted(), lambda each: len(each[1])):
        for encoding in tokenizer.encode([text for _, text in batch]):
            ids, _ = ending.add(encoding.ids)
            progress.add(1, len(ids))
            yield ids, None, True


def of_conversations(rows, plan, tokenizer, template, on_all, progress, stats):
    def wanted():
        for row in rows:
            value = plan.fetch(row, "messages")
            if not value:
                stats.empty += 1
                continue
            tools = plan.fetch(row, "tools") if "tools" in plan.columns and plan.columns["tools"] in row.values else None
            messages = chat.messages_of(value, row)
            if on_all:
                text, spans = chat.without_marks(template.render(messages, tools or None, row))[0], None
            else:
                text, spans = template.spans(messages, tools or None, row)
            yield require_characters(text, row), spans

    for batch in in_batches(wanted(), lambda each: len(each[0])):
        for encoding, (_, spans) in zip(tokenizer.encode([text for text, _ in batch], special=False), batch):
            flags = None if spans is None else chat.flags_of(encoding.offsets, spans)
            progress.add(1, len(encoding.ids))
            yield encoding.ids, flags, True


def of_completions(rows, plan, tokenizer, ending, prompts, on_all, progress, stats):
    def wanted():
        for row in rows:
            prompt, completion = prompts.of(row), plan.text(row, "completion")
            if completion:
                yield require_characters(prompt or "", row), completion
            else:
                stats.empty += 1

    for batch in in_batches(wanted(), lambda each: len(each[0]) + len(each[1])):
        for encoding, (prompt, completion) in zip(tokenizer.encode([first + second for first, second in batch]), batch):
            flags = None if on_all else chat.flags_of(encoding.offsets, [(len(prompt), len(prompt) + len(completion))])
            ids, flags = ending.add(encoding.ids, flags)
            progress.add(1, len(ids))
            yield ids, flags, True


def of_text_files(sources, tokenizer, ending, by_line, meter, progress):
    """A file is a document; with `by_line` each of its lines that is not blank is one, ending in its line feed or in the
    ending token. Byte-level files follow one another with nothing in between."""
    if by_line:
        yield from of_lines(sources, tokenizer, ending, meter, progress)
        return
    for source in sources:
        with source_files.open_bytes(source.path, meter) as file:
            if tokenizer.is_bytes:
                while data := file.read(PIECE_BYTES):
                    progress.add(0, len(data))
                    yield array.array("B", data), None, False
            else:
                yield from of_pieces(pieces(file), source.path, tokenizer, ending, progress)
    if tokenizer.is_bytes:
        yield array.array("B"), None, True


def pieces(file):
    """Of about PIECE_BYTES, cut behind a line."""
    rest = b""
    while data := file.read(PIECE_BYTES):
        rest += data
        found = None
        for found in PIECE_END.finditer(rest, max(0, len(rest) - len(data) // 2)):
            pass
        if found is not None:
            yield rest[:found.end()], False
            rest = rest[found.end():]
    yield rest, True


def of_pieces(parts, path, tokenizer, ending, progress):
    is_first, at = True, 0
    front, behind = tokenizer.surroundings()
    for data, is_last in parts:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Failure(65, f"'{path}': the text is not UTF-8 at byte {at + error.start}; without --tokenizer any bytes "
                              "will do")
        at += len(data)
        if is_first and is_last:
            ids = tokenizer.encode([text])[0].ids if text else []
        else:
            ids = (front if is_first else []) + tokenizer.encode([text], special=False)[0].ids + (behind if is_last else [])
        if is_last and not (is_first and not ids):
            ids, _ = ending.add(ids)
        progress.add(0, len(ids))
        is_first = False
        yield ids, None, is_last


def of_lines(sources, tokenizer, ending, meter, progress):
    def lines():
        for source in sources:
            with source_files.open_bytes(source.path, meter) as file:
                for number, whole in enumerate(file, 1):
                    for line in whole.splitlines(keepends=True):
                        if line.strip():
                            yield source.path, number, line

    for batch in in_batches(lines(), lambda each: len(each[2])):
        if tokenizer.is_bytes:
            found = [array.array("B", line) for _, _, line in batch]
        else:
            texts = [text_of_line(*each) for each in batch]
            if ending.id is not None:
                texts = [text.rstrip("\r\n") for text in texts]
            found = [ending.add(encoding.ids)[0] for encoding in tokenizer.encode(texts)]
        for ids in found:
            progress.add(1, len(ids))
            yield ids, None, True


def text_of_line(path, number, line):
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(65, f"'{path}' line {number}: the text is not UTF-8 at byte {error.start + 1} of the line; without "
                          "--tokenizer any bytes will do")
