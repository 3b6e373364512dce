"""Samples for models that read a text whole: pairs of source and target, classes of texts, answers in a context. All have
input_ids and a mask, padded to one length."""
from failure import Failure
from samples.batches import in_batches
from samples.packing import IGNORED
from samples.rows import type_of
from samples.writers import Array


class Padded:
    """Rows of one length: ids, mask, and token types where a model tells two texts apart."""

    def __init__(self, tokenizer, length, mask_name, with_types, dtype):
        self.pad_id, self.length, self.with_types = tokenizer.pad_id or 0, length, with_types
        self.arrays = [Array("input_ids", dtype, (length,)), Array(mask_name, "int64", (length,))]
        if with_types:
            self.arrays.append(Array("token_type_ids", "int64", (length,)))

    def of(self, encoding):
        used = len(encoding.ids)
        rest = self.length - used
        found = [encoding.ids + [self.pad_id] * rest, [1] * used + [0] * rest]
        return found + [list(encoding.type_ids) + [0] * rest] if self.with_types else found


class Translation:
    """source -> target, for encoder-decoder models, which shift the labels themselves."""

    def __init__(self, plan, tokenizer, options, dtype):
        self.plan, self.tokenizer = plan, tokenizer
        self.prefix = options.source_prefix or ""
        self.length, self.target_length = options.seq, options.target_seq or options.seq
        self.padded = Padded(tokenizer, self.length, options.mask_name or "attention_mask", False, dtype)
        self.arrays = [*self.padded.arrays, Array("labels", "int64", (self.target_length,))]

    def samples(self, rows, progress, stats):
        def wanted():
            for row in rows:
                source, target = self.plan.text(row, "source"), self.plan.text(row, "target")
                if source and target:
                    yield self.prefix + source, target
                else:
                    stats.empty += 1

        for batch in in_batches(wanted(), lambda each: len(each[0]) + len(each[1])):
            sources = self.tokenizer.encode([source for source, _ in batch], limit=self.length)
            targets = self.tokenizer.encode([target for _, target in batch], limit=self.target_length)
            for source, target in zip(sources, targets):
                stats.cut += bool(source.overflowing or target.overflowing)
                progress.add(1, len(source.ids) + len(target.ids))
                labels = target.ids + [IGNORED] * (self.target_length - len(target.ids))
                yield 1, [*self.padded.of(source), labels]


class Classes:
    """A text, or two, and its class."""

    def __init__(self, plan, tokenizer, options, dtype, labels):
        self.plan, self.tokenizer, self.labels, self.length = plan, tokenizer, labels, options.seq
        self.is_pair = "text2" in plan.columns
        if self.is_pair and tokenizer.is_bytes:
            raise Failure(64, "two texts a row need a --tokenizer, which knows what stands between them")
        self.padded = Padded(tokenizer, self.length, options.mask_name or "attention_mask",
                             self.is_pair and tokenizer.marks_second_text(), dtype)
        self.arrays = [*self.padded.arrays, Array("labels", labels.dtype)]

    def samples(self, rows, progress, stats):
        def wanted():
            for row in rows:
                text = self.plan.text(row, "text")
                second = self.plan.text(row, "text2") if self.is_pair else ""
                label = self.plan.fetch(row, "label")
                if text is None or second is None or label is None:
                    stats.empty += 1
                else:
                    yield (text, second) if self.is_pair else text, self.labels.value(label, row)

        for batch in in_batches(wanted(), lambda each: sum(map(len, each[0])) if self.is_pair else len(each[0])):
            encodings = self.tokenizer.encode([text for text, _ in batch], limit=self.length)
            for encoding, (_, label) in zip(encodings, batch):
                stats.cut += bool(encoding.overflowing)
                progress.add(1, len(encoding.ids))
                yield 1, [*self.padded.of(encoding), [label]]


