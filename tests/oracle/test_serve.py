#!/usr/bin/env python3
"""`dslaunch serve` as its clients see it: texts beside `dslaunch infer`, log-probabilities beside PyTorch's log_softmax, and
clients that are slow, send garbage, too much or half of a request. lm-evaluation-harness asks it where the Python has it
(PYTHONPATH of a directory made by `pip install --target DIR 'lm_eval[api]'`), under --slow.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_serve.py [Serving...]"""
import concurrent.futures
import contextlib
import http.client
import importlib.util
import json
import operator
import os
import re
import resource
import selectors
import signal
import socket
import subprocess
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import harness  # noqa: E402
import model_packages  # noqa: E402

POSITIONS = 48
DEVICE, RANKS = "cpu", 2  # of the server; that train the model
GROWTH = 64 << 20  # bytes that all hostile clients together may cost, beyond what each may send


class Server:
    """A server on a free port, with the connections that are opened to it."""

    def __init__(self, *words, **variables):
        command = [harness.program("dslaunch"), "serve", "--device", DEVICE, "--port", "0", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=harness.environment(**variables), start_new_session=True)
        self.first_line = self.process.stdout.readline()
        found = re.match(r"serving '(.*)' on http://127\.0\.0\.1:(\d+)/v1 \(Ctrl-C ends it\)\n", self.first_line)
        if not found:
            raise AssertionError(f"no server: {self.first_line!r} {self.process.communicate()}")
        self.model, self.port = found[1], int(found[2])

    def worker(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def memory(self):
        with open(f"/proc/{self.worker()}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) << 10

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def complete(self, **body):
        status, text = self.ask("POST", "/v1/completions", body)
        assert status == 200, (status, text)
        return json.loads(text)

    def events(self, **body):
        status, text = self.ask("POST", "/v1/completions", dict(body, stream=True))
        assert status == 200, (status, text)
        events = text.removesuffix("\n\n").split("\n\n")
        assert events[-1] == "data: [DONE]", text
        return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def hostile_clients():
    """(what it is, what it sends, whether it then ends its side, what it may be answered)"""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return [("garbage", bytes(range(256)) * 4, False, {400}),
            ("binary behind a good line", b"GET / HTTP/1.1\r\n\0\xff\xfe:\r\n\r\n", False, {400}),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 400, False, {400}),
            ("a header without an end", b"GET / HTTP/1.1\r\nA: " + b"a" * 40000, False, {431}),
            ("many headers", b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(4000)) + b"\r\n", False, {431}),
            ("a body of 9 MiB", head + b"Content-Length: 9437184\r\n\r\n" + b" " * 100000, False, {413}),
            ("a length that is none", head + b"Content-Length: 1e9\r\n\r\n", False, {400}),
            ("chunks", head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}   \r\n0\r\n\r\n", False, {411}),
            ("two lengths", head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", False, {400}),
            ("half a header", b"GET / HTTP/1.1\r\nHo", True, {400}),
            ("half a body", head + b"Content-Length: 100\r\n\r\n{\"prompt\": ", True, {400}),
            ("nothing", b"", True, set()),
            ("no JSON", head + b"Content-Length: 3\r\n\r\n}{]", False, {400}),
            ("deep JSON", head + b"Content-Length: 100000\r\n\r\n" + b"[" * 100000, False, {400}),
            ("another host", head.replace(b"localhost", b"evil.example") + b"Content-Length: 2\r\n\r\n{}", False, {403}),
            ("another path", b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", False, {404})]


def slow_clients():
    return [b"", b"G", b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"]


class ServeTest(harness.TrainingTest):
    def server(self, *words, **variables):
        server = Server(*words, **variables)
        self.addCleanup(server.process.stderr.close)
        self.addCleanup(server.process.stdout.close)
        self.addCleanup(server.process.wait)
        self.addCleanup(server.process.kill)
        return server

    def attack(self, server, count, slow):
        """Hostile clients, all at once, while `slow` slow ones hold their connections: the statuses of each kind, and the slow
        ones' sockets."""
        before = server.memory()
        sockets = []
        for i in range(slow):
            sockets.append(server.connect())
            sockets[-1].sendall(slow_clients()[i % len(slow_clients())])
        kinds = hostile_clients()
        selector = selectors.DefaultSelector()
        for i in range(count):
            what, sent, ends, allowed = kinds[i % len(kinds)]
            client = server.connect()
            with contextlib.suppress(ConnectionError):  # answered and closed before all is sent
                client.sendall(sent)
            if ends:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
            selector.register(client, selectors.EVENT_READ, (what, allowed, bytearray()))
        while selector.get_map():
            ready = selector.select(timeout=60)
            self.assertTrue(ready, "clients that are not answered")
            for key, _ in ready:
                what, allowed, answer = key.data
                part = b""
                with contextlib.suppress(ConnectionError):
                    part = key.fileobj.recv(65536)
                answer += part
                if part and not self.is_complete(answer):
                    continue
                selector.unregister(key.fileobj)
                key.fileobj.close()
                status = int(answer.split(b" ", 2)[1]) if answer else None
                self.assertIn(status, {*allowed, None}, f"{what}: {bytes(answer[:300])}")
                if status is not None:
                    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
                    self.assertTrue(error["message"], what)
        self.assertEqual(server.complete(prompt="a", max_tokens=1)["usage"]["completion_tokens"], 1)
        self.assertLess(server.memory() - before, GROWTH)
        return sockets

    @staticmethod
    def is_complete(answer):
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        return bool(length) and len(body) >= int(length[1])


class Serving(ServeTest):
    @classmethod
    def setUpClass(cls):
        """A model of bytes, trained by several ranks at stage 3, whose checkpoint nobody has consolidated."""
        super().setUpClass()
        model = cls.env.path("bytes.pt")
        with open(os.devnull, "w", encoding="ascii") as quiet, contextlib.redirect_stderr(quiet):
            cls.env.tool.main(["gpt", model, "--vocab", "256", "--seq", str(POSITIONS), "--blocks", "1", "--width", "32", "--heads",
                               "2", "--returns", "loss_logits"])
        arrays = {"input_ids": {"shape": [POSITIONS], "dtype": "int64", "low": 0, "high": 256}, "labels": {"like": "input_ids"}}
        config = {"train_batch_size": 4, "data": {"train": "synthetic", "synthetic": arrays},
                  "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}}
        _, cls.run_folder = cls.env.train(model, None, config, world=RANKS, steps=4)
        cls.oracle = torch.jit.load(cls.env.consolidate(cls.run_folder, "whole.pt")).eval()

    def log_softmax(self, ids):
        with torch.no_grad():
            ids = torch.tensor([ids])
            return torch.log_softmax(self.oracle(ids, ids)[1][0], -1)

    def infer(self, prompts, *words):
        options = [word for prompt in prompts for word in ("--prompt", prompt)]
        outcome = harness.run([harness.program("dsworker"), "infer", self.run_folder, "--device", DEVICE, "--json", *options, *words])
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)["texts"]

    def test_a_server_from_its_start_to_its_end(self):
        server = self.server(self.run_folder)
        self.assertEqual(server.model, os.path.basename(self.run_folder))
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(json.loads(server.ask("GET", "/v1/models")[1])["data"][0]["id"], server.model)
        self.check_texts(server)
        self.check_log_probabilities(server)
        self.check_harness_requests(server)
        self.check_hostile_clients(server)
        metrics = server.ask("GET", "/metrics")[1]
        self.assertRegex(metrics, r'dslaunch_completion_requests_total\{status="200"\} [1-9]\d+\n')
        self.check_taken_port(server)
        self.check_drain(server)

    def check_texts(self, server):
        """Alone, in one request, and in requests that are answered side by side: what infer writes."""
        prompts = ["To be", "or", "not to be, that is", "x", "ä"]
        seeds = {"max_tokens": 20, "temperature": 0.9, "seed": 5}
        drawn = self.infer(prompts, "--num_tokens", "20", "--temperature", "0.9", "--seed", "5")
        greedy = self.infer(prompts, "--num_tokens", "20", "--greedy")
        together = server.complete(prompt=prompts, **seeds)
        self.assertEqual([choice["text"] for choice in together["choices"]], [text["text"] for text in drawn])
        self.assertEqual([choice["token_ids"] for choice in together["choices"]], [text["ids"] for text in drawn])
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            asked = [pool.submit(server.complete, prompt=prompts[i % 5], **(dict(seeds, temperature=0) if i % 2 else seeds))
                     for i in range(30)]
            streamed = [pool.submit(server.events, prompt=prompt, **seeds) for prompt in prompts]
            for i, one in enumerate(asked):
                wanted = (greedy if i % 2 else drawn)[i % 5]
                self.assertEqual(one.result()["choices"][0]["text"], wanted["text"], i)
            for wanted, events in zip(drawn, streamed):
                parts = [event.get("choices")[0] for event in events.result()]
                self.assertEqual("".join(part["text"] for part in parts), wanted["text"])
                self.assertEqual(sum((part["token_ids"] for part in parts), []), wanted["ids"])
                self.assertGreater(len(parts), 1)

    def check_log_probabilities(self, server):
        ids = list(b"the quick brown fox")
        scores = server.complete(prompt=ids, max_tokens=0, echo=True, logprobs=3)["choices"][0]["logprobs"]
        expected = self.log_softmax(ids)
        self.assertIsNone(scores["token_logprobs"][0])
        for position, (own, top) in enumerate(zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:])):
            self.assertAlmostEqual(own, expected[position, ids[position + 1]].item(), delta=1e-4)
            best = expected[position].topk(3).values.tolist()
            for found, wanted in zip(sorted(top.values(), reverse=True), best):
                self.assertAlmostEqual(found, wanted, delta=1e-4)
        self.assertEqual(scores["tokens"], [chr(i) for i in ids])
        self.assertEqual(scores["text_offset"], list(range(len(ids))))

    def check_harness_requests(self, server):
        """What lm-evaluation-harness' local-completions sends for loglikelihood, and how it reads the answer."""
        context, continuation = list(b"A question? "), list(b"an answer")
        payload = {"model": server.model, "prompt": [context + continuation, context + continuation[:3]], "temperature": 0,
                   "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
        choices = sorted(server.complete(**payload)["choices"], key=operator.itemgetter("index"))
        expected = self.log_softmax(context + continuation)
        for choice, length in zip(choices, (len(continuation), 3)):
            begin = len(context)
            self.assertEqual(len(choice["logprobs"]["token_logprobs"]), begin + length + 1)
            found = choice["logprobs"]["token_logprobs"][begin:-1]
            rows = expected[begin - 1:begin - 1 + length]
            wanted = rows.gather(1, torch.tensor(continuation[:length]).unsqueeze(1)).squeeze(1)
            self.assertAlmostEqual(sum(found), wanted.sum().item(), delta=1e-4)
            is_greedy = [own == max(top.values()) for own, top in zip(found, choice["logprobs"]["top_logprobs"][begin:-1])]
            self.assertEqual(is_greedy, (rows.argmax(-1) == torch.tensor(continuation[:length])).tolist())
        greedy = self.log_softmax(context)[-1].argmax().item()
        found = server.complete(**dict(payload, prompt=context + [greedy]))["choices"][0]["logprobs"]
        self.assertEqual(found["token_logprobs"][-2], max(found["top_logprobs"][-2].values()))

    def check_hostile_clients(self, server):
        for client in self.attack(server, count=208, slow=100):
            client.close()

    def check_taken_port(self, server):
        outcome = harness.run([harness.program("dslaunch"), "serve", self.run_folder, "--device", "cpu", "--port", str(server.port)])
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertRegex(outcome.err, rf"cannot listen on 127.0.0.1: port {server.port} is held by pid {server.worker()} .*--port N")
        outcome = harness.run([harness.program("dslaunch"), "serve", self.run_folder, "--host", "0.0.0.0", "--port", "0"])
        self.assertEqual(outcome.code, 64, str(outcome))
        self.assertIn("clients need a token: --token_file FILE", outcome.err)

    def check_drain(self, server):
        """A request that is being answered when SIGTERM comes gets its whole answer."""
        with server.connect() as client:
            body = json.dumps({"prompt": "a", "max_tokens": POSITIONS - 1, "temperature": 0, "stream": True, "n": 100}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                           b"%d\r\n\r\n" % len(body) + body)
            answer = client.recv(65536)
            server.process.send_signal(signal.SIGTERM)
            while part := client.recv(65536):
                answer += part
        self.assertIn(b"data: [DONE]", answer)
        self.assertEqual(answer.count(b'"finish_reason":"length"'), 100)
        code, _, err = server.end()
        self.assertEqual(code, -signal.SIGTERM)
        self.assertIn("no more requests are taken", err)

    def test_the_worker_is_killed(self):
        """By the token in the environment, which clients then need."""
        server = self.server(self.run_folder, DSLAUNCH_SERVE_TOKEN="secret")
        self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
        self.assertEqual(server.ask("GET", "/v1/models", Authorization="Bearer secret")[0], 200)
        with server.connect() as client:
            os.kill(server.worker(), signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):  # before the server has accepted it
                self.assertEqual(client.recv(100), b"")
        _, err = server.process.communicate(timeout=60)  # by itself: SIGTERM could come before dslaunch has seen the death
        self.assertEqual(server.process.returncode, 137)
        self.assertRegex(err, r"serve .*: dsworker, which reads the files, was killed by SIGKILL")


class ServingOften(Serving):
    """2,000 hostile clients and 2,000 slow ones, which are answered when their time is over."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

    def check_hostile_clients(self, server):
        slow = self.attack(server, count=2000, slow=2000)
        for i, client in enumerate(slow):
            client.settimeout(120)
            answer = b""
            while part := client.recv(65536):
                answer += part
            client.close()
            self.assertIn(answer[:12], {b"HTTP/1.1 408"} if slow_clients()[i % len(slow_clients())] else {b""})


EVALUATION = """
import json, sys
import lm_eval
questions, out = sys.argv[1:3]
task = {"task": "offline", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": questions}}, "test_split": "test",
        "output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}]}
found = []
for model, arguments in zip(sys.argv[3::2], sys.argv[4::2]):
    results = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=[dict(task)], log_samples=True, bootstrap_iters=0,
                                      batch_size=4, device="cpu")
    samples = sorted(results["samples"]["offline"], key=lambda sample: sample["doc_id"])
    found.append([[choice[0] for choice in sample["resps"]] for sample in samples])
with open(out, "w") as file:
    json.dump(found, file)
"""


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "lm_eval is not here (pip install --target DIR 'lm_eval[api]')")
class LmEvaluationHarness(ServeTest):
    def saved_model(self):
        """A directory of Hugging Face with a model and a tokenizer, and its export."""
        import hugging_face
        import tokenizer_kinds
        import transformers

        directory, path = self.env.path("saved"), self.env.path("saved.pt")
        config = transformers.AutoConfig.for_model("llama", **dict(hugging_face.GROUPED, vocab_size=1104, eos_token_id=0,
                                                                   max_position_embeddings=128, initializer_range=0.3))
        torch.manual_seed(1)
        transformers.AutoModelForCausalLM.from_config(config).eval().save_pretrained(directory)
        samples = [tokenizer_kinds.text_of(line) for line in tokenizer_kinds.lines(2000)[-500:]]
        file = self.env.path("tokenizer.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(tokenizer_kinds.documents(samples)["llama3"], out)
        transformers.PreTrainedTokenizerFast(tokenizer_file=file, eos_token="<|end|>").save_pretrained(directory)
        outcome = harness.run([sys.executable, os.path.join(harness.ROOT, "tools/export"), "--hf", directory, path])
        self.assertEqual(outcome.code, 0, str(outcome))
        return directory, path

    def test_log_probabilities_are_those_of_its_own_backend(self):
        directory, path = self.saved_model()
        questions, out = self.env.path("questions.jsonl"), self.env.path("found.json")
        with open(questions, "w", encoding="utf-8") as file:
            for i in range(20):
                file.write(json.dumps({"question": f"question {i} of 1234567 ελληνικά:",
                                       "choices": [" yes", " no, never 12", " ελληνικά"], "answer": i % 3}) + "\n")
        server = self.server(path)
        asked = (f"base_url=http://127.0.0.1:{server.port}/v1/completions,model={server.model},tokenizer={directory},"
                 "tokenizer_backend=huggingface,add_bos_token=False,num_concurrent=4,max_length=128")
        environment = harness.environment(HF_HOME=self.env.path("home"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        outcome = harness.run([sys.executable, "-c", EVALUATION, questions, out, "hf", f"pretrained={directory},dtype=float32,add_bos_token=False",
                               "local-completions", asked], timeout=300, env=environment)
        self.assertEqual(outcome.code, 0, str(outcome))
        with open(out, encoding="utf-8") as file:
            own, ours = json.load(file)
        self.assertEqual((len(own), len(ours)), (20, 20))
        for wanted, found in zip(sum(own, []), sum(ours, [])):
            self.assertAlmostEqual(float(found[0]), float(wanted[0]), delta=1e-4)
            self.assertEqual(str(found[1]), str(wanted[1]))


if __name__ == "__main__":
    unittest.main()
