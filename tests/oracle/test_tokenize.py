#!/usr/bin/env python3
"""tools/tokenize: what it makes of texts, tables, chats and images, against the tokenizers' own libraries, transformers'
preprocessing and plain NumPy; and what it says of data that are not usable. Its functions are called in this process."""
import bz2
import contextlib
import gzip
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/support/python"), os.path.join(ROOT, "tools")]
sys.dont_write_bytecode = True
import model_packages  # noqa: E402
import tensor_file  # noqa: E402
from failure import exit_code_of  # noqa: E402
from samples import chat, convert, progress, rows, source_files  # noqa: E402

TOKENIZE = os.path.join(ROOT, "tools/tokenize")


class ToolTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="dsl-tokenize-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        before = os.getcwd()
        cls.addClassCleanup(os.chdir, before)
        os.chdir(cls.folder)
        cls.prepare()

    @classmethod
    def prepare(cls):
        """Files for all tests of the class, written into the working directory."""

    def file(self, name, content):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return name

    def lines(self, name, values):
        return self.file(name, "".join(json.dumps(value) + "\n" for value in values))

    def tokenize(self, *arguments):
        """(exit code, what it says)"""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = exit_code_of("tools/tokenize", convert.main, [str(each) for each in arguments])
        return code, said.getvalue()

    def made(self, *arguments):
        """The arrays of the file that the last word without a dash, or the one behind the input, names."""
        code, said = self.tokenize(*arguments)
        self.assertEqual(code, 0, said)
        self.said = said
        out = next(each for each in arguments if each.endswith((".safetensors", ".bin", ".npy")) and each != arguments[0])
        return tensor_file.read(out) if out.endswith(".safetensors") else numpy.fromfile(out, "u2")

    def assert_refused(self, code, words, *arguments):
        before = sorted(os.listdir("."))
        found, said = self.tokenize(*arguments)
        self.assertEqual(found, code, said)
        for word in words:
            self.assertIn(word, said)
        self.assertEqual(sorted(os.listdir(".")), before)


def cut(tokens, length, ahead=1):
    """Samples of a stream, element by element."""
    count = (len(tokens) - ahead) // length
    return [[[tokens[length * i + j + at] for j in range(length)] for i in range(count)] for at in (0, ahead)]


