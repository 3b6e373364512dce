#include "runtime/text/added_tokens.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "runtime/text/characters.hpp"

namespace dslaunch::runtime::text {

AddedTokens::AddedTokens(const JsonNode& node, const Normalizer& normalizer, const IdInModel& id_in_model) {
  for (const JsonNode& entry : node.list()) {
    const std::string text = entry["content"].text();
    const int64_t id = entry["id"].id();
    if (text.empty()) continue;
    if (const auto in_model = id_in_model(text); in_model && *in_model != id) {
      entry["id"].fail(fmt::format("'{}' has the id {}, and {} in the vocabulary", text, id, *in_model));
    }
    const bool is_special = entry["special"].flag(false);
    if (is_special) special_.insert(id);
    ids_[text] = id;
    num_ids_ = std::max(num_ids_, id + 1);
    const bool is_normalized = entry["normalized"].flag(!is_special);
    Searched& searched = is_normalized ? in_normalized_ : in_text_;
    const std::string key = is_normalized ? normalizer.apply(text) : text;
    texts_[id] = key;
    if (key.empty()) continue;
    searched.trie.insert(key, static_cast<int64_t>(tokens_.size()));
    searched.begins[static_cast<unsigned char>(key[0])] = true;
    tokens_.push_back({id, entry["single_word"].flag(false), entry["lstrip"].flag(false), entry["rstrip"].flag(false)});
  }
}

std::vector<TextPart> AddedTokens::split(std::string_view text, bool is_normalized) const {
  const Searched& searched = is_normalized ? in_normalized_ : in_text_;
  std::vector<TextPart> out;
  size_t begin_of_part = 0;
  const auto add_text = [&](size_t end) {
    if (begin_of_part < end) out.push_back({text.substr(begin_of_part, end - begin_of_part), {}});
  };
  for (size_t at = 0; at < text.size() && !searched.trie.is_empty();) {
    const auto match = searched.begins[static_cast<unsigned char>(text[at])]
                           ? searched.trie.longest_prefix(text.substr(at))
                           : ByteTrie::Match{};
    if (match.length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match.length;
    at = end;
    const Token& token = tokens_[static_cast<size_t>(match.value)];
    if (!widen(token, text, begin_of_part, begin, end)) continue;
    add_text(begin);
    out.push_back({text.substr(begin, end - begin), token.id});
    begin_of_part = end;
  }
  add_text(text.size());
  return out;
}

bool AddedTokens::widen(const Token& token, std::string_view text, size_t begin_of_part, size_t& begin,
                        size_t& end) const {
  if (token.is_single_word) {
    const bool joins_left = begin > 0 && is_word_character(last_character(text.substr(0, begin)).code);
    const bool joins_right = end < text.size() && is_word_character(first_character(text.substr(end)).code);
    if (joins_left || joins_right) return false;
  }
  while (token.takes_left && begin > 0) {
    const auto before = last_character(text.substr(0, begin));
    if (!is_whitespace(before.code)) break;
    begin -= before.length;
  }
  if (token.takes_left) begin = std::max(begin, begin_of_part);
  while (token.takes_right && end < text.size()) {
    const auto after = first_character(text.substr(end));
    if (!is_whitespace(after.code)) break;
    end += after.length;
  }
  return true;
}

const std::string* AddedTokens::text_of(int64_t id) const {
  const auto found = texts_.find(id);
  return found == texts_.end() ? nullptr : &found->second;
}

std::optional<int64_t> AddedTokens::id_of(std::string_view text) const {
  const auto found = ids_.find(std::string(text));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace dslaunch::runtime::text
