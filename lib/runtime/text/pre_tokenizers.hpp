// The pre-tokenizers of tokenizer.json: how a text falls into words, which the model then encodes one by one. One
// thread.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {

struct Word {
  std::string_view text;     // not empty
  bool is_at_start = false;  // of the text that is encoded
};

// Words, and the texts that they are parts of.
struct Words {
  std::vector<Word> list;
  std::deque<std::string> texts;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

// Of null: leaves the text whole. Throws UserError(65) for a kind that is not supported.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node);

// The character that stands for a byte in byte-level vocabularies, as GPT-2 has chosen it: printable and no space.
char32_t byte_character(unsigned char byte);

}  // namespace dslaunch::runtime::text
