"""The command line of tools/tokenize."""
import argparse
import os

from failure import Failure, as_typed, shortened
from samples.columns import ROLES
from samples.writers import TYPES

EXAMPLES = """From texts, tables, chats and images to the files that a run reads.

    tools/tokenize book.txt train.bin                        # a stream of tokens, one byte each a token, as uint16
    tools/tokenize a.txt b.txt train.npy --dtype uint8       # the same as a .npy file
    tools/tokenize book.txt train.safetensors --seq 128      # samples: input_ids and labels [N, 128], int64
    tools/tokenize book.txt train.safetensors --seq 128 --lines           # a sample for each line, padded, with its mask
    tools/tokenize web.jsonl.gz train.bin --tokenizer DIR                 # documents, each ended by the tokenizer's EOS
    tools/tokenize docs/*.parquet train.safetensors --seq 2048 --tokenizer DIR --packing whole
    tools/tokenize chats.jsonl train.safetensors --seq 2048 --tokenizer DIR            # loss on the assistant's turns
    tools/tokenize en-de.csv train.safetensors --seq 128 --tokenizer DIR --columns source=en,target=de
    tools/tokenize squad.jsonl train.safetensors --seq 384 --stride 128 --tokenizer DIR
    tools/tokenize chats.json prompts.jsonl --tokenizer DIR               # prompts for dslaunch infer, by the chat template
    tools/tokenize reviews.csv train.safetensors --seq 256 --tokenizer DIR --columns text=review,label=stars
    tools/tokenize photos/train train.safetensors --size 224              # a directory of images for each class (Pillow)
    tools/tokenize cifar-10-batches-bin train.safetensors                 # CIFAR's binary version

Byte-level, tables and CIFAR need nothing but Python; a tokenizer needs `tokenizers` or `transformers`, parquet and Arrow
`pyarrow`, images `Pillow`, chat templates `jinja2`. docs/data.md describes each task and what it writes."""


