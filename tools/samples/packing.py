"""How documents become samples of one length for causal models. A document comes in pieces of tokens, each with a flag for
every token that says whether the model shall learn to predict it (None: all).

`ahead` is 1 where labels[i] is the token after inputs[i], and 0 where it is inputs[i] itself, for models that shift their
labels. A token that is not learned has the label -100, as has padding. All packers give (inputs, labels, mask) as flat
arrays of whole samples to `emit(count, inputs, labels, mask)`."""
import array

IGNORED = -100
OPEN_SAMPLES = 32  # that Whole fills at a time


def masked(tokens, flags):
    if flags is None:
        return array.array("q", tokens)
    return array.array("q", (token if flag else IGNORED for token, flag in zip(tokens, flags)))


class Packer:
    def __init__(self, length, ahead, pad_id, emit):
        self.length, self.ahead, self.pad_id, self.emit = length, ahead, pad_id, emit
        self.num_cut = self.num_left_out = self.num_padded = 0

    def give(self, inputs, labels):
        """One sample, of at most the length; padded to it."""
        rest = self.length - len(inputs)
        self.num_padded += rest
        self.emit(1, inputs + array.array("q", [self.pad_id]) * rest, labels + array.array("q", [IGNORED]) * rest,
                  array.array("B", b"\1" * len(inputs) + bytes(rest)))

    def pairs(self, tokens, flags):
        """(inputs, labels) of tokens that belong together."""
        end = len(tokens) - self.ahead
        labels = masked(tokens[self.ahead:], flags[self.ahead:] if flags is not None else None)
        return array.array("q", tokens[:max(0, end)]), labels[:max(0, end)] if self.ahead == 0 else labels


class Joined(Packer):
    """All documents are one stream, cut every `length` tokens. The tail is left out, or kept as a padded sample."""

    def __init__(self, *arguments, keep_tail=False):
        super().__init__(*arguments)
        self.keep_tail = keep_tail
        self.tokens, self.flags = array.array("q"), None

    def add(self, tokens, flags, is_last):
        if flags is not None and self.flags is None:
            self.flags = bytearray(b"\1" * len(self.tokens))
        self.tokens.extend(array.array("q", tokens))
        if self.flags is not None:
            self.flags += bytes(flags) if flags is not None else b"\1" * len(tokens)
        count = (len(self.tokens) - self.ahead) // self.length
        if count > 0:
            self.cut(count)

    def cut(self, count):
        end = count * self.length
        inputs, labels = self.pairs(self.tokens[:end + self.ahead],
                                    self.flags[:end + self.ahead] if self.flags is not None else None)
        self.emit(count, inputs, labels, array.array("B", b"\1" * end))
        del self.tokens[:end]
        if self.flags is not None:
            del self.flags[:end]

    def finish(self):
        if self.keep_tail and len(self.tokens) > self.ahead:
            self.give(*self.pairs(self.tokens, self.flags))


class Single(Packer):
    """A document is a sample, cut or padded to the length."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tokens, self.flags, self.is_cut = array.array("q"), None, False

    def add(self, tokens, flags, is_last):
        wanted = self.length + self.ahead - len(self.tokens)
        self.is_cut = self.is_cut or len(tokens) > wanted
        if flags is not None:
            self.flags = (self.flags or b"") + bytes(flags[:wanted])
        self.tokens.extend(array.array("q", tokens[:wanted]))
        if not is_last:
            return
        inputs, labels = self.pairs(self.tokens, self.flags)
        self.num_cut += self.is_cut
        if not inputs or (self.flags is not None and all(label == IGNORED for label in labels)):
            self.num_left_out += 1
        else:
            self.give(inputs, labels)
        self.tokens, self.flags, self.is_cut = array.array("q"), None, False

    def finish(self):
        pass


class Whole(Packer):
    """Samples of whole documents and padding: a document is cut only where it is longer than a sample. No token is to be
    predicted from another document."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tokens, self.flags = array.array("q"), None
        self.open = []  # [(inputs, labels)]
        self.at_begin, self.is_cut = True, False

    def add(self, tokens, flags, is_last):
        self.tokens.extend(array.array("q", tokens))
        if flags is not None:
            self.flags = (self.flags or bytearray()) + bytes(flags)
        longest, at = self.length + self.ahead, 0
        while (left := len(self.tokens) - at) > longest or (is_last and left > 1):
            self.is_cut = self.is_cut or not self.at_begin
            end = at + min(left, longest)
            inputs, labels = self.pairs(self.tokens[at:end], self.flags[at:end] if self.flags is not None else None)
            if self.ahead == 0:
                labels[0] = IGNORED  # the model would predict it from the document in front of it
            # The next piece begins with the last token of this one, from which its first label is predicted.
            at += max(1, end - at - 1)
            self.at_begin = False
            self.place(inputs, labels)
        del self.tokens[:at]
        if self.flags is not None:
            del self.flags[:at]
        if is_last:
            self.num_left_out += self.at_begin
            self.num_cut += self.is_cut
            self.tokens, self.flags = array.array("q"), None
            self.at_begin, self.is_cut = True, False

    def place(self, inputs, labels):
        """Into the open sample that it fills best."""
        if self.flags is not None and all(label == IGNORED for label in labels):
            self.num_left_out += 1
            return
        fitting = [sample for sample in self.open if len(sample[0]) + len(inputs) <= self.length]
        if fitting:
            sample = max(fitting, key=lambda each: len(each[0]))
            sample[0].extend(inputs)
            sample[1].extend(labels)
        else:
            sample = (inputs, labels)
            self.open.append(sample)
        if len(sample[0]) == self.length or len(self.open) > OPEN_SAMPLES:
            fullest = max(self.open, key=lambda each: len(each[0]))
            self.open.remove(fullest)
            self.give(*fullest)

    def finish(self):
        for sample in self.open:
            self.give(*sample)
        self.open = []
