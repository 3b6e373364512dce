// Tokenizers of a few pieces: what they make of texts, how they are found, and that a damaged file ends in one error.
// The comparison with Hugging Face's library is tests/oracle/test_tokenizers.py.
#include "runtime/text/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/format.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::text;
using nlohmann::json;
using test::message_of;
using test::TempDir;
using Ids = std::vector<int64_t>;

namespace {

// Bytes as GPT-2 has them: "hello" in merges, and a special token.
json byte_level() {
  return json::parse(R"({
    "added_tokens": [{"id": 9, "content": "<|end|>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<|end|>": {"ids": [9]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "ll": 4, "he": 5, "hell": 6, "hello": 7, "Ġ": 8,
                                       "ð": 10, "Ł": 11, "Ļ": 12, "Ĥ": 13},
              "merges": ["l l", "h e", "he ll", "hell o"]}})");
}

// Bytes where a character has no piece, as Llama 2.
json byte_fallback() {
  json out = json::parse(R"({
    "normalizer": {"type": "Prepend", "prepend": "▁"},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 256, "▁": 257, "a": 258},
              "merges": []}})");
  for (int byte = 0; byte < 256; ++byte) out["model"]["vocab"][fmt::format("<0x{:02X}>", byte)] = byte;
  return out;
}

std::string write(const TempDir& dir, const json& document, const std::string& name = "tokenizer.json") {
  dir.write(name, document.dump());
  return dir / name;
}

std::unique_ptr<Tokenizer> open(const json& document) {
  const TempDir dir;
  return open_tokenizer(write(dir, document));
}

std::string refusal(const json& document) {
  const TempDir dir;
  const std::string path = write(dir, document);
  return message_of(ExitCode::kBadInput, path, [&] { open_tokenizer(path); });
}

}  // namespace

TEST_CASE("Words are merged in the order of the merges, and tokens are found in the text", "[runtime][text]") {
  const auto tokenizer = open(byte_level());
  CHECK(tokenizer->encode("hello hell", false) == Ids{7, 8, 6});
  CHECK(tokenizer->encode("hello<|end|>hell", true) == Ids{9, 7, 9, 6});
  CHECK(tokenizer->encode("", true) == Ids{9});
  CHECK(tokenizer->vocabulary_size() == 14);
  CHECK(tokenizer->id_of("<|end|>") == 9);
  CHECK(tokenizer->decode({9, 7, 8, 6, 99, -1}, true) == "hello hell");
  CHECK(tokenizer->decode({9, 7}, false) == "<|end|>hello");
}

TEST_CASE("A stream has whole characters only", "[runtime][text]") {
  const auto tokenizer = open(byte_level());
  const auto stream = tokenizer->stream_decoder(true);
  CHECK(stream->push(10).empty());
  CHECK(stream->push(11).empty());
  CHECK(stream->push(12).empty());
  CHECK(stream->push(13) == "\xf0\x9f\x99\x82");
  CHECK(stream->push(10).empty());
  CHECK(stream->push(7) == "\xef\xbf\xbdhello");  // what can no longer become a character
  CHECK(stream->push(10).empty());
  CHECK(stream->finish() == "\xef\xbf\xbd");
  CHECK(stream->push(7) == "hello");
}

TEST_CASE("Bytes stand for characters without a piece", "[runtime][text]") {
  const auto tokenizer = open(byte_fallback());
  CHECK(tokenizer->encode("a\xc3\xa9", false) == Ids{257, 258, 0xc3, 0xa9});
  CHECK(tokenizer->encode("\xff", false) == Ids{257, 0xef, 0xbf, 0xbd});
  CHECK(tokenizer->decode({257, 258, 0xc3, 0xa9}, false) == "a\xc3\xa9");
  const auto stream = tokenizer->stream_decoder(false);
  CHECK(stream->push(0xc3).empty());
  CHECK(stream->push(258) ==
        "\xef\xbf\xbd"
        "a");
}