class Answers:
    """Where in its context the answer to a question stands. A long context makes several samples, which overlap by `stride`
    tokens; where the answer is not in one of them, both positions are that of the classifier token, as for a question
    without an answer."""

    def __init__(self, plan, tokenizer, options, dtype):
        if tokenizer.is_bytes:
            raise Failure(64, "questions and contexts need a --tokenizer, which knows what stands between them")
        self.plan, self.tokenizer, self.length = plan, tokenizer, options.seq
        self.stride = options.seq // 3 if options.stride is None else options.stride
        self.first_ids = [id for id in map(tokenizer.special_id, ("cls_token", "bos_token")) if id is not None]
        self.padded = Padded(tokenizer, self.length, options.mask_name or "attention_mask", tokenizer.marks_second_text(), dtype)
        self.arrays = [*self.padded.arrays, Array("start_positions", "int64"), Array("end_positions", "int64")]

    def samples(self, rows, progress, stats):
        def wanted():
            for row in rows:
                question, context = self.plan.text(row, "question"), self.plan.text(row, "context")
                if question and context:
                    yield row, question.lstrip(), context, answer_of(row, self.plan, context)
                else:
                    stats.empty += 1

        for batch in in_batches(wanted(), lambda each: len(each[2])):
            self.require_room(batch)
            encodings = self.tokenizer.encode([(question, context) for _, question, context, _ in batch], limit=self.length,
                                              stride=self.stride, only_second=True)
            for encoding, (_, _, _, span) in zip(encodings, batch):
                pieces = [encoding, *encoding.overflowing]
                progress.add(1, sum(len(piece.ids) for piece in pieces))
                for piece in pieces:
                    begin, end = self.positions(piece, span)
                    yield 1, [*self.padded.of(piece), [begin], [end]]

    def require_room(self, batch):
        """The tokenizers' own message names neither the row nor the option."""
        around = len(self.tokenizer.encode([("", "")])[0].ids)
        questions = self.tokenizer.encode([question for _, question, _, _ in batch], special=False)
        for (row, *_), encoding in zip(batch, questions):
            room = self.length - around - len(encoding.ids)
            if room <= self.stride:
                raise Failure(65, f"{row.place()}: the question has {len(encoding.ids)} tokens, so that {max(room, 0)} of "
                                  f"--seq {self.length} are left for its context; more than --stride {self.stride} are needed")

    def positions(self, piece, span):
        nowhere = next((piece.ids.index(id) for id in self.first_ids if id in piece.ids), 0)
        if span is None:
            return nowhere, nowhere
        begin, end = span
        inside = [at for at, which in enumerate(piece.sequence_ids) if which == 1]
        offsets = piece.offsets
        if not inside or offsets[inside[0]][0] > begin or offsets[inside[-1]][1] < end:
            return nowhere, nowhere
        first = max(at for at in inside if offsets[at][0] <= begin)
        last = min(at for at in inside if offsets[at][1] >= end)
        return first, last


def answer_of(row, plan, context):
    """(begin, end) in characters of the context, or None for a question without an answer. SQuAD's {"text": [...],
    "answer_start": [...]}, a list of {"text": ..., "answer_start": ...}, or a text, which stands where it is found first."""
    value, start = plan.fetch(row, "answers"), None
    if "answer_start" in plan.columns:
        start = plan.fetch(row, "answer_start")
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        if "text" not in value:
            raise Failure(65, f"{row.place()}: column '{plan.columns['answers']}' is {type_of(value)}, expected text and "
                              "answer_start")
        value, start = value["text"], value.get("answer_start")
    text, start = first_entry(value), first_entry(start)
    if not text:
        return None
    if not isinstance(text, str):
        raise Failure(65, f"{row.place()}: the answer is {type_of(text)}, expected a text")
    if start in (None, ""):
        start = context.find(text)
        if start < 0:
            raise Failure(65, f"{row.place()}: the answer '{text[:60]}' is not in its context")
    try:
        start = int(start)
    except (TypeError, ValueError, OverflowError):
        raise Failure(65, f"{row.place()}: answer_start is {type_of(start)}, expected a number of characters")
    if start < 0 or context[start:start + len(text)] != text:
        raise Failure(65, f"{row.place()}: at character {start} of the context is '{context[max(start, 0):][:len(text)][:60]}', "
                          f"not the answer '{text[:60]}'")
    return start, start + len(text)


def first_entry(value):
    return (value[0] if value else None) if isinstance(value, list) else value

