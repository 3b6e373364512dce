"""From the command line's options to the written file."""
import dataclasses
import itertools
import json
import os
import sys

from failure import Failure, as_typed, first_lines, printable
from samples import (causal, columns, encoder_inputs, images, labels, options, packing, progress, prompts, rows, source_files,
                     vocabulary)
from samples.chat import ChatTemplate
from samples.writers import Array, SampleFile, TokenFile, write_text


@dataclasses.dataclass
class Stats:
    empty: int = 0  # rows that lack a text or a label
    cut: int = 0  # rows longer than a sample


def counted(count, what):
    """"1 row", "2 rows"; nothing for none: what is said of it is left out then."""
    return f"{count:,} {what}{'' if count == 1 else 's'}" if count else ""


def say(text):
    print(f"{as_typed('tools/tokenize')}: {printable(text)}", file=sys.stderr)


def say_result(args, *parts):
    print(printable(f"{args.out}: {', '.join(part for part in parts if part)}"), file=sys.stderr)


def convert(args):
    if args.is_prompts:
        write_prompts(args)
        return
    sources = source_files.find(args.texts)
    meter = progress.Progress(args.out, sum(source.size for source in sources))
    try:
        if sources[0].kind == "text":
            check_task(args, "text", "text")
            options.require_length(args)
            write_causal(args, "text", Text(args, sources, meter), meter)
        elif sources[0].kind in ("cifar", "image directory"):
            check_task(args, "images", "images")
            write_images(args, sources, meter)
        else:
            Table(args, sources, meter).write()
    finally:
        meter.clear()


def write_prompts(args):
    tokenizer = vocabulary.load(args.tokenizer)
    count = prompts.write(args, tokenizer, chat_template(args, tokenizer))
    if args.out != "-":
        say_result(args, counted(count, "prompt"))


def check_task(args, task, inputs):
    if args.task not in (None, task) or args.columns or args.no_quotes:
        raise Failure(64, f"--task, --columns and --no-quotes are for tables; '{args.texts[0]}' has {inputs}")
    options.check_owners(args, task)
    if task == "text" and (args.source_prefix or args.stride is not None):
        raise Failure(64, "--source-prefix and --stride are for tables")


class Text:
    """Documents of text files."""

    def __init__(self, args, sources, meter):
        self.tokenizer = vocabulary.load(args.tokenizer)
        self.ending = causal.Ending(self.tokenizer, args.eos)
        if self.tokenizer.is_bytes and not args.eos:
            self.ending.id = None
        self.stats = Stats()
        self.documents = causal.of_text_files(sources, self.tokenizer, self.ending, args.lines, meter, meter)


class Rows:
    """Documents of tables."""

    def __init__(self, args, plan, read, tokenizer, meter):
        self.tokenizer, self.stats = tokenizer, Stats()
        ending = causal.Ending(tokenizer, args.eos)
        on_all = args.loss == "all"
        if plan.task == "text":
            self.documents = causal.of_texts(read, plan, tokenizer, ending, meter, self.stats)
        elif plan.task == "chat":
            template = chat_template(args, tokenizer)
            self.documents = causal.of_conversations(read, plan, tokenizer, template, on_all, meter, self.stats)
        else:
            prompts = causal.Prompts(plan, args.prompt_format)
            self.documents = causal.of_completions(read, plan, tokenizer, ending, prompts, on_all, meter, self.stats)
        self.lacks_end = ending.id is None and args.eos != "none" and plan.task != "chat"


def chat_template(args, tokenizer):
    source = tokenizer.chat_template
    if args.chat_template:
        try:
            with open(args.chat_template, encoding="utf-8") as file:
                source = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(66, f"cannot read '{args.chat_template}': {first_lines(error)}")
    if not source:
        raise Failure(65, f"{f'the tokenizer {args.tokenizer!r}' if args.tokenizer else 'byte level'} has no chat template: "
                          "--chat-template FILE names one (Jinja), or --tokenizer DIR a tokenizer that has one")
    return ChatTemplate(source, tokenizer.special)


