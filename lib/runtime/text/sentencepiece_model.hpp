// tokenizer.model, the file of SentencePiece: a message of Protocol Buffers (sentencepiece_model.proto), of which this
// reads what encoding needs. Plain data; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::text {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  enum class Kind { kUnigram = 1, kBpe = 2 };

  std::vector<SentencePiece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  bool has_byte_fallback = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  // what the unknown piece is as text
  std::string bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  int64_t unknown_id = -1;

  std::string charsmap;  // rules of characters: a trie and its texts; empty: none
  bool adds_dummy_prefix = true, removes_extra_whitespace = true, escapes_whitespace = true;
};

// `path`: for messages. Throws UserError(65) for a damaged file, and for a kind that is not supported.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace dslaunch::runtime::text
