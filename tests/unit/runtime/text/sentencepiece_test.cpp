// Models of SentencePiece, written here field by field. The comparison with its library is
// tests/oracle/test_tokenizers.py.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "runtime/text/tokenizer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::text;
using test::message_of;
using test::TempDir;
using Ids = std::vector<int64_t>;

namespace {

// Messages of Protocol Buffers; all numbers are below 128.
std::string number(int field, int value) {
  const int key = field << 3;
  std::string out;
  if (key >= 128) out += static_cast<char>((key & 0x7f) | 0x80);
  out += static_cast<char>(key >= 128 ? key >> 7 : key);
  return out + static_cast<char>(value);
}

std::string text(int field, const std::string& value) {
  std::string out;
  out += static_cast<char>(field << 3 | 2);
  out += static_cast<char>(value.size());
  return out + value;
}

std::string piece(const std::string& name, float score, int type = 1) {
  std::string score_field("\x15");
  char bits[4];
  std::memcpy(bits, &score, sizeof bits);
  score_field.append(bits, sizeof bits);
  return text(1, text(1, name) + score_field + number(3, type));
}

const std::string kSpace = "\xe2\x96\x81";

std::string pieces() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece(kSpace, -4) + piece("a", -3) +
         piece("b", -3) + piece("ab", -1) + piece(kSpace + "ab", -2) + piece("ba", -1.5F) + piece("<x>", 0, 4);
}

const std::string kUnigram = pieces() + text(2, number(3, 1)), kBpe = pieces() + text(2, number(3, 2));

std::unique_ptr<Tokenizer> open(const TempDir& dir, const std::string& bytes) {
  dir.write("tokenizer.model", bytes);
  return open_tokenizer(dir.path());
}

std::string refusal(const std::string& bytes) {
  const TempDir dir;
  return message_of(ExitCode::kBadInput, dir / "tokenizer.model", [&] { open(dir, bytes); });
}

}  // namespace

TEST_CASE("Unigram takes the division with the greatest sum, BPE the greatest pair first", "[runtime][text]") {
  const TempDir dir;
  const auto unigram = open(dir, kUnigram), bpe = open(dir, kBpe);
  CHECK(unigram->encode("ab", false) == Ids{7});
  CHECK(unigram->encode("  aba  ab ", false) == Ids{7, 4, 7});
  CHECK(bpe->encode("aba", false) == Ids{7, 4});
  CHECK(bpe->encode("bab", false) == Ids{3, 5, 6});
  CHECK(unigram->encode("a<x>b", false) == Ids{3, 4, 9, 5});
  // A piece of the user's counts 0.1 for each byte but one: 0.2, and -3 for the letter beside it.
  const auto longer = open(dir, pieces() + piece("<x>b", -2.9F) + piece("<x>a", -2.7F) + text(2, number(3, 1)));
  CHECK(longer->encode("a<x>b", false) == Ids{3, 4, 9, 5});
  CHECK(longer->encode("b<x>a", false) == Ids{3, 5, 11});
  CHECK(unigram->encode("cc", false) == Ids{3, 0});  // one unknown piece
  CHECK(unigram->encode("", false).empty());
  CHECK(unigram->decode({7, 4, 7, 0}, true) == "aba ab \xe2\x81\x87 ");
  CHECK(unigram->decode({1, 7, 2}, false) == "<s>ab</s>");
  CHECK(unigram->vocabulary_size() == 10);
}

TEST_CASE("Tokens around a text, and those behind the model's, are in the config", "[runtime][text]") {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "eos_token": "</s>",
    "added_tokens_decoder": {"2": {"content": "</s>", "special": true}, "12": {"content": "<extra>", "special": true}}})");
  const auto t5 = open(dir, kUnigram);
  CHECK(t5->encode("ab", true) == Ids{7, 2});
  CHECK(t5->special().ends == Ids{2});
  CHECK(t5->vocabulary_size() == 13);
  CHECK(t5->id_of("<extra>") == 12);
  CHECK(t5->decode({7, 12}, false) == "ab<extra>");
  CHECK(t5->decode({7, 12}, true) == "ab");
  dir.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "add_eos_token": true})");
  CHECK(open(dir, kBpe)->encode("b", true) == Ids{1, 3, 5, 2});
}

TEST_CASE("A Unigram tokenizer.json beside a model of SentencePiece is that model", "[runtime][text]") {
  const TempDir dir;
  dir.write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  dir.write("spiece.model", kUnigram);
  CHECK(open_tokenizer(dir.path())->path() == dir / "spiece.model");
}

TEST_CASE("A model of SentencePiece that is damaged or not supported is named", "[runtime][text]") {
  CHECK(refusal("") == "damaged tokenizer: 'DIR': it has no unknown piece, so it is not a model of SentencePiece");
  CHECK(refusal("\x0f") == "damaged tokenizer: 'DIR': it is not a model of SentencePiece");
  CHECK(refusal(kBpe.substr(0, kBpe.size() - 1)) == "damaged tokenizer: 'DIR': it ends within a field");
  CHECK(refusal(pieces() + piece("a", 0)) == "damaged tokenizer: 'DIR': it has the piece 'a' twice");
  CHECK(refusal(pieces() + text(2, number(35, 1))) ==
        "damaged tokenizer: 'DIR': it falls back to bytes and lacks the pieces of some");
  CHECK(refusal(pieces() + text(3, text(2, "abcdefgh"))) ==
        "damaged tokenizer: 'DIR': its rules of characters have no valid size");
  CHECK_THAT(refusal(pieces() + text(2, number(3, 3))),
             Catch::StartsWith("unsupported tokenizer: 'DIR': SentencePiece's "
                               "model of words is not supported"));
  std::mt19937 draw(1);
  const TempDir dir;
  for (int trial = 0; trial < 500; ++trial) {
    std::string bytes = trial % 2 ? kUnigram : kBpe;
    bytes[draw() % bytes.size()] = static_cast<char>(draw());
    try {
      const auto tokenizer = open(dir, bytes);
      tokenizer->decode(tokenizer->encode("aba <x> \xc3\xa9", true), false);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadInput);
    }
  }
}