class Table:
    def __init__(self, args, sources, meter):
        self.args, self.sources, self.meter = args, sources, meter
        first = self.first_rows(1)
        if not first:
            raise Failure(65, f"no rows in {', '.join(repr(source.path) for source in sources[:4])}")
        tasks = options.CAUSAL if args.is_stream else tuple(columns.ROLES)
        tasks = sorted(tasks, key=list(columns.ROLES).index)
        self.plan = columns.plan(first[0], args.task, columns.parse(args.columns), tuple(tasks))
        options.check_owners(args, self.plan.task)
        if args.lines:
            raise Failure(64, "--lines is for text files; rows of a table: --packing none")
        if args.no_quotes and not any(source.kind in ("csv", "tsv") for source in sources):
            raise Failure(64, "--no-quotes goes with .csv and .tsv")
        if self.plan.task != "images":
            options.require_length(args)
        elif args.seq is not None or args.tokenizer or args.coarse:
            raise Failure(64, "--seq, --tokenizer and --coarse do not go with the images of a table")

    def first_rows(self, count):
        return list(itertools.islice(self.read(None, progress.Progress("", 0)), count))

    def read(self, names, meter):
        return rows.read(self.sources, meter, names, not self.args.no_quotes)

    def needed(self):
        more = causal.strings_of(self.args.prompt_format) if self.args.prompt_format else []
        return {*self.plan.columns.values(), *more}

    def write(self):
        """What it does is said when all packages are here: before that, python_packages may start the tool again."""
        read, task = self.read(self.needed(), self.meter), self.plan.task
        if task in options.CAUSAL:
            source = Rows(self.args, self.plan, read, vocabulary.load(self.args.tokenizer), self.meter)
            say(self.plan.sentence())
            if source.lacks_end:
                say(f"'{self.args.tokenizer}' names no token that ends a document (eos_token): --eos TOKEN, or --eos none")
            write_causal(self.args, task, source, self.meter)
            return
        if self.args.is_stream:
            raise Failure(64, f"task {task} writes samples: OUT.safetensors")
        found = self.labels() if task in ("images", "classification") else None
        if task == "images":
            self.meter.unit = "images"
            shape = images.ImageRows(self.plan, self.args, found)
            say(self.plan.sentence())
            write_samples(self.args, shape, read, self.meter, found)
            return
        tokenizer = vocabulary.load(self.args.tokenizer)
        say(self.plan.sentence())
        dtype = self.args.dtype or "int64"
        shape = {"seq2seq": encoder_inputs.Translation, "question-answering": encoder_inputs.Answers,
                 "classification": encoder_inputs.Classes}[task]
        write_samples(self.args, shape(self.plan, tokenizer, self.args, dtype, *([found] if found else [])), read, self.meter,
                      found)

    def labels(self):
        given, own = labels.read_names(self.args.classes) if self.args.classes else None, None
        if given is None and self.sources[0].kind in ("parquet", "arrow"):
            from samples import arrow_files
            own = arrow_files.class_names(self.sources[0], self.plan.columns["label"])
        first = [self.plan.fetch(row, "label") for row in self.first_rows(labels.PEEKED)]
        return labels.of_rows(first, self.args.label_type, given, own)


def write_causal(args, task, source, meter):
    tokenizer, stats = source.tokenizer, source.stats
    if args.is_stream:
        if task != "text" and args.loss != "all":
            raise Failure(64, f"a token stream has no labels, so all tokens of task {task} would count: --loss all, or "
                              "--seq L OUT.safetensors")
        write_stream(args, source, meter)
        return
    kind = args.packing or ("none" if args.lines or task != "text" else "joined")
    if args.pad and kind != "joined":
        raise Failure(64, f"--pad keeps the tail of joined documents; in task {task} every sample is padded (--packing joined)")
    ahead = 0 if args.labels == "same" else 1
    with_mask = args.mask or args.pad or bool(args.mask_name) or kind != "joined"
    arrays = [Array("input_ids", args.dtype or "int64", (args.seq,)), Array("labels", "int64", (args.seq,))]
    if with_mask:
        arrays.append(Array(args.mask_name or "mask", "uint8", (args.seq,)))
    num_tokens = 0
    with SampleFile(args.out, arrays) as out:
        def emit(count, inputs, label, mask):
            out.write(count, [inputs, label, mask][:len(arrays)])

        made = {"joined": packing.Joined, "whole": packing.Whole, "none": packing.Single}[kind]
        packer = made(args.seq, ahead, tokenizer.pad_id or 0, emit, **({"keep_tail": args.pad} if kind == "joined" else {}))
        for tokens, flags, is_last in source.documents:
            num_tokens += len(tokens)
            packer.add(tokens, flags, is_last)
        packer.finish()
        if out.count == 0:
            raise Failure(65, why_empty(args, kind, ahead, num_tokens, packer))
        out.finish()
    meter.clear()
    whole = out.count * args.seq
    cut, left_out = counted(packer.num_cut, "longer document"), counted(packer.num_left_out, "document")
    say_result(args, f"{out.count} samples of {args.seq} tokens", f"vocabulary {tokenizer.size}",
               f"{100 * packer.num_padded / whole:.0f} % padding" if packer.num_padded else "",
               f"{cut} {'in pieces' if kind == 'whole' else 'cut'}" if cut else "",
               f"{left_out} without a token to learn left out" if left_out else "", rows_left_out(stats))


