"""Small tokenizers of the kinds that real models have, each trained here in a blink, and lines of mixed scripts for
them. Merges are trained on text that is not split, so that they cross the places where a tokenizer splits: a split at a
wrong place changes ids."""
import io
import json
import random

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
          r"|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")

BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

FRAGMENTS = """the The THE of running 's 't 're 'VE 'M 'll 'D ’s can't we'Re I'M it'ſ 1 12 123 1234 1234567 3.14 ٣٤٥ १२३ ½ Ⅷ ²
é é é́ ạ́ ạ́ ñ ö ﬁ Å Å 각 각 ᄀ ελληνικά Ωμέγα русский Ёж עִבְרִית العَرَبِيَّة हिन्दी क्षि தமிழ் ไทย ဗမာ 日本語 カタカナ ひらがな 漢字 中文
한국어 𠮷 𝔘𝔫𝔦 ß ẞ İ ı Ǆ ǅ ʰ ʼn ª 🙂 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ☃️ ❤ € £ § … — “quoted” «» ~~ == -> :: // \\ # @ _ __init__ {x} [y] (z) %d &amp;
\U00011f04 \U00011f51 \U00031350 \U0002ebf1 \U000105c3 \U00010d41 \U00010d4e \U0001ccf0 \U0001e5d0 ౝ \u0897 \u1b4e \U0001fae8 \U0001fadf e\u0898\u0323 e\u0301\u07fd\u0323 \U000107b2 ㋿ \U0001e030
e\u0301 a\u0323\u0302 a\u0302\u0323 \u1100\u1161\u11a8 \u212b \u0344 \u2126 \ufb01 \u180e \u200b \u200d \u00ad \ufeff \ufffd \ue000 \u0378 \U000e0041 ▁ ▁▁ <0x41> Ġ ł""".split()
SPACES = [" "] * 12 + ["", "", "  ", "   ", "\t", "\n", "\r\n", "\r\n\r\n", "\n\n", " \n ", "\r", "\u00a0", "\u3000", "\u2028", "\x85",
                       "\x0b", "\x0c", "\x1c", "\0"]
SPECIAL = ["<|end|>", "<|begin|>", "<mask>", "<s>", "</s>", "<unk>", "wordy", "Ünder", "  <mask>  ", "<|en", "</", "xwordyx", "<|end|><|end|>"]
DAMAGED = [b"\xff", b"\xc3", b"\xe2\x82", b"\xe2\x82(", b"\xed\xa0\x80", b"\xf0\x9f\x99", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x80\x80"]


def lines(number, seed=0):
    """Bytes; most of them UTF-8."""
    draw = random.Random(seed)
    out = [b"", b" ", b"  ", b"\r\n", "\u3000".encode(), b"<|end|>", b"a" * 300]
    for first in range(0, 0x32400, 0x80):  # characters that exist, and many that do not
        codes = [code for code in range(first, first + 0x80) if not 0xd800 <= code < 0xe000]
        if 0x3400 <= first < 0xd780 and first % 0x1000:
            continue
        out.append("".join(chr(code) + draw.choice(["", "", "a", " "]) for code in codes).encode())
    while len(out) < number:
        parts = []
        for _ in range(draw.randrange(1, 12)):
            kind = draw.random()
            if kind < 0.05:
                parts.append(draw.choice(SPECIAL).encode())
            elif kind < 0.07:
                parts.append(draw.choice(DAMAGED))
            else:
                parts.append(draw.choice(FRAGMENTS).encode())
            parts.append(draw.choice(SPACES).encode())
        out.append(b"".join(parts))
    return out[:number]


def text_of(line):
    return line.decode("utf-8", errors="replace")


def added(tokenizers):
    """Of each kind one."""
    token = tokenizers.AddedToken
    return ([token("<|end|>", special=True, normalized=False), token("<|begin|>", special=True, normalized=False)],
            [token("<mask>", lstrip=True, normalized=False), token("wordy", single_word=True), token("Ünder", rstrip=True)])


def train_byte_level(tokenizers, samples):
    from tokenizers import decoders, models, pre_tokenizers, trainers

    out = tokenizers.Tokenizer(models.BPE())
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special, other = added(tokenizers)
    out.train_from_iterator(samples, trainers.BpeTrainer(
        vocab_size=1100, special_tokens=special, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
        max_token_length=12))
    out.add_tokens(other)
    out.decoder = decoders.ByteLevel()
    return out.to_str()


def train_byte_fallback(tokenizers, samples):
    """As Llama 2 and Gemma have it: pieces of characters, and of bytes for those that are rare."""
    from tokenizers import models, trainers

    out = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    out.train_from_iterator([each.replace(" ", "▁") for each in samples], trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>", "<s>", "</s>", *pieces], limit_alphabet=120, show_progress=False,
        max_token_length=8))
    out.add_tokens(added(tokenizers)[1])
    document = json.loads(out.to_str())
    document["added_tokens"] = [each for each in document["added_tokens"] if each["content"] not in pieces]
    document["model"]["byte_fallback"] = True
    return document