def parser():
    made = argparse.ArgumentParser(prog=as_typed("tools/tokenize"), description=as_typed(EXAMPLES), allow_abbrev=False,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.error = lambda message: (_ for _ in ()).throw(Failure(64, f"{message} (see tools/tokenize --help)"))
    made.add_argument("texts", nargs="+", metavar="IN", help="files or directories, then OUT.bin, OUT.npy, OUT.safetensors or, "
                      "for prompts of chats, OUT.jsonl (-: standard output): "
                      ".txt, .jsonl, .json, .csv, .tsv (also .gz, .bz2, .xz), .parquet, .arrow, save_to_disk's directories, "
                      "images, CIFAR")
    made.add_argument("--tokenizer", metavar="DIR|FILE", help="a directory with tokenizer.json, or that file; default: bytes")
    made.add_argument("--seq", type=int, help="length of a sample in tokens; needed for .safetensors")
    made.add_argument("--dtype", choices=list(TYPES), help="of a token (default: uint16 or uint32, samples int64), of a pixel")
    rows = made.add_argument_group("tables")
    rows.add_argument("--task", choices=list(ROLES), help="what the rows are for; default: by the columns")
    rows.add_argument("--columns", metavar="ROLE=NAME,...", help="which column is what: "
                      + "; ".join(f"{task}: {', '.join(sum(roles, ()))}" for task, roles in ROLES.items()))
    rows.add_argument("--no-quotes", action="store_true", help="quotation marks in .csv and .tsv are text")
    causal = made.add_argument_group("text, chat, completion")
    causal.add_argument("--packing", choices=["joined", "whole", "none"], help="joined: documents one after the other, cut "
                        "every --seq tokens (default for text); whole: several documents a sample, none of them cut if it "
                        "fits, padded; none: a document a sample, cut or padded (default for chat and completion)")
    causal.add_argument("--pad", action="store_true", help="keep the tail of joined documents as a padded sample")
    causal.add_argument("--lines", action="store_true", help="every line of a text is a document, cut or padded to --seq")
    causal.add_argument("--labels", choices=["next", "same"], help="the tokens that follow (default), or the inputs again, for "
                        "a model that shifts its labels itself")
    causal.add_argument("--loss", choices=["answers", "all"], help="which tokens are labels: the assistant's turns or the "
                        "completion (default), or all")
    causal.add_argument("--eos", metavar="TOKEN|none", help="what ends a document; default: the tokenizer's EOS")
    causal.add_argument("--mask", action="store_true", help="write the array 'mask' (1: a real token), as padding does")
    causal.add_argument("--mask-name", metavar="NAME", help="of that array; default: mask, attention_mask for other tasks")
    causal.add_argument("--chat-template", metavar="FILE", help="a Jinja template instead of the tokenizer's")
    causal.add_argument("--prompt-format", metavar="TEXT", help="the prompt, with {column} in it")
    other = made.add_argument_group("seq2seq, question-answering, classification")
    other.add_argument("--target-seq", type=int, metavar="N", help="length of a target; default: --seq")
    other.add_argument("--source-prefix", metavar="TEXT", help="in front of each source (T5: \"summarize: \")")
    other.add_argument("--stride", type=int, metavar="N", help="tokens by which samples of a long context overlap (default: a "
                       "third of --seq)")
    other.add_argument("--label-type", choices=["classes", "names", "values"], help="numbers of classes, names of classes, "
                       "numbers to predict; default: by the first rows")
    other.add_argument("--classes", metavar="FILE", help="names of the classes in their order: OUT.classes.json or "
                       "OUT.safetensors of another call, or a text with a name a line")
    pictures = made.add_argument_group("images")
    pictures.add_argument("--size", metavar="N|HxW", help="the shorter side becomes N, then the middle is cut out (default 224)")
    pictures.add_argument("--mean", metavar="M,M,M", help="values are (byte / 255 - mean) / std (default 0.5: from -1 to 1)")
    pictures.add_argument("--std", metavar="S,S,S", help="default 0.5")
    pictures.add_argument("--grayscale", action="store_true", help="one channel")
    pictures.add_argument("--coarse", action="store_true", help="CIFAR-100's 20 classes instead of its 100")
    return made


CAUSAL = ("text", "chat", "completion")
LONGEST = 1 << 24  # tokens of a sample
# Options that only some tasks have: (name of the attribute, tasks).
OWNERS = (("packing", CAUSAL), ("pad", CAUSAL), ("labels", CAUSAL), ("mask", CAUSAL), ("eos", ("text", "completion")),
          ("lines", ("text",)), ("mask_name", tuple(task for task in ROLES if task != "images")),
          ("loss", ("chat", "completion")), ("chat_template", ("chat",)), ("prompt_format", ("completion",)),
          ("target_seq", ("seq2seq",)), ("source_prefix", ("seq2seq",)), ("stride", ("question-answering",)),
          ("label_type", ("classification", "images")), ("classes", ("classification", "images")),
          ("size", ("images",)), ("mean", ("images",)), ("std", ("images",)), ("grayscale", ("images",)),
          ("coarse", ("images",)))


def parse(argv):
    args = parser().parse_intermixed_args(argv)
    if len(args.texts) < 2:
        raise Failure(64, "an input and an output are needed: tools/tokenize IN.txt OUT.bin")
    args.out = args.texts.pop()
    args.is_stream = args.out.endswith((".bin", ".npy"))
    args.is_prompts = args.out == "-" or args.out.endswith(".jsonl")
    if args.is_prompts:
        return check_prompts(args)
    if not args.is_stream and not args.out.endswith(".safetensors"):
        raise Failure(64, f"the output '{args.out}' must end in .bin, .npy or .safetensors, or .jsonl for prompts of chats")
    if any(os.path.exists(each) and os.path.exists(args.out) and os.path.samefile(each, args.out) for each in args.texts):
        raise Failure(64, f"'{args.out}' is an input and the output")
    for name in ("seq", "target_seq"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= LONGEST:
            raise Failure(64, f"--{name.replace('_', '-')} must be from 1 to {LONGEST}, not {shortened(str(value), 40)}")
    if args.stride is not None and not 0 <= args.stride <= LONGEST:
        raise Failure(64, f"--stride must be from 0 to {LONGEST}, not {shortened(str(args.stride), 40)}")
    if args.is_stream and args.seq is not None:
        raise Failure(64, "--seq L goes with OUT.safetensors: a stream (.bin, .npy) is cut by the run's data.seq_len")
    if args.is_stream and (args.pad or args.mask or args.lines or args.labels or args.packing or args.mask_name):
        raise Failure(64, "--pad, --lines, --mask, --mask-name, --packing and --labels go with --seq L OUT.safetensors")
    if args.pad and (args.lines or args.packing in ("whole", "none")):
        raise Failure(64, "--pad keeps the tail of joined documents, --lines and --packing whole or none pad each sample: they "
                          "exclude each other")
    if args.mask_name in ("input_ids", "labels", "token_type_ids", "start_positions", "end_positions"):
        raise Failure(64, f"--mask-name {args.mask_name}: that is another array")
    return args


def check_prompts(args):
    """Of chats, which need a template and nothing else."""
    used = ("texts", "out", "is_stream", "is_prompts", "tokenizer", "chat_template")
    for name, value in vars(args).items():
        if name not in used and value not in (None, False):
            raise Failure(64, f"--{name.replace('_', '-')} does not go with prompts of chats ('{args.out}'): only --tokenizer and "
                              "--chat-template do")
    return args


def require_length(args):
    if args.seq is None and not args.is_stream:
        raise Failure(64, "--seq L goes with OUT.safetensors: the length of a sample in tokens")


def check_owners(args, task):
    for name, tasks in OWNERS:
        if getattr(args, name) not in (None, False) and task not in tasks:
            raise Failure(64, f"--{name.replace('_', '-')} goes with {' and '.join(tasks)}, and this is task {task} "
                              "(--task chooses another)")