def rows_left_out(stats):
    return f"{counted(stats.empty, 'row')} with an empty column left out" if stats.empty else ""


def why_empty(args, kind, ahead, num_tokens, packer):
    if num_tokens == 0:
        return f"no tokens in {', '.join(args.texts)}"
    if kind == "joined":
        return (f"{num_tokens} tokens are too few for one sample of {args.seq} and its labels; at least {args.seq + ahead} are "
                "needed (or --pad)")
    if args.lines:
        return "no line has two tokens, one to read and one to predict"
    return (f"none of {packer.num_left_out} documents has a token to learn within {args.seq} tokens: a larger --seq, or "
            "--loss all")


def write_stream(args, source, meter):
    tokenizer = source.tokenizer
    dtype = args.dtype or ("uint16" if tokenizer.size <= 65536 else "uint32")
    with TokenFile(args.out, dtype) as out:
        for tokens, _, _ in source.documents:
            out.write(tokens)
        if out.count == 0:
            raise Failure(65, f"no tokens in {', '.join(args.texts)}")
        out.finish()
    meter.clear()
    say_result(args, f"{out.count} tokens as {dtype}", f"vocabulary {tokenizer.size}", rows_left_out(source.stats))


def write_samples(args, shape, read, meter, found):
    stats = Stats()
    with SampleFile(args.out, shape.arrays) as out:
        for count, values in shape.samples(read, meter, stats):
            out.write(count, values)
        if out.count == 0:
            raise Failure(65, f"no samples: {rows_left_out(stats) or 'no rows'}")
        names = found.final_names() if found else None
        finish(args, out, names, found.convert() if found else None)
    meter.clear()
    lengths = ", ".join(f"{each.name} {[out.count, *each.shape]}" for each in shape.arrays)
    say_result(args, lengths, found.summary() if found else "",
               f"{counted(stats.cut, 'longer row')} cut" if stats.cut else "", rows_left_out(stats))


def finish(args, out, names, convert=None):
    """The names first: samples without the names of their classes would be the worse half."""
    side_file = labels.side_file(args.out)
    if names:
        write_text(side_file, json.dumps(names, ensure_ascii=False) + "\n")
    elif os.path.exists(side_file):  # of the file that is replaced
        os.unlink(side_file)
    out.finish({"classes": json.dumps(names, ensure_ascii=False)} if names else None, convert)


def write_images(args, sources, meter):
    if args.is_stream or args.seq is not None or args.tokenizer:
        raise Failure(64, "images become samples without tokens: OUT.safetensors, without --seq and --tokenizer")
    meter.unit = "images"
    given = labels.read_names(args.classes) if args.classes else None
    if sources[0].kind == "cifar":
        if given or args.label_type:
            raise Failure(64, "--classes and --label-type are not for CIFAR, whose classes are numbers")
        shape = images.Cifar(sources, args)
    else:
        if len(sources) > 1:
            raise Failure(64, f"one directory of images is expected, not {len(sources)}: '{sources[1].path}'")
        if args.label_type or args.coarse:
            raise Failure(64, "--label-type and --coarse are not for a directory of images, whose directories are the classes")
        shape = images.ImageDirectory(sources[0], args, given)
    with SampleFile(args.out, shape.arrays) as out:
        for count, values in shape.samples(meter, meter):
            out.write(count, values)
        if out.count == 0:
            raise Failure(65, f"no images in '{sources[0].path}'")
        finish(args, out, shape.names)
    meter.clear()
    pixels = shape.arrays[0]
    other = getattr(shape, "num_other", 0)
    say_result(args, f"{out.count} images, {pixels.name} {[out.count, *pixels.shape]} {pixels.dtype}",
               f"{len(shape.names)} classes ({', '.join(shape.names[:6])}{', ...' if len(shape.names) > 6 else ''})"
               if shape.names else f"{shape.num_classes} classes",
               f"{counted(other, 'other file')} in the directories not read" if other else "")


def main(argv):
    args = options.parse(argv)
    try:
        convert(args)
    except OSError as error:  # of an input; those of the output are Failures
        raise Failure(66, f"cannot read '{error.filename}': {error.strerror or error}")