TEST_CASE("Special tokens come from the files beside a tokenizer", "[runtime][text]") {
  const TempDir dir;
  write(dir, byte_level());
  CHECK(open_tokenizer(dir.path())->special().ends.empty());
  write(dir, {{"eos_token", {{"content", "<|end|>"}}}, {"bos_token", nullptr}}, "tokenizer_config.json");
  write(dir, {{"bos_token", "hello"}, {"eos_token", "h"}}, "special_tokens_map.json");
  write(dir, {{"eos_token_id", {9, 3}}}, "generation_config.json");
  const auto tokenizer = open_tokenizer(dir.path());
  CHECK(tokenizer->special().ends == Ids{3, 9});
  CHECK(tokenizer->special().bos == 7);
  CHECK_FALSE(tokenizer->special().pad);
  write(dir, {{"eos_token_id", "9"}}, "generation_config.json");
  CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { open_tokenizer(dir.path()); }) ==
        "damaged tokenizer: 'DIR/generation_config.json': eos_token_id: expected the id of a token");
}

TEST_CASE("A directory without a tokenizer, and one of another kind", "[runtime][text]") {
  const TempDir dir;
  CHECK_FALSE(find_tokenizer(dir.path()));
  CHECK(message_of(ExitCode::kNoInput, dir.path(), [&] { open_tokenizer(dir.path()); }) ==
        "no tokenizer in the directory 'DIR': it has neither tokenizer.json nor tokenizer.model");
  dir.write("vocab.txt", "[PAD]\n");
  CHECK_THAT(message_of(ExitCode::kBadInput, dir.path(), [&] { open_tokenizer(dir.path()); }),
             Catch::StartsWith("unsupported tokenizer: 'DIR/vocab.txt'") && Catch::Contains("tools/tokenize"));
  CHECK_THAT(message_of(ExitCode::kNoInput, dir.path(), [&] { open_tokenizer(dir / "none.json"); }),
             Catch::StartsWith("cannot read tokenizer: 'DIR/none.json'"));
}

TEST_CASE("The tokenizer of a model lies where the model came from, beside its file, or in its run",
          "[runtime][text]") {
  const TempDir dir;
  for (const char* name : {"source", "run/checkpoints/step_2", "model"}) {
    std::filesystem::create_directories(dir / name);
  }
  const std::string checkpoint = dir / "run/checkpoints/step_2";
  CHECK_FALSE(find_tokenizer_of_model(checkpoint, dir / "source"));
  write(dir, byte_level(), "run/tokenizer.json");
  CHECK(find_tokenizer_of_model(checkpoint, dir / "source") == dir / "run/tokenizer.json");
  CHECK(find_tokenizer_of_model(dir / "run", "") == dir / "run/tokenizer.json");
  write(dir, byte_level(), "run/checkpoints/step_2/tokenizer.json");
  CHECK(find_tokenizer_of_model(checkpoint, "") == dir / "run/checkpoints/step_2/tokenizer.json");
  write(dir, byte_level(), "source/tokenizer.json");
  CHECK(find_tokenizer_of_model(checkpoint, dir / "source") == dir / "source/tokenizer.json");
  write(dir, byte_level(), "model/tokenizer.json");
  CHECK(find_tokenizer_of_model(dir / "model/model.pt", "") == dir / "model/tokenizer.json");
}

TEST_CASE("A tokenizer with more tokens than the model is refused with both numbers", "[runtime][text]") {
  const TempDir dir;
  const std::string path = write(dir, byte_level());
  const auto tokenizer = open_tokenizer(path);
  require_fit(*tokenizer, 14);
  CHECK(message_of(ExitCode::kBadInput, path, [&] { require_fit(*tokenizer, 13); }) ==
        "the tokenizer does not fit the model: 'DIR': it has 14 tokens, and the model has embeddings of 13; pass the "
        "tokenizer that made the model's data (--tokenizer PATH)");
}

