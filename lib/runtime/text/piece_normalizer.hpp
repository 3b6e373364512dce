// How SentencePiece prepares a text: its rules of characters, its spaces. One thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/byte_trie.hpp"
#include "runtime/text/sentencepiece_model.hpp"

namespace dslaunch::runtime::text {

// U+2581, which stands for a space in pieces.
inline constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";

class PieceNormalizer {
 public:
  // `user_defined`: pieces that are taken as they are. All must outlive this object. Throws UserError(65) when the
  // rules of characters are damaged.
  PieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined, const std::string& path);

  // `text` is UTF-8.
  std::string apply(std::string_view text) const;

 private:
  // What the beginning of a text becomes, and how many bytes of the text that is.
  struct Prefix {
    std::string_view text;
    size_t length = 0;
  };
  Prefix normalize_prefix(std::string_view text) const;

  const SentencePieceModel& model_;
  const ByteTrie& user_defined_;
  std::vector<uint32_t> units_;    // of the trie of rules, a double array as darts-clone's
  std::string_view replacements_;  // each ends with a zero byte
};

}  // namespace dslaunch::runtime::text