def train_word_parts(tokenizers, samples):
    """As GPT-1's, where a piece that ends a word has a mark; here one that does not begin a word has another."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    marks = {"end_of_word_suffix": "</w>", "continuing_subword_prefix": "##"}
    out = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", **marks))
    out.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
                                           normalizers.Lowercase()])
    out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(r"\s+"), "removed"),
                                                 pre_tokenizers.Punctuation()])
    out.train_from_iterator(samples, trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], limit_alphabet=150, show_progress=False, **marks))
    out.decoder = decoders.BPEDecoder("</w>")
    return json.loads(out.to_str())


def train_clip(tokenizers, samples):
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    out = tokenizers.Tokenizer(models.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    out.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
                                           normalizers.Lowercase()])
    out.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    out.train_from_iterator(samples, trainers.BpeTrainer(
        vocab_size=1200, special_tokens=added(tokenizers)[0], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False, end_of_word_suffix="</w>"))
    out.post_processor = processors.RobertaProcessing(("<|end|>", 0), ("<|begin|>", 1), False, False)
    out.decoder = decoders.ByteLevel()
    return json.loads(out.to_str())


LLAMA2_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def documents(samples):
    """tokenizer.json by kind."""
    import tokenizers
    from tokenizers import Regex, normalizers, pre_tokenizers, processors

    bytes_, fallback = train_byte_level(tokenizers, samples), train_byte_fallback(tokenizers, samples)

    def byte_level(pre_tokenizer, normalizer=None, post=None, **model):
        out = tokenizers.Tokenizer.from_str(bytes_)
        out.pre_tokenizer = pre_tokenizer
        if normalizer:
            out.normalizer = normalizer
        if post:
            out.post_processor = post
        document = json.loads(out.to_str())
        document["model"].update(model)
        return document

    def split(pattern, before=()):
        return pre_tokenizers.Sequence([*before, pre_tokenizers.Split(Regex(pattern), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    begin = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<|begin|> $A", pair="$A $B", special_tokens=[("<|begin|>", 1)])])
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "roberta": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True),
                              post=processors.RobertaProcessing(("<|end|>", 0), ("<|begin|>", 1))),
        "llama3": byte_level(split(LLAMA3), post=begin, ignore_merges=True),
        "qwen": byte_level(split(QWEN), normalizer=normalizers.NFC()),
        "gpt4o": byte_level(split(GPT4O)),
        "deepseek": byte_level(split(DEEPSEEK, before=[
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), "isolated")])),
        "starcoder": byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
            normalizer=normalizers.NFKC()),
        "bloom": byte_level(split(BLOOM)),
        "kimi": byte_level(split(KIMI)),
        "clip": train_clip(tokenizers, samples),
        "gpt1": train_word_parts(tokenizers, samples),
        "llama2": dict(fallback, decoder=LLAMA2_DECODER, normalizer={
            "type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}),
        "mistral": dict(fallback, decoder=LLAMA2_DECODER, pre_tokenizer={**metaspace, "prepend_scheme": "first", "split": False}),
        "metaspace": dict(fallback, decoder=metaspace, pre_tokenizer=metaspace),
        "gemma": dict(fallback, normalizer=space, pre_tokenizer={
            "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            decoder={"type": "Sequence", "decoders": LLAMA2_DECODER["decoders"][:3]}),
    }


def sentencepiece_models(samples):
    """tokenizer.model by kind."""
    import sentencepiece

    def train(**options):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([each.replace("\0", " ").replace("\n", " ") for each in samples if each.strip()]), model_writer=out, minloglevel=2,
            num_threads=1, hard_vocab_limit=False, max_sentence_length=10000, **options)
        return out.getvalue()

    return {
        "t5": train(vocab_size=500, model_type="unigram", character_coverage=0.98, num_sub_iterations=1),
        "fallback": train(vocab_size=800, model_type="unigram", byte_fallback=True, character_coverage=0.98, num_sub_iterations=1,
                          normalization_rule_name="nfkc_cf", user_defined_symbols=["wordy", "<mask>", "▁▁▁"]),
        "llama2": train(vocab_size=800, model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True,
                        character_coverage=0.98, user_defined_symbols=["wordy", "  "]),
        "plain": train(vocab_size=600, model_type="bpe", add_dummy_prefix=False, normalization_rule_name="nmt_nfkc",
                       character_coverage=0.98),
    }
