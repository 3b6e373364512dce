// The entry "added_tokens" of tokenizer.json: tokens that are found in a text before the model sees the rest of it. One
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/text/byte_trie.hpp"
#include "runtime/text/json_node.hpp"
#include "runtime/text/normalizers.hpp"

namespace dslaunch::runtime::text {

// A part of a text: a token, or what lies between tokens.
struct TextPart {
  std::string_view text;
  std::optional<int64_t> token;
};

class AddedTokens {
 public:
  // `id_in_model`: of a piece of the model, whose id wins.
  using IdInModel = std::function<std::optional<int64_t>(std::string_view)>;
  AddedTokens(const JsonNode& node, const Normalizer& normalizer, const IdInModel& id_in_model);

  // Divides a text at the tokens that are searched in it before it is normalized, or after.
  std::vector<TextPart> split(std::string_view text, bool is_normalized) const;

  // Null: not an added token.
  const std::string* text_of(int64_t id) const;
  std::optional<int64_t> id_of(std::string_view text) const;
  bool is_special(int64_t id) const { return special_.contains(id); }
  int64_t num_ids() const { return num_ids_; }

 private:
  struct Token {
    int64_t id = 0;
    bool is_single_word = false, takes_left = false, takes_right = false;
  };
  struct Searched {
    ByteTrie trie;  // of positions in tokens_
    bool begins[256] = {};
  };

  // Whether it counts at this place, with the spaces that it takes.
  bool widen(const Token& token, std::string_view text, size_t begin_of_part, size_t& begin, size_t& end) const;

  std::vector<Token> tokens_;
  Searched in_text_, in_normalized_;
  std::unordered_map<int64_t, std::string> texts_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_set<int64_t> special_;
  int64_t num_ids_ = 0;
};

}  // namespace dslaunch::runtime::text