TEST_CASE("Parts of tokenizer.json that are not supported are named", "[runtime][text]") {
  const std::pair<json, const char*> kCases[] = {
      {R"({"model": {"type": "WordPiece"}})"_json, "the model WordPiece (model)"},
      {R"({"model": {"type": "Unigram"}})"_json, "the model Unigram (model)"},
      {R"({"model": {"dropout": 0.1}})"_json, "BPE with dropout (model.dropout)"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]}})"_json,
       "the normalizer BertNormalizer (normalizer.normalizers[0])"},
      {R"({"pre_tokenizer": {"type": "Whitespace"}})"_json, "the pre-tokenizer Whitespace (pre_tokenizer)"},
      {R"({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "\\h"}}})"_json,
       "the escape \\h in the regular expression '\\h' (pre_tokenizer.pattern)"},
      {R"({"decoder": {"type": "WordPiece"}})"_json, "the decoder WordPiece (decoder)"},
      {R"({"post_processor": {"type": "Other"}})"_json, "the post-processor Other (post_processor)"},
  };
  for (const auto& [patch, named] : kCases) {
    json document = byte_level();
    document.merge_patch(patch);
    CHECK(refusal(document) == fmt::format("unsupported tokenizer: 'DIR': {} is not supported; make ids with "
                                           "'tools/tokenize --tokenizer', which uses Hugging Face's library",
                                           named));
  }
}

TEST_CASE("A damaged tokenizer.json is named with the place", "[runtime][text]") {
  const std::pair<json, const char*> kCases[] = {
      {R"({"model": null})"_json, "has no model"},
      {R"({"model": {"vocab": {"h": "x"}}})"_json, "model.vocab: expected the id of a token"},
      {R"({"model": {"vocab": {"h": 1}}})"_json, "model.vocab: 'e' and 'h' have the same id 1"},
      {R"({"model": {"vocab": {"h": 99999999999}}})"_json,
       "model.vocab: the id 99999999999 is outside of 0 to 4194303"},
      {R"({"model": {"vocab": {"h": -1}}})"_json, "model.vocab: the id -1 is outside of 0 to 4194303"},
      {R"({"model": {"vocab": {"": 50}}})"_json, "model.vocab: an empty piece"},
      {R"({"model": {"merges": ["l l", "x l"]}})"_json, "model.merges[1]: 'x' is not in the vocabulary"},
      {R"({"model": {"merges": ["e l"]}})"_json, "model.merges[0]: 'el' is not in the vocabulary"},
      {R"({"model": {"merges": ["ll"]}})"_json, "model.merges[0]: expected two pieces"},
      {R"({"model": {"merges": [["l"]]}})"_json, "model.merges[0]: expected two pieces"},
      {R"({"model": {"unk_token": "?"}})"_json, "model.unk_token: '?' is not in the vocabulary"},
      {R"({"added_tokens": [{"id": 5, "content": "hello"}]})"_json,
       "added_tokens[0].id: 'hello' has the id 5, and 7 in the vocabulary"},
      {R"({"added_tokens": {"id": 5}})"_json, "added_tokens: expected a list"},
      {R"({"pre_tokenizer": {"use_regex": 1}})"_json, "pre_tokenizer.use_regex: expected true or false"},
      {R"({"post_processor": {"special_tokens": null}})"_json,
       "post_processor.single[0].SpecialToken: a token that the template does not define"},
  };
  for (const auto& [patch, named] : kCases) {
    json document = byte_level();
    document.merge_patch(patch);
    CHECK(refusal(document) == fmt::format("damaged tokenizer: 'DIR': {}", named));
  }
  const TempDir dir;
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string(100000, '[')}) {
    dir.write("tokenizer.json", text);
    CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { open_tokenizer(dir.path()); }) ==
          "damaged tokenizer: 'DIR/tokenizer.json': it is not a JSON object, or nests too deeply");
  }
}

TEST_CASE("Any damage to a tokenizer.json ends in one error, or in a tokenizer", "[runtime][text]") {
  std::mt19937 draw(1);
  const json kValues[] = {
      nullptr, true, -1, 1e300, "x", "\xc3\xa9", json::array(), json::object(), json::array({1, "a"}), 5000000};
  for (int trial = 0; trial < 300; ++trial) {
    json document = trial % 2 ? byte_level() : byte_fallback();
    const json places = document.flatten();
    for (unsigned change = 0; change <= draw() % 2; ++change) {
      auto place = places.begin();
      std::advance(place, draw() % std::min<size_t>(places.size(), 60));
      document[json::json_pointer(place.key())] = kValues[draw() % std::size(kValues)];
    }
    try {
      const auto tokenizer = open(document);
      const auto ids = tokenizer->encode("hello a \xf0\x9f\x99\x82<|end|>", true);
      tokenizer->decode(ids, false);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadInput);
    }
  }
}
