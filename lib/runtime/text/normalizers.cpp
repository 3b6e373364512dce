#include "runtime/text/normalizers.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/text_pattern.hpp"

namespace dslaunch::runtime::text {
namespace {

// Hugging Face's library has normal forms of Unicode 9. What these characters, and those of newer_characters(), become
// in a later version, or the place among other marks that they move to, it does not know.
constexpr std::pair<char32_t, char32_t> kNewerInForms[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9}};

bool is_unknown_to_forms(char32_t code) {
  const auto range = std::lower_bound(std::begin(kNewerInForms), std::end(kNewerInForms), code,
                                      [](const auto& one, char32_t value) { return one.second < value; });
  return (range != std::end(kNewerInForms) && range->first <= code) || is_newer_character(code);
}

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(int options) : options_(static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE)) {}

  std::string apply(std::string text) const override {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (std::all_of(text.begin(), text.end(), is_ascii)) return text;  // no form changes it
    std::string out;
    std::string_view known = text;
    for (size_t at = 0; at < known.size();) {
      const auto [code, length] = first_character(known.substr(at));
      if (code < 0x80 || !is_unknown_to_forms(code)) {
        at += length;
        continue;
      }
      out += map(known.substr(0, at));  // marks do not move across it
      out += known.substr(at, length);
      known.remove_prefix(at + length);
      at = 0;
    }
    return out + map(known);
  }

 private:
  std::string map(std::string_view text) const {
    utf8proc_uint8_t* result = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &result, options_);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> held(result, &std::free);
    DSL_CHECK(length >= 0, fmt::format("utf8proc: {}", utf8proc_errmsg(length)));
    return {reinterpret_cast<const char*>(result), static_cast<size_t>(length)};
  }

  const utf8proc_option_t options_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<TextPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string apply(std::string text) const override {
    std::string out;
    for (const Span& span : pattern_->split(text)) {
      out += span.is_match ? content_ : text.substr(span.begin, span.end - span.begin);
    }
    return out;
  }

 private:
  const std::unique_ptr<TextPattern> pattern_;
  const std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text) const override { return text.empty() ? text : prefix_ + text; }

 private:
  const std::string prefix_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::string apply(std::string text) const override {
    std::string_view rest = text;
    while (left_ && !rest.empty() && is_whitespace(first_character(rest).code)) {
      rest.remove_prefix(first_character(rest).length);
    }
    while (right_ && !rest.empty() && is_whitespace(last_character(rest).code)) {
      rest.remove_suffix(last_character(rest).length);
    }
    return std::string(rest);
  }

 private:
  const bool left_, right_;
};

// Capital letters that Unicode 16 and 17 have added, from `first` on, and the small letter of the first.
struct NewerCapitals {
  char32_t first = 0, last = 0, small = 0;
};
constexpr NewerCapitals kNewerCapitals[] = {
    {0x1c89, 0x1c89, 0x1c8a},    {0xa7cb, 0xa7cb, 0x264},    {0xa7cc, 0xa7cc, 0xa7cd}, {0xa7ce, 0xa7ce, 0xa7cf},
    {0xa7d2, 0xa7d2, 0xa7d3},    {0xa7d4, 0xa7d4, 0xa7d5},   {0xa7da, 0xa7da, 0xa7db}, {0xa7dc, 0xa7dc, 0x19b},
    {0x10d50, 0x10d65, 0x10d70}, {0x16ea0, 0x16eb8, 0x16ebb}};

class Lowercase final : public Normalizer {
 public:
  std::string apply(std::string text) const override {
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
      const auto [code, length] = first_character(rest);
      rest.remove_prefix(length);
      append_utf8(out, small_of(code));
      if (code == 0x130) append_utf8(out, 0x307);  // of the letters of one character, the only one that has two then
    }
    return out;
  }

 private:
  static uint32_t small_of(char32_t code) {
    for (const auto& [first, last, small] : kNewerCapitals) {
      if (code >= first && code <= last) return small + (code - first);
    }
    return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  }
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  std::string apply(std::string text) const override {
    for (const auto& step : steps_) text = step->apply(std::move(text));
    return text;
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  if (node.is_null()) return std::make_unique<Sequence>(std::move(steps));
  const std::string type = node.type();
  if (type == "NFC") return std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE);
  if (type == "NFD") return std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Prepend") return std::make_unique<Prepend>(node["prepend"].text());
  if (type == "Strip") return std::make_unique<Strip>(node["strip_left"].flag(true), node["strip_right"].flag(true));
  if (type == "Replace") return std::make_unique<Replace>(read_pattern(node["pattern"]), node["content"].text());
  if (type != "Sequence") node.refuse(fmt::format("the normalizer {}", type));
  for (const JsonNode& step : node["normalizers"].list()) steps.push_back(read_normalizer(step));
  return std::make_unique<Sequence>(std::move(steps));
}

}  // namespace dslaunch::runtime::text
