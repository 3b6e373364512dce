"""Conversations as text, by a tokenizer's chat template, and which parts of the text an assistant says."""
import datetime
import json
import re

from failure import Failure, first_lines
from python_packages import import_package, install_command
from samples.rows import type_of

ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant", "bing": "assistant",
         "model": "assistant", "observation": "tool", "function_response": "tool"}
REASONING = ("reasoning_content", "thinking", "reasoning")  # templates read the first, that of gpt-oss the second
SAFE_JINJA = (3, 1, 6)  # templates come from strangers, and earlier sandboxes can be left
BEGIN, END = "\ufdd0", "\ufdd1"  # no characters; they enclose what a template marks with {% generation %}


def messages_of(value, row):
    """As templates want them: a role and a content each. "from" and "value" are ShareGPT's names."""
    if not isinstance(value, list) or not value:
        raise Failure(65, f"{row.place()}: the conversation is {type_of(value) if value != [] else 'empty'}, expected a list "
                          "of messages")
    found = []
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict):
            raise Failure(65, f"{row.place()}: message {number} is {type_of(message)}, expected an object with role and content")
        message = {name: each for name, each in message.items() if each is not None}
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise Failure(65, f"{row.place()}: message {number} has no role; it has {', '.join(message) or 'nothing'}")
        if "content" not in message and "value" in message:
            message["content"] = message.pop("value")
        message.pop("from", None)
        reasoning = next((message[name] for name in REASONING if name in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        found.append({**message, "role": ROLES.get(role, role)})
    return found


class ChatTemplate:
    def __init__(self, source, special):
        """`source`: Jinja text; `special`: {"eos_token": "</s>", ...}, which templates name."""
        jinja2 = import_package("jinja2", "a chat template", parts=("ext", "nodes", "sandbox", "utils"))
        if tuple(int(part) for part in re.findall(r"\d+", jinja2.__version__)[:3]) < SAFE_JINJA:
            raise Failure(69, f"a chat template needs jinja2 3.1.6 or later (earlier ones cannot confine it), and {jinja2.__version__} "
                              f"is installed; {install_command('-U jinja2')}")
        self.error, self.special = jinja2.exceptions.TemplateError, special

        class Generation(jinja2.ext.Extension):
            tags = {"generation"}

            def parse(self, parser):
                line = next(parser.stream).lineno
                body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
                return jinja2.nodes.CallBlock(self.call_method("enclose"), [], [], body).set_lineno(line)

            def enclose(self, caller):
                return BEGIN + caller() + END

        class Namespace(jinja2.utils.Namespace):
            """Without the names that lead into Python."""

            def __init__(*arguments, **named):
                attributes = dict(*arguments[1:], **named)
                for name in attributes:
                    refuse_inner(name)
                jinja2.utils.Namespace.__init__(arguments[0], attributes)

            def __setitem__(self, name, value):
                refuse_inner(name)
                jinja2.utils.Namespace.__setitem__(self, name, value)

        def refuse_inner(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"the name {name} is not for templates")

        def fail(message):
            raise jinja2.exceptions.TemplateError(message)

        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
        environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: \
            json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        environment.globals["raise_exception"] = fail
        environment.globals["namespace"] = Namespace
        environment.globals["dict"] = lambda *arguments, **named: dict(*arguments, **named)
        environment.globals["strftime_now"] = lambda text: datetime.datetime.now().strftime(text)
        try:
            self.template = environment.from_string(source)
        except self.error as error:
            raise Failure(65, f"the chat template is not valid: {first_lines(error)}")

    def render(self, messages, tools, row, prompt=False):
        try:
            return self.template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                                        **self.special)
        except Exception as error:  # whatever a template's code throws
            raise Failure(65, f"{row.place()}: the chat template refuses the conversation: {first_lines(error)}")

    def spans(self, messages, tools, row):
        """(text, [(begin, end)]): the characters that an assistant says, with the mark of their end."""
        text = self.render(messages, tools, row)
        if BEGIN in text:
            return without_marks(text)
        return text, [self.span_of(text, messages, at, tools, row) for at, message in enumerate(messages)
                      if message["role"] == "assistant"]

    def span_of(self, text, messages, at, tools, row):
        """The turn `at`: behind what the model is given as its prompt, up to the end of that turn in the text."""
        before = self.render(messages[:at], tools, row, prompt=True) if at else ""
        through = self.render(messages[:at + 1], tools, row)
        if text.startswith(before):
            begin = len(before)
            if text.startswith(through) and len(through) > begin:
                return begin, len(through.rstrip())
            # The template writes a turn otherwise when others follow (without its reasoning).
            content = messages[at].get("content")
            content = content.strip() if isinstance(content, str) else ""
            found = text.find(content, begin)
            ending = through[through.rfind(content) + len(content):].rstrip()
            if content and found >= 0 and text.startswith(ending, found + len(content)):
                return begin, found + len(content) + len(ending)
        raise Failure(65, f"{row.place()}: where message {at + 1} is in the text that the chat template makes cannot be told; "
                          "--loss all trains on all of it, or enclose the assistant's part of the template in "
                          "{% generation %} ... {% endgeneration %} (--chat-template FILE)")


def without_marks(text):
    pieces, spans, length = [], [], 0
    for piece in text.replace(END, BEGIN).split(BEGIN):
        pieces.append(piece)
        if len(pieces) % 2 == 0:  # blocks do not nest
            spans.append((length, length + len(piece)))
        length += len(piece)
    return "".join(pieces), spans


def flags_of(offsets, spans):
    """1 for each token of which a character is in a span. Some tokenizers give blanks no length: they count inside a span."""
    flags, spans = bytearray(len(offsets)), sorted(spans)
    at = 0
    for index, (begin, end) in enumerate(offsets):
        while at < len(spans) and spans[at][1] <= begin and not begin == end == spans[at][1]:
            at += 1
        if at == len(spans):
            break
        flags[index] = spans[at][0] < (end if begin < end else begin)
    return bytes(flags)