class Bytes(ToolTest):
    def test_streams_hold_every_byte_of_all_files_in_order(self):
        self.file("a.txt", b"hello"), self.file("b.txt", b" w\xff")
        self.made("a.txt", "b.txt", "s.bin")
        with open("s.bin", "rb") as file:
            self.assertEqual(file.read(), b"".join(bytes([b, 0]) for b in b"hello w\xff"))
        self.assertEqual(self.tokenize("a.txt", "s.npy", "--dtype", "uint8")[0], 0)
        self.assertEqual(numpy.load("s.npy").tobytes(), b"hello")
        self.assertEqual(numpy.load("s.npy").dtype, numpy.uint8)

    def test_what_is_not_a_regular_file_is_not_replaced(self):
        os.mkfifo("pipe.safetensors")
        text = self.file("a.txt", b"hello world")
        self.assert_refused(73, ["'pipe.safetensors': it is a pipe"], text, "pipe.safetensors", "--seq", "4")

    def test_a_number_of_ten_thousand_digits_is_refused_with_its_line(self):
        rows = self.file("rows.jsonl", '{"text": "a"}\n{"text": ' + "9" * 10000 + "}\n")
        self.assert_refused(65, ["'rows.jsonl' line 2: a number of more than"], rows, "rows.safetensors", "--seq", "4")

    def test_samples_have_the_next_token_as_label(self):
        text = bytes(range(40, 51))
        arrays = self.made(self.file("c.txt", text), "c.safetensors", "--seq", "4")
        self.assertEqual(sorted(arrays), ["input_ids", "labels"])
        inputs, labels = cut(text, 4)
        self.assertEqual(arrays["input_ids"].tolist(), inputs)
        self.assertEqual(arrays["labels"].tolist(), labels)

    def test_labels_may_be_the_inputs_again(self):
        text = bytes(range(40, 50))
        arrays = self.made(self.file("g.txt", text), "g.safetensors", "--seq", "4", "--pad", "--labels", "same")
        self.assertEqual(arrays["input_ids"].tolist(), [list(text[0:4]), list(text[4:8]), [48, 49, 0, 0]])
        self.assertEqual(arrays["labels"].tolist(), [list(text[0:4]), list(text[4:8]), [48, 49, -100, -100]])

    def test_padding_is_masked(self):
        arrays = self.made(self.file("d.txt", bytes(range(40, 51))), "d.safetensors", "--seq", "4", "--pad")
        self.assertEqual(arrays["input_ids"][2].tolist(), [48, 49, 0, 0])
        self.assertEqual(arrays["labels"][2].tolist(), [49, 50, -100, -100])
        self.assertEqual(arrays["mask"].tolist(), [[1] * 4, [1] * 4, [1, 1, 0, 0]])

    def test_each_line_is_a_sample(self):
        """Its end is its last token; longer ones are cut, blank ones are none."""
        self.file("g.txt", b"ab\n \n\nabcdef\n"), self.file("h.txt", b"c\xff\x0cde\rf")
        arrays = self.made("g.txt", "h.txt", "g.safetensors", "--seq", "4", "--lines", "--mask-name", "kept")
        self.assertEqual(arrays["input_ids"].tolist(), [[97, 98, 0, 0], [97, 98, 99, 100], [99, 255, 12, 100]])
        self.assertEqual(arrays["labels"].tolist(), [[98, 10, -100, -100], [98, 99, 100, 101], [255, 12, 100, 101]])
        self.assertEqual(arrays["kept"].tolist(), [[1, 1, 0, 0], [1] * 4, [1] * 4])

    def test_a_file_longer_than_a_piece(self):
        text = os.urandom(1000) * 1100
        inputs, labels = cut(numpy.frombuffer(text, "u1"), 1000)
        arrays = self.made(self.file("long.txt", text), "long.safetensors", "--seq", "1000", "--dtype", "uint8")
        self.assertTrue(numpy.array_equal(arrays["input_ids"], inputs) and numpy.array_equal(arrays["labels"], labels))

    def test_documents_of_a_table_end_in_a_line_feed(self):
        values = [{"text": "ab"}, {"text": "é\n"}, {"text": ""}, {"text": None}, {"text": "cdef"}]
        stream = self.made(self.lines("t.jsonl", values), "t.bin")
        self.assertEqual(bytes(stream.tolist()), "ab\né\ncdef\n".encode())
        self.assertIn("2 rows with an empty column left out", self.said)
        self.assertEqual(bytes(self.made("t.jsonl", "t.bin", "--eos", "none").tolist()), "abé\ncdef".encode())

    def test_whole_documents_share_samples(self):
        documents = [bytes([65 + i]) * (1 + 7 * i % 13) for i in range(26)]
        self.lines("w.jsonl", [{"text": each.decode()} for each in documents])
        for kind, ahead in (("next", 1), ("same", 0)):
            arrays = self.made("w.jsonl", "w.safetensors", "--seq", "8", "--packing", "whole", "--labels", kind)
            found, learned = [], 0
            for inputs, labels, mask in zip(*(arrays[name].tolist() for name in ("input_ids", "labels", "mask"))):
                used = sum(mask)
                self.assertEqual((mask, inputs[used:], labels[used:]),
                                 ([1] * used + [0] * (8 - used), [0] * (8 - used), [-100] * (8 - used)))
                for at in range(used):  # never a token of another document
                    if labels[at] != -100:
                        learned += 1
                        if ahead:
                            self.assertIn(labels[at], (inputs[at], 10))
                        else:
                            self.assertTrue(labels[at] == inputs[at] and (at == 0 or inputs[at] == 10 or inputs[at - 1] == inputs[at]))
                found += inputs[:used]
            ends = [each + b"\n" for each in documents]
            longer = sum(len(each) > 8 + ahead for each in ends)
            self.assertGreater(longer, 0)
            self.assertIn(f"{longer} longer documents in pieces", self.said)
            self.assertEqual(learned, sum(len(each) - 1 for each in ends))
            if ahead:
                self.assertEqual(sorted(found), sorted(b"".join(each[:-1] for each in ends)))

    def test_one_document_a_sample(self):
        self.lines("o.jsonl", [{"text": "abc"}, {"text": "d"}, {"text": "efghijk"}])
        arrays = self.made("o.jsonl", "o.safetensors", "--seq", "4", "--packing", "none")
        self.assertEqual(arrays["input_ids"].tolist(), [[97, 98, 99, 0], [100, 0, 0, 0], [101, 102, 103, 104]])
        self.assertEqual(arrays["labels"].tolist(), [[98, 99, 10, -100], [10, -100, -100, -100], [102, 103, 104, 105]])
        self.assertIn("1 longer document cut", self.said)

    def test_completions_are_learned_and_prompts_are_not(self):
        self.lines("p.jsonl", [{"prompt": "ab", "completion": "cé"}, {"prompt": "", "completion": "x"},
                               {"prompt": "abcdefgh", "completion": "y"}])
        arrays = self.made("p.jsonl", "p.safetensors", "--seq", "6")
        first = [97, 98, 99, 0xc3, 0xa9, 10]
        self.assertEqual(arrays["input_ids"].tolist(), [first[:5] + [0], [120, 0, 0, 0, 0, 0]])
        self.assertEqual(arrays["labels"].tolist(), [[-100, 99, 0xc3, 0xa9, 10, -100], [10] + [-100] * 5])
        self.assertIn("1 document without a token to learn left out", self.said)
        arrays = self.made("p.jsonl", "p.safetensors", "--seq", "6", "--labels", "same")
        self.assertEqual(arrays["labels"][0].tolist(), [-100, -100, 99, 0xc3, 0xa9, 10])
        arrays = self.made("p.jsonl", "p.safetensors", "--seq", "6", "--packing", "joined", "--loss", "all")
        stream = b"abc\xc3\xa9\nx\nabcdefghy\n"
        self.assertEqual([arrays["input_ids"].tolist(), arrays["labels"].tolist()], cut(stream, 6))
        arrays = self.made("p.jsonl", "p.safetensors", "--seq", "6", "--packing", "joined")
        flags = [0, 0, 1, 1, 1, 1, 1, 1] + [0] * 8 + [1, 1]
        wanted = [[token if flags[1 + 6 * i + j] else -100 for j, token in enumerate(row)]
                  for i, row in enumerate(cut(stream, 6)[1])]
        self.assertEqual(arrays["labels"].tolist(), wanted)

    def test_prompts_of_instructions_and_of_a_format(self):
        self.lines("i.jsonl", [{"instruction": "Add.", "input": "1 2", "output": "3"}, {"instruction": "Hi.", "input": "", "output": "Ho"}])
        ids = self.made("i.jsonl", "i.safetensors", "--seq", "400")["input_ids"]
        texts = [bytes(row[row > 0].tolist()).decode() for row in ids]
        self.assertEqual(texts[0], "Below is an instruction that describes a task, paired with an input that provides further "
                         "context. Write a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n"
                         "### Input:\n1 2\n\n### Response:\n3")
        self.assertEqual(texts[1], "Below is an instruction that describes a task. Write a response that appropriately completes "
                         "the request.\n\n### Instruction:\nHi.\n\n### Response:\nHo")
        ids = self.made("i.jsonl", "i.safetensors", "--seq", "40", "--prompt-format", "{instruction}\\n{input}|")["input_ids"]
        self.assertEqual(bytes(ids[0][ids[0] > 0].tolist()), b"Add.\n1 2|3")
        self.assert_refused(65, ["'nothing'", "instruction, input, output"], "i.jsonl", "x.safetensors", "--seq", "40",
                            "--prompt-format", "{nothing}")

    def test_classes_by_name_number_and_value(self):
        self.lines("n.jsonl", [{"text": text, "label": label} for text, label in (("ab", "dog"), ("c", "cat"), ("defgh", "dog"))])
        arrays = self.made("n.jsonl", "n.safetensors", "--seq", "4")
        self.assertEqual(arrays["labels"].tolist(), [1, 0, 1])
        self.assertEqual(arrays["attention_mask"].tolist(), [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
        self.assertEqual(arrays["input_ids"].tolist(), [[97, 98, 0, 0], [99, 0, 0, 0], [100, 101, 102, 103]])
        with open("n.classes.json") as file:
            self.assertEqual(json.load(file), ["cat", "dog"])
        self.lines("m.jsonl", [{"text": "a", "label": "cat"}])
        for names in ("n.classes.json", "n.safetensors", self.file("names.txt", "cat\ndog\n")):
            self.assertEqual(self.made("m.jsonl", "m.safetensors", "--seq", "4", "--classes", names)["labels"].tolist(), [0])
        self.assert_refused(65, ["'n.jsonl' line 1", "'dog' is not one of the classes"], "n.jsonl", "x.safetensors", "--seq", "4",
                            "--classes", self.file("other.txt", "cat\nfish\n"))
        table = "stars,review\n2,good\n0,bad\n"
        arrays = self.made(self.file("s.csv", table), "n.safetensors", "--seq", "4", "--columns", "text=review,label=stars")
        self.assertEqual(arrays["labels"].tolist(), [2, 0])
        self.assertFalse(os.path.exists("n.classes.json"))  # it was that of the file that is replaced
        arrays = self.made("s.csv", "n.safetensors", "--seq", "4", "--columns", "text=review,label=stars", "--label-type", "values")
        self.assertTrue(torch.equal(arrays["labels"], torch.tensor([2.0, 0.0])))
        arrays = self.made(self.file("f.tsv", "sentence\tlabel\na\t1\nb\t0.5\n"), "f.safetensors", "--seq", "4")
        self.assertTrue(torch.equal(arrays["labels"], torch.tensor([1.0, 0.5])))

    def test_pairs_of_source_and_target(self):
        self.lines("e.jsonl", [{"translation": {"en": "abc", "de": "x"}}, {"translation": {"en": "d", "de": "wxyz"}}])
        arrays = self.made("e.jsonl", "e.safetensors", "--seq", "4", "--target-seq", "3", "--source-prefix", ">")
        self.assertEqual(arrays["input_ids"].tolist(), [[62, 97, 98, 99], [62, 100, 0, 0]])
        self.assertEqual(arrays["attention_mask"].tolist(), [[1, 1, 1, 1], [1, 1, 0, 0]])
        self.assertEqual(arrays["labels"].tolist(), [[120, -100, -100], [119, 120, 121]])
        self.assertIn("source is 'translation.en', target is 'translation.de'", self.said)
        arrays = self.made("e.jsonl", "e.safetensors", "--seq", "2", "--columns", "source=translation.de,target=translation.en")
        self.assertEqual(arrays["input_ids"].tolist(), [[120, 0], [119, 120]])

    def test_the_header_has_room_for_many_names(self):
        """Where it has not, the names are in the other file alone."""
        self.lines("many.jsonl", [{"text": "a", "label": f"a long name of a class {i}"} for i in range(400)])
        arrays = self.made("many.jsonl", "many.safetensors", "--seq", "2")
        self.assertEqual(len(set(arrays["labels"].tolist())), 400)
        with open("many.classes.json") as file:
            names = json.load(file)
        self.assertEqual(names[arrays["labels"][57]], "a long name of a class 57")

    def test_byte_level_needs_no_package(self):
        self.file("f.txt", b"abc"), self.lines("f.jsonl", [{"text": "abc"}])
        for name in ("f.txt", "f.jsonl"):
            outcome = subprocess.run([sys.executable, "-S", "-I", TOKENIZE, name, "f.bin"], capture_output=True, timeout=60)
            self.assertEqual(outcome.returncode, 0, outcome.stderr)


class Files(ToolTest):
    """Every format that needs no package, and what is said of files that are damaged."""

    def read(self, *paths, **options):
        return [row.values for row in rows.read(source_files.find(list(paths)), progress.Progress("", 0, stream=io.StringIO()), **options)]

    def test_tables(self):
        wanted = [{"a": "1", "b": "x,\ny"}, {"a": "é", "b": '"'}]
        text = 'a,b\n1,"x,\ny"\né,""""\n'
        self.assertEqual(self.read(self.file("t.csv", "\ufeff" + text)), wanted)
        self.assertEqual(self.read(self.file("t.csv.gz", gzip.compress(text.encode()))), wanted)
        self.assertEqual(self.read(self.file("semi.csv", text.replace("a,b", "a;b").replace("1,", "1;").replace("é,", "é;"))), wanted)
        self.assertEqual(self.read(self.file("t.tsv", "a\tb\r\n1\t2\r\n\r\n")), [{"a": "1", "b": "2"}])
        self.assertEqual(self.read(self.file("q.tsv", 'a\tb\nsay "x\t"\n'), quotes=False), [{"a": 'say "x', "b": '"'}])

    def test_json_in_all_its_forms(self):
        wanted = [{"n": i, "text": "é\n]}" * i, "deep": {"list": [1.5, None, {}]}} for i in range(40)]
        forms = {"lines.jsonl": "\n\n".join(map(json.dumps, wanted)), "list.json": json.dumps(wanted, indent=1),
                 "packed.json": json.dumps(wanted, ensure_ascii=False), "after.json": "\n".join(json.dumps(each, indent=2) for each in wanted),
                 "inside.json": json.dumps({"version": 1, "data": wanted}), "lines.jsonl.bz2": "\n".join(map(json.dumps, wanted))}
        before = rows.CHUNK
        self.addCleanup(setattr, rows, "CHUNK", before)
        for chunk in (before, 7):  # of a long file a part is in memory
            rows.CHUNK = chunk
            for name, text in forms.items():
                with self.subTest(name=name, chunk=chunk):
                    self.file(name, bz2.compress(text.encode()) if name.endswith("bz2") else text)
                    self.assertEqual(self.read(name), wanted)

    def test_a_directory_of_tables(self):
        for i in (2, 1):
            self.lines(f"many/part{i}.jsonl", [{"text": str(i)}])
        self.file("many/.hidden.csv", "")
        self.assertEqual(self.read("many"), [{"text": "1"}, {"text": "2"}])

    def test_directories_that_do_not_say_which_files_are_meant(self):
        for name in ("hub/README.md", "hub/data/train-0.parquet", "hub/data/test-0.parquet"):
            self.file(name, b"")
        self.file("sets/dataset_dict.json", "{}"), self.file("sets/train/state.json", "{}")
        self.file("set/state.json", '{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}')
        for path, words in (("hub", ["'hub/data' has"]), ("hub/data", ["splits test, train", "hub/data/train*"]),
                            ("sets", ["splits train", "'sets/train'"]), ("set", ["flatten_indices"]),
                            ("sets/train", ["'sets/train/state.json' does not list"])):
            self.assert_refused(65, words, path, "x.bin")

    def test_squads_own_files(self):
        document = {"version": "2.0", "data": [{"title": "T", "paragraphs": [
            {"context": "a b c", "qas": [{"question": "?", "id": "1", "answers": [{"text": "b", "answer_start": 2}]}]}]}]}
        self.assertEqual(self.read(self.file("squad.json", json.dumps(document))),
                         [{**document["data"][0]["paragraphs"][0]["qas"][0], "context": "a b c", "title": "T"}])

    def test_damaged_files_are_named_with_the_place(self):
        good = '{"text": "a"}\n'
        for name, content, words in (
                ("bad.jsonl", good + '{"text": "a"\n', ["'bad.jsonl' line 2", "not JSON", "character 14"]),
                ("number.jsonl", good + "\n3\n", ["line 3", "a number (3)", "an object"]),
                ("latin.jsonl", good.encode() + b'{"text": "\xe9"}\n', ["line 2", "not UTF-8", "byte 11", "iconv"]),
                ("deep.jsonl", "[" * 100_000, ["'deep.jsonl' line 1"]),
                ("list.json", '[{"text": "a"},\n{"text" "b"}]', ["'list.json' line 2", "Expecting ':'"]),
                ("cut.json", '[{"text": "a"},\n{"text": ', ["'cut.json' line 2", "not JSON"]),
                ("open.json", '[{"text": "a"}', ["'open.json' line 1", "expected ',' or ']'"]),
                ("more.json", '[{"text": "a"}] x', ["'more.json' line 1", "more text"]),
                ("latin.json", b'[{"text": "\xe9"}]', ["'latin.json'", "not UTF-8"]),
                ("wide.csv", 'text,b\n"1\n2",2\n1,2,3\n', ["'wide.csv' line 4", "3 fields", "2 columns (text, b)"]),
                ("twice.csv", "text,text\n1,2\n", ["'text' is there twice"]),
                ("open.csv", 'text,b\n1,"2\n', ["'open.csv' line 2", "--no-quotes"]),
                ("latin.csv", b"text\n\xe9\n", ["'latin.csv' line 2", "not UTF-8"]),
                ("cut.jsonl.gz", gzip.compress(good.encode() * 9)[:-12], ["'cut.jsonl.gz' is damaged"]),
                ("not.jsonl.gz", b"{}", ["not.jsonl.gz"]),
                ("empty.jsonl", b"", ["no rows in 'empty.jsonl'"]),
                ("head.csv", "text\n", ["no rows in 'head.csv'"])):
            with self.subTest(name=name):
                self.file(name, content)
                self.assert_refused(65, words, name, "x.bin")

    def test_wrong_values_are_named_with_the_place(self):
        for values, words, arguments in (
                ([{"text": "a"}, {"text": 3}], ["line 2", "'text' is a number (3), expected a text"], []),
                ([{"text": "a"}, {"body": "b", "c": 1}], ["line 2: no column 'text'; it has body, c"], []),
                ([{"a": "x", "b": "y"}], ["the columns a, b", "--task TASK", "ROLE=COLUMN"], []),
                ([{"a": "x", "b": "y"}], ["'w.jsonl' line 1: no column 'c'; it has a, b"], ["--columns", "text=c"]),
                ([{"text": "a\ud83d"}], ["'w.jsonl' line 1", "'\\ud83d' is half of a character"], []),
                ([{"prompt": "x", "b": "y"}], ["the completion of task completion", "It has prompt, b"], ["--task", "completion"]),
                ([{"messages": [{"content": "x"}]}], ["line 1: message 1 has no role"], ["--task", "chat"]),
                ([{"messages": "x"}], ["line 1: the conversation is a text"], ["--columns", "messages=messages"])):
            with self.subTest(values=values):
                self.lines("w.jsonl", values)
                more = ["--chat-template", self.file("t.jinja", "{{ messages }}"), "--loss", "all"] if "messages" in values[0] else []
                self.assert_refused(65, words, "w.jsonl", "x.bin", *arguments, *more)
        for label, words in ((float("nan"), ["line 1: the label is nan"]), (2, ["the label is 2, but there are names of 2 classes"])):
            self.lines("w.jsonl", [{"text": "a", "label": label}])
            self.assert_refused(65, words, "w.jsonl", "x.safetensors", "--seq", "4", *(
                ["--classes", self.file("two.txt", "a\nb\n")] if label == 2 else []))
        for labels, words in (([1, "a"], ["line 2", "the label is 'a'", "whole numbers"]), ([0, -1], ["line 2", "is -1"]),
                              ([[1]], ["a label is a list"])):
            with self.subTest(labels=labels):
                self.lines("w.jsonl", [{"text": "a", "label": 0}] * 300 * (len(labels) > 1 and labels[1] == "a")
                           + [{"text": "a", "label": label} for label in labels])
                words = [word.replace("line 2", "line 302") for word in words] if labels[-1] == "a" else words
                self.assert_refused(65, words, "w.jsonl", "x.safetensors", "--seq", "4")

    def test_usage_errors_have_messages(self):
        self.file("e.txt", b"abc"), self.file("empty.txt", b""), self.file("one.txt", b"a"), self.file("x.pt", b"a")
        self.lines("e.jsonl", [{"text": "a"}]), self.lines("both/a.jsonl", [{}]), self.file("both/b.csv", "a\n")
        self.lines("q.jsonl", [{"question": "a", "context": "b", "answers": "b"}]), self.lines("chat.jsonl", [{"messages": [{}]}])
        self.lines("p.jsonl", [{"prompt": "a", "completion": "b"}]), self.lines("n.jsonl", [{"text": "a", "label": 1}])
        for code, words, arguments in (
                (64, ["an input and an output"], ["e.txt"]),
                (64, [".bin, .npy or .safetensors"], ["e.txt", "x.txt"]),
                (64, ["--seq"], ["e.txt", "x.safetensors"]),
                (64, ["--seq"], ["e.jsonl", "x.safetensors"]),
                (65, ["too few"], ["e.txt", "x.safetensors", "--seq", "4"]),
                (65, ["no tokens"], ["empty.txt", "x.bin"]),
                (65, ["no tokens"], ["empty.txt", "x.safetensors", "--seq", "4", "--lines"]),
                (65, ["no line has two tokens"], ["one.txt", "x.safetensors", "--seq", "4", "--lines"]),
                (64, ["--seq L"], ["e.txt", "x.bin", "--lines"]),
                (64, ["--labels go with --seq"], ["e.txt", "x.bin", "--labels", "same"]),
                (64, ["exclude each other"], ["e.txt", "x.safetensors", "--seq", "4", "--lines", "--pad"]),
                (66, ["no.txt"], ["no.txt", "x.bin"]),
                (73, ["cannot write"], ["e.txt", "no/folder/x.bin"]),
                (66, ["tokenizer.json"], ["e.txt", "x.bin", "--tokenizer", "tokenizer.json"]),
                (65, ["'both' has no tokenizer"], ["e.txt", "x.bin", "--tokenizer", "both"]),
                (64, ["--lines is for text files"], ["e.jsonl", "x.safetensors", "--seq", "4", "--lines"]),
                (64, ["--loss goes with chat and completion", "task text"], ["e.txt", "x.safetensors", "--seq", "1", "--loss", "all"]),
                (64, ["--task, --columns and --no-quotes are for tables"], ["e.txt", "x.bin", "--columns", "text=a"]),
                (64, ["no role 'texts'", "did you mean 'text'"], ["e.jsonl", "x.bin", "--columns", "texts=a"]),
                (64, ["ROLE=COLUMN"], ["e.jsonl", "x.bin", "--columns", "text"]),
                (64, ["--pad keeps the tail"], ["p.jsonl", "x.safetensors", "--seq", "4", "--pad"]),
                (64, ["--no-quotes goes with .csv and .tsv"], ["e.jsonl", "x.bin", "--no-quotes"]),
                (64, ["--mask-name"], ["e.jsonl", "x.bin", "--mask-name", "m"]),
                (64, ["--mask-name labels"], ["e.jsonl", "x.safetensors", "--seq", "4", "--mask-name", "labels"]),
                (64, ["writes samples"], ["n.jsonl", "x.bin", "--task", "classification"]),
                (64, ["--stride goes with question-answering"], ["e.jsonl", "x.bin", "--stride", "4"]),
                (64, ["--loss all"], ["chat.jsonl", "x.bin", "--chat-template", "e.txt"]),
                (64, ["an input and the output"], ["e.jsonl", "x.safetensors", "x.safetensors", "--seq", "4"]),
                (64, ["need a --tokenizer"], ["q.jsonl", "x.safetensors", "--seq", "4"]),
                (65, ["byte level has no chat template"], ["chat.jsonl", "x.safetensors", "--seq", "4"]),
                (65, ["'x.pt' is a file of PyTorch"], ["x.pt", "x.bin"]),
                (65, ["several sorts (csv, json lines)"], ["both", "x.bin"]),
                (65, ["inputs of one sort"], ["e.txt", "e.jsonl", "x.bin"])):
            with self.subTest(arguments=arguments):
                if "x.safetensors" in arguments[:-1] and arguments.count("x.safetensors") > 1:
                    self.file("x.safetensors", b"")
                self.assert_refused(code, words, *arguments)
                if os.path.exists("x.safetensors"):
                    os.unlink("x.safetensors")

    def test_what_was_begun_is_removed(self):
        """At Ctrl-C, as at an error; a file that was there before stays as it was."""
        self.lines("c.jsonl", [{"text": "a", "label": 0}] * 3), self.file("c.safetensors", b"before")
        before = sorted(os.listdir("."))
        original = rows.json_lines

        def interrupted(file, path):
            for number, row in enumerate(original(file, path)):
                if number == 2:
                    self.seen = [name for name in os.listdir(".") if ".part" in name]
                    raise KeyboardInterrupt
                yield row

        self.addCleanup(setattr, rows, "json_lines", original)
        first = convert.Table.first_rows
        self.addCleanup(setattr, convert.Table, "first_rows", first)
        convert.Table.first_rows = lambda table, count: first(table, min(count, 1))
        rows.json_lines = interrupted
        self.assertEqual(self.tokenize("c.jsonl", "c.safetensors", "--seq", "4")[0], 130)
        self.assertEqual(sorted(self.seen), ["c.safetensors.part", "c.safetensors.part.attention_mask", "c.safetensors.part.labels"])
        self.assertEqual(sorted(os.listdir(".")), before)
        with open("c.safetensors", "rb") as file:
            self.assertEqual(file.read(), b"before")

    def test_progress_is_one_line_on_a_terminal_and_rare_lines_elsewhere(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        now = [0.0]
        for stream, wanted in ((Terminal(), "\rout: 3 rows, 2.0k tokens, 1.0 MB/s, 25 %, 0:03 left\r"), (io.StringIO(), "")):
            shown = progress.Progress("out", 4_000_000, stream=stream, clock=lambda: now[0])
            now[0] += 1
            shown.add_bytes(1_000_000)
            shown.add(3, 2000)
            shown.clear()
            self.assertEqual(stream.getvalue().replace(" " * 40, "").strip(" ").rstrip(" \r") + "\r" * bool(wanted), wanted)
            if not wanted:
                now[0] += 30
                shown.add(1, 0)
                self.assertEqual(stream.getvalue(), "out: 4 rows, 2.0k tokens, 0.0 MB/s, 25 %, 1:33 left\n")


class Pictures(ToolTest):
    def records(self, name, labels, num_label_bytes, seed=0):
        generator = numpy.random.default_rng(seed)
        images = generator.integers(0, 256, (len(labels), 3, 32, 32), dtype=numpy.uint8)
        heads = numpy.array(labels, dtype=numpy.uint8).reshape(len(labels), num_label_bytes)
        self.file(name, numpy.concatenate([heads, images.reshape(len(labels), -1)], 1).tobytes())
        return images

    def test_cifar_10(self):
        first = self.records("c10/data_batch_1.bin", [3, 9], 1)
        second = self.records("c10/data_batch_2.bin", [0], 1, seed=1)
        self.records("c10/test_batch.bin", [1], 1)
        self.file("c10/batches.meta.txt", "\n".join(f"kind {i}" for i in range(10)) + "\n\n")
        arrays = self.made("c10", "c10.safetensors")
        self.assertEqual(arrays["labels"].tolist(), [3, 9, 0])
        images = numpy.concatenate([first, second])
        numpy.testing.assert_allclose(arrays["pixel_values"].numpy(), images / numpy.float32(127.5) - 1, atol=1e-6)
        arrays = self.made("c10/test_batch.bin", "c10.safetensors", "--mean", "0.4,0.5,0.6", "--std", "0.2,0.3,0.1")
        scaled = (first[:1] / 255 - numpy.reshape([0.4, 0.5, 0.6], (3, 1, 1))) / numpy.reshape([0.2, 0.3, 0.1], (3, 1, 1))
        numpy.testing.assert_allclose(arrays["pixel_values"].numpy(), scaled, rtol=1e-5, atol=1e-6)
        arrays = self.made("c10", "c10.safetensors", "--dtype", "uint8")
        self.assertTrue(numpy.array_equal(arrays["pixel_values"].numpy(), images))
        with open("c10.classes.json") as file:
            self.assertEqual(json.load(file)[3], "kind 3")

    def test_cifar_100(self):
        images = self.records("c100/train.bin", [[19, 99], [0, 7]], 2)
        for more, labels in (([], [99, 7]), (["--coarse"], [19, 0])):
            arrays = self.made("c100", "c100.safetensors", "--dtype", "uint8", *more)
            self.assertEqual(arrays["labels"].tolist(), labels)
            self.assertTrue(numpy.array_equal(arrays["pixel_values"].numpy(), images))

    def test_files_that_are_not_cifar(self):
        self.records("bad/data_batch_1.bin", [3, 10], 1)
        self.assert_refused(65, ["'bad/data_batch_1.bin' record 2: class 10 of 10"], "bad", "x.safetensors")
        self.file("py/data_batch_1", b"")
        self.assert_refused(65, ["pickle", "binary version"], "py", "x.safetensors")
        self.assert_refused(64, ["32 x 32"], "bad", "x.safetensors", "--size", "64")
        self.assert_refused(64, ["--seq"], "bad", "x.safetensors", "--seq", "64")

    def test_a_directory_of_images_without_pillow_or_without_classes(self):
        self.file("photos/train/cat/1.png", b""), self.file("photos/test/cat/1.png", b"")
        self.assert_refused(65, ["splits test, train", "'photos/train'"], "photos", "x.safetensors")
        self.assert_refused(65, ["no directory for each class"], "photos/train/cat", "x.safetensors")
        if importlib.util.find_spec("PIL") is None:
            self.assert_refused(69, [f"{sys.executable} -m pip install pillow"], "photos/train", "x.safetensors")
        else:
            self.assert_refused(65, ["'photos/train/cat/1.png'", "not an image"], "photos/train", "x.safetensors")

    @unittest.skipIf(importlib.util.find_spec("PIL") is None, "Pillow is not here (pip install pillow)")
    def test_a_directory_of_images(self):
        import PIL.Image

        generator = numpy.random.default_rng(0)
        pictures = {}
        for name in ("dog/b.png", "cat/sub/a.png", "dog/a.bmp"):
            pictures[name] = generator.integers(0, 256, (20, 30, 3), dtype=numpy.uint8)
            os.makedirs(os.path.dirname(f"pets/{name}"), exist_ok=True)
            PIL.Image.fromarray(pictures[name]).save(f"pets/{name}")
        self.file("pets/dog/notes.txt", "")
        arrays = self.made("pets", "pets.safetensors", "--size", "20", "--dtype", "uint8")
        self.assertEqual(arrays["labels"].tolist(), [0, 1, 1])
        wanted = [pictures[name][:, 5:25].transpose(2, 0, 1) for name in ("cat/sub/a.png", "dog/a.bmp", "dog/b.png")]
        self.assertTrue(numpy.array_equal(arrays["pixel_values"].numpy(), wanted))
        self.assertIn("1 other file", self.said)
        arrays = self.made("pets", "pets.safetensors", "--size", "10x30", "--grayscale")
        self.assertEqual(list(arrays["pixel_values"].shape), [3, 1, 10, 30])
        grey = numpy.asarray(PIL.Image.fromarray(pictures["dog/b.png"]).convert("L"))[5:15] / 127.5 - 1
        numpy.testing.assert_allclose(arrays["pixel_values"][2, 0].numpy(), grey, atol=1e-6)


@unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "pyarrow is not here (pip install pyarrow)")
class Arrow(ToolTest):
    @classmethod
    def prepare(cls):
        import pyarrow
        import pyarrow.parquet

        cls.values = [{"text": f"text {i}", "label": i % 3, "more": {"de": "x" * (i + 1)}} for i in range(600)]
        table = pyarrow.Table.from_pylist(cls.values)
        features = {"info": {"features": {"label": {"names": ["bad", "fair", "good"], "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
        pyarrow.parquet.write_table(table, "t.parquet", row_group_size=100)
        os.makedirs("saved")
        with pyarrow.OSFile("saved/data-00000-of-00001.arrow", "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table, max_chunksize=100)
        with open("saved/state.json", "w") as file:
            json.dump({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}, file)
        with pyarrow.OSFile("file.arrow", "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)

    def test_all_formats_have_the_same_rows(self):
        texts = "".join(value["text"] + "\n" for value in self.values)
        for path in ("t.parquet", "saved", "file.arrow"):
            with self.subTest(path=path):
                self.assertEqual(bytes(self.made(path, "t.bin").tolist()).decode(), texts)
                arrays = self.made(path, "t.safetensors", "--seq", "8")
                self.assertEqual(arrays["labels"].tolist(), [value["label"] for value in self.values])
                with open("t.classes.json") as file:
                    self.assertEqual(json.load(file), ["bad", "fair", "good"])
                arrays = self.made(path, "t.safetensors", "--seq", "8", "--columns", "source=text,target=more.de")
                self.assertEqual(arrays["labels"][3].tolist(), [120] * 4 + [-100] * 4)
                self.assert_refused(65, ["row 1", "no column 'body'; it has text, label, more"], path, "x.bin", "--columns", "text=body")
        with open("t.parquet", "rb") as file:
            self.file("cut.parquet", file.read(500))
        self.assert_refused(65, ["'cut.parquet' cannot be read"], "cut.parquet", "x.bin")

    def test_a_page_that_misses_its_checksum_is_refused(self):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"text": "abcdefgh" * 40}]), "sums.parquet", compression="none",
                                    use_dictionary=False, write_statistics=False, write_page_checksum=True)
        with open("sums.parquet", "rb") as file:
            bytes_ = bytearray(file.read())
        bytes_[bytes_.index(b"abcdefgh" * 20) + 9] ^= 1
        self.file("sums.parquet", bytes(bytes_))
        self.assert_refused(65, ["'sums.parquet' cannot be read", "CRC"], "sums.parquet", "x.bin")


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Tokenizers(ToolTest):
    TEMPLATE = ("{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
                "{{ m['content'] + eos_token }}{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|end|>\n' }}{% endif %}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}")

    @classmethod
    def prepare(cls):
        """A byte-level one as GPT-2's, with a chat template, and one of words as BERT's."""
        import tokenizers
        import transformers
        from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

        with open(os.path.join(ROOT, "docs/data.md"), encoding="utf-8") as file:
            cls.text = file.read()
        bpe = tokenizers.Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.post_processor = processors.ByteLevel(trim_offsets=True)
        bpe.train_from_iterator([cls.text], trainers.BpeTrainer(
            vocab_size=500, special_tokens=["</s>", "<pad>", "<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False))
        cls.bpe = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>", pad_token="<pad>")
        cls.bpe.chat_template = cls.TEMPLATE
        cls.bpe.save_pretrained("bpe")
        words = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        words.normalizer = normalizers.BertNormalizer(lowercase=True)
        words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        words.train_from_iterator([cls.text], trainers.WordPieceTrainer(
            vocab_size=500, special_tokens=["[UNK]", "[PAD]", "[CLS]", "[SEP]"], show_progress=False))
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        words.enable_truncation(5)  # of the file's own, which must not cut documents
        cls.words = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]",
                                                         cls_token="[CLS]", sep_token="[SEP]")
        cls.words.save_pretrained("words")

    def test_documents_end_in_the_end_token(self):
        texts = [line for line in self.text.splitlines() if line]
        self.lines("t.jsonl", [{"text": text} for text in texts])
        wanted = [token for text in texts for token in [*self.bpe(text)["input_ids"], self.bpe.eos_token_id]]
        for tokenizer in ("bpe", "bpe/tokenizer.json"):  # through transformers, and without it
            self.assertEqual(self.made("t.jsonl", "t.bin", "--tokenizer", tokenizer).tolist(), wanted)
        arrays = self.made("t.jsonl", "t.safetensors", "--seq", "32", "--tokenizer", "bpe")
        self.assertEqual([arrays["input_ids"].tolist(), arrays["labels"].tolist()], cut(wanted, 32))
        stream = self.made("t.jsonl", "t.bin", "--tokenizer", "words").tolist()
        self.assertEqual(stream, [token for text in texts for token in self.words(text, truncation=False)["input_ids"]])
        self.assertIn("names no token that ends a document", self.said)

    def test_a_text_file_in_pieces(self):
        from samples import causal

        self.addCleanup(setattr, causal, "PIECE_BYTES", causal.PIECE_BYTES)
        causal.PIECE_BYTES = 500
        self.file("book.txt", self.text)
        self.assertEqual(self.made("book.txt", "book.bin", "--tokenizer", "bpe").tolist(),
                         [*self.bpe(self.text)["input_ids"], self.bpe.eos_token_id])
        self.assertEqual(self.made("book.txt", "book.bin", "--tokenizer", "words").tolist(),
                         self.words(self.text, truncation=False)["input_ids"])
        self.file("latin.txt", self.text.encode()[:2000].replace(b"\xe2", b"") + b"\n\xe9\n")
        self.assert_refused(65, ["'latin.txt'", "not UTF-8"], "latin.txt", "x.bin", "--tokenizer", "bpe")

    def conversations(self):
        return [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a sample?\n\n"},
                 {"role": "assistant", "content": "A row of arrays.\n\n é  "}, {"role": "user", "content": "And a batch?"},
                 {"role": "assistant", "content": "Many rows"}],
                [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "世界 hello"}]]

    def test_chats_as_transformers_renders_them(self):
        chats = self.conversations()
        self.lines("chats.jsonl", [{"messages": each} for each in chats])
        names = {"system": "system", "user": "human", "assistant": "gpt"}
        self.lines("shared.jsonl", [{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in each]}
                                    for each in chats])
        plain = self.TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        self.file("plain.jinja", plain)  # without marks a turn is what follows its prompt
        for path, tokenizer, more in (("chats.jsonl", "bpe", []), ("chats.jsonl", "bpe/tokenizer.json", []),
                                      ("chats.jsonl", "bpe", ["--chat-template", "plain.jinja"]), ("shared.jsonl", "bpe", [])):
            arrays = self.made(path, "chats.safetensors", "--seq", "128", "--tokenizer", tokenizer, "--labels", "same", *more)
            for row, messages in enumerate(chats):
                wanted = self.bpe.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
                ids, flags = wanted["input_ids"], wanted["assistant_masks"]
                self.assertEqual(arrays["input_ids"][row].tolist(), ids + [self.bpe.pad_token_id] * (128 - len(ids)))
                self.assertEqual(arrays["labels"][row].tolist()[:len(ids)], [i if f else -100 for i, f in zip(ids, flags)])
                self.assertEqual(arrays["mask"][row].tolist(), [1] * len(ids) + [0] * (128 - len(ids)))
        shifted = self.made("chats.jsonl", "chats.safetensors", "--seq", "127", "--tokenizer", "bpe")
        self.assertTrue(torch.equal(shifted["labels"][:, :126], arrays["labels"][:, 1:127]))
        everything = self.made("chats.jsonl", "chats.bin", "--tokenizer", "bpe", "--loss", "all").tolist()
        self.assertEqual(everything, sum((self.bpe.apply_chat_template(each, tokenize=True, return_dict=True)["input_ids"]
                                          for each in chats), []))

    def test_prompts_of_chats_as_transformers_renders_them(self):
        chats = [each[:-1] for each in self.conversations()]
        wanted = [(self.bpe.apply_chat_template(each, tokenize=False, add_generation_prompt=True),
                   self.bpe.apply_chat_template(each, add_generation_prompt=True, return_dict=True)["input_ids"]) for each in chats]
        one, several = json.dumps(chats[0]), json.dumps([{"messages": each} for each in chats])
        lines = "".join(json.dumps({"messages": each}) + "\n" for each in chats)
        for text, count in ((one, 1), (json.dumps(chats), 2), (several, 2), (lines, 2)):
            self.file("chat.json", text)
            code, said = self.tokenize("chat.json", "prompts.jsonl", "--tokenizer", "bpe")
            self.assertEqual(code, 0, said)
            with open("prompts.jsonl", encoding="utf-8") as file:
                found = [json.loads(line) for line in file]
            self.assertEqual([(each["prompt"], each["ids"]) for each in found], wanted[:count])
        for text, words in (("3", ["has no conversation"]), ("{", ["is not JSON"]), ('[{"content": "x"}]', ["conversation 1: message 1 has no role"])):
            self.file("chat.json", text)
            self.assert_refused(65, ["'chat.json'", *words], "chat.json", "p.jsonl", "--tokenizer", "bpe")
        self.assert_refused(64, ["--seq does not go with prompts of chats"], "chat.json", "p.jsonl", "--seq", "4")

    def test_a_template_that_drops_the_reasoning_of_earlier_turns(self):
        template = chat.ChatTemplate(
            "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ m.content }}"
            "<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}", {})
        row = rows.Row({}, "c.jsonl", 7)
        text, spans = template.spans(self.conversations()[0], None, row)
        self.assertEqual([text[begin:end] for begin, end in spans],
                         ["A row of arrays.\n\n é  <end>", "<think></think>Many rows<end>"])
        reversed_ones = chat.ChatTemplate("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", {})
        with self.assertRaisesRegex(convert.Failure, "'c.jsonl' line 7: where message 3 .* cannot be told"):
            reversed_ones.spans(self.conversations()[0], None, row)
        for broken, words in (("{% for %}", "not valid"), ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
                              ("{% set n = namespace(a=1) %}{% set n.__class__ = 2 %}", "not for templates"),
                              ("{{ ''.__class__.__mro__ }}", "unsafe")):
            with self.assertRaisesRegex(convert.Failure, words):
                chat.ChatTemplate(broken, {}).spans(self.conversations()[0], None, row)

    def test_tools_and_reasoning_reach_the_template(self):
        template = ("{% set n = namespace(k=0) %}{{ tools | tojson }}{% for m in messages %}{% set n.k = n.k + 1 %}{{ n.k }}{{ m.role }}"
                    "{{ m.reasoning_content }}{{ m.content }}{% endfor %}")
        tools = [{"type": "function", "function": {"name": "é", "parameters": {"a": "<"}}}]
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "thinking": "hm", "name": None}]
        self.lines("tools.jsonl", [{"messages": messages, "tools": tools}])
        self.file("tools.jinja", template)
        stream = self.made("tools.jsonl", "tools.bin", "--loss", "all", "--chat-template", "tools.jinja")
        self.assertEqual(bytes(stream.tolist()).decode(),
                         self.bpe.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False))

    def test_completions_follow_their_prompt(self):
        self.lines("p.jsonl", [{"prompt": "What is a batch? ", "completion": "many samples"}])
        arrays = self.made("p.jsonl", "p.safetensors", "--seq", "24", "--tokenizer", "bpe", "--labels", "same")
        whole = self.bpe("What is a batch? many samples", return_offsets_mapping=True)
        wanted = [i if end > 17 else -100 for i, (_, end) in zip(whole["input_ids"], whole["offset_mapping"])]
        wanted.append(self.bpe.eos_token_id)
        self.assertEqual(arrays["labels"][0].tolist(), wanted + [-100] * (24 - len(wanted)))

    def test_pairs_as_transformers_prepares_them(self):
        pairs = list(zip(self.text.splitlines()[:40], self.text.splitlines()[40:80]))
        pairs = [(source, target) for source, target in pairs if source and target]
        self.lines("s.jsonl", [{"source": source, "target": target} for source, target in pairs])
        arrays = self.made("s.jsonl", "s.safetensors", "--seq", "16", "--target-seq", "12", "--tokenizer", "words")
        options = {"padding": "max_length", "truncation": True}
        wanted = self.words([source for source, _ in pairs], max_length=16, **options)
        targets = self.words(text_target=[target for _, target in pairs], max_length=12, **options)["input_ids"]
        for name in ("input_ids", "attention_mask"):
            self.assertEqual(arrays[name].tolist(), wanted[name], name)
        pad = self.words.pad_token_id
        self.assertEqual(arrays["labels"].tolist(), [[-100 if i == pad else i for i in row] for row in targets])

    def test_two_texts_and_their_class(self):
        self.lines("n.jsonl", [{"premise": "a batch of samples", "hypothesis": "a sample", "label": "yes"},
                               {"premise": "the loss", "hypothesis": "the data of a run", "label": "no"}])
        arrays = self.made("n.jsonl", "n.safetensors", "--seq", "12", "--tokenizer", "words")
        wanted = self.words(["a batch of samples", "the loss"], ["a sample", "the data of a run"], padding="max_length",
                            truncation=True, max_length=12, return_token_type_ids=True)
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            self.assertEqual(arrays[name].tolist(), wanted[name], name)
        self.assertEqual(arrays["labels"].tolist(), [1, 0])

    def test_answers_as_the_question_answering_example_prepares_them(self):
        """prepare_train_features of transformers' run_qa.py."""
        paragraphs = [part for part in self.text.split("\n\n") if len(part) > 300][:6]
        examples = [{"question": f"  what is {i}?", "context": text,
                     "answers": {"text": [text[40 * i:40 * i + 25]], "answer_start": [40 * i]} if i else {"text": [], "answer_start": []}}
                    for i, text in enumerate(paragraphs)]
        self.lines("q.jsonl", examples)
        arrays = self.made("q.jsonl", "q.safetensors", "--seq", "48", "--stride", "16", "--tokenizer", "words")
        made = self.words([e["question"].lstrip() for e in examples], [e["context"] for e in examples], truncation="only_second",
                          max_length=48, stride=16, return_overflowing_tokens=True, return_offsets_mapping=True,
                          padding="max_length", return_token_type_ids=True)
        starts, ends = [], []
        for i, offsets in enumerate(made["offset_mapping"]):
            ids, sequence = made["input_ids"][i], made.sequence_ids(i)
            cls_index, answers = ids.index(self.words.cls_token_id), examples[made["overflow_to_sample_mapping"][i]]["answers"]
            starts.append(cls_index), ends.append(cls_index)
            if answers["answer_start"]:
                begin = answers["answer_start"][0]
                end = begin + len(answers["text"][0])
                first, last = sequence.index(1), len(ids) - 1
                while sequence[last] != 1:
                    last -= 1
                if offsets[first][0] <= begin and offsets[last][1] >= end:
                    while first < len(offsets) and offsets[first][0] <= begin and sequence[first] == 1:
                        first += 1
                    while offsets[last][1] >= end:
                        last -= 1
                    starts[-1], ends[-1] = first - 1, last + 1
        self.assertGreater(len(starts), len(examples))
        self.assertGreater(len({position for position in starts if position}), 3)
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            self.assertEqual(arrays[name].tolist(), made[name], name)
        self.assertEqual((arrays["start_positions"].tolist(), arrays["end_positions"].tolist()), (starts, ends))

    def test_answers_that_are_not_where_they_should_be(self):
        context = "the data of a run"
        for answers, words in (({"text": ["data"], "answer_start": [3]}, ["line 1", "character 3", "' dat'", "'data'"]),
                               ("date", ["line 1", "'date' is not in its context"]), ({"start": 1}, ["line 1", "an object (start)"]),
                               (7, ["line 1", "the answer is a number (7)"])):
            self.lines("a.jsonl", [{"question": "what?", "context": context, "answers": answers}])
            self.assert_refused(65, words, "a.jsonl", "x.safetensors", "--seq", "16", "--tokenizer", "words")
        self.lines("a.jsonl", [{"question": "what " * 20, "context": context, "answers": "data"}])
        count = len(self.words("what " * 20, add_special_tokens=False)["input_ids"])
        self.assert_refused(65, ["line 1", f"the question has {count} tokens", "--seq 16"], "a.jsonl", "x.safetensors", "--seq", "16",
                            "--tokenizer", "words")
        self.lines("a.jsonl", [{"question": "what?", "context": context, "answers": "data"},
                               {"question": "what?", "context": context, "answers": [{"text": "data", "answer_start": 4}]}])
        arrays = self.made("a.jsonl", "a.safetensors", "--seq", "24", "--tokenizer", "words")
        self.assertEqual(arrays["start_positions"][0], arrays["start_positions"][1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
