#include "runtime/text/piece_normalizer.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/text/characters.hpp"

namespace dslaunch::runtime::text {
namespace {

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

PieceNormalizer::PieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined, const std::string& path)
    : model_(model), user_defined_(user_defined) {
  const std::string_view bytes = model.charsmap;
  if (bytes.empty()) return;
  const size_t trie_size = bytes.size() < 4 ? 0 : read_u32(bytes);
  if (trie_size < 4 || trie_size % 4 != 0 || trie_size > bytes.size() - 4 || bytes.back() != '\0') {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("damaged tokenizer: '{}': its rules of characters have no valid size", path));
  }
  for (size_t at = 4; at < 4 + trie_size; at += 4) units_.push_back(read_u32(bytes.substr(at)));
  replacements_ = bytes.substr(4 + trie_size);
}

PieceNormalizer::Prefix PieceNormalizer::normalize_prefix(std::string_view text) const {
  if (const auto piece = user_defined_.longest_prefix(text); piece.length > 0) {
    return {text.substr(0, piece.length), piece.length};
  }
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); };
  Prefix out{text.substr(0, first_character(text).length), first_character(text).length};
  size_t node = units_.empty() ? 0 : offset(units_[0]);
  for (size_t i = 0; i < text.size() && !units_.empty(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || (units_[node] & (1U << 31 | 0xff)) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    const size_t value = node < units_.size() ? units_[node] & 0x7fffffff : replacements_.size();
    if (value < replacements_.size()) out = {replacements_.data() + value, i + 1};
  }
  return out;
}

std::string PieceNormalizer::apply(std::string_view text) const {
  const bool removes = model_.removes_extra_whitespace;
  const std::string_view space = model_.escapes_whitespace ? kSpaceSymbol : " ";
  while (removes && !text.empty()) {
    const auto prefix = normalize_prefix(text);
    if (prefix.text != " ") break;
    text.remove_prefix(prefix.length);
  }
  std::string out;
  if (text.empty()) return out;
  if (model_.adds_dummy_prefix) out += space;
  bool follows_space = removes;
  while (!text.empty()) {
    auto [taken, length] = normalize_prefix(text);
    text.remove_prefix(length);
    while (follows_space && taken.starts_with(' ')) taken.remove_prefix(1);
    if (taken.empty()) continue;
    for (const char byte : taken) byte == ' ' ? out += space : out += byte;
    follows_space = removes && taken.ends_with(' ');
  }
  while (removes && out.ends_with(space)) out.resize(out.size() - space.size());
  return out;
}

}  // namespace dslaunch::runtime::text
