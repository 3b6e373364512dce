"""Conversations as prompts of `dslaunch infer`: what a chat template makes of them, up to where the assistant answers."""
import json
import sys

from failure import Failure, first_lines
from samples import chat
from samples.rows import Row
from samples.writers import write_text


def conversations(path):
    """Of a file with a list of messages, an object with "messages" (and "tools"), a list of such, or one a line."""
    with open(path, encoding="utf-8") as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise Failure(65, f"'{path}' is not UTF-8: {first_lines(error)}")
    try:
        found = json.loads(text)
    except ValueError as error:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise Failure(65, f"'{path}' is not JSON: {first_lines(error)}")
    if isinstance(found, dict) or is_conversation(found):
        found = [found]
    if not isinstance(found, list) or not found:
        raise Failure(65, f"'{path}' has no conversation: expected a list of messages, each with role and content")
    for number, each in enumerate(found, 1):
        values = each if isinstance(each, dict) else {"messages": each}
        yield Row(values, path, number, "conversation")


def is_conversation(value):
    """One, and not a list of several."""
    return isinstance(value, list) and bool(value) and all(
        isinstance(each, dict) and "messages" not in each and "conversations" not in each for each in value)


def write(args, tokenizer, template):
    lines = []
    for row in (row for path in args.texts for row in conversations(path)):
        messages = chat.messages_of(row.values.get("messages", row.values.get("conversations")), row)
        text, _ = chat.without_marks(template.render(messages, row.values.get("tools"), row, prompt=True))
        ids = tokenizer.encode([text], special=False)[0].ids  # the template has the special tokens
        lines.append(json.dumps({"prompt": text, "ids": list(ids)}, ensure_ascii=False) + "\n")
    if args.out == "-":
        sys.stdout.buffer.write("".join(lines).encode())
    else:
        write_text(args.out, "".join(lines))
    return len(lines)
