#include "runtime/text/pre_tokenizers.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/text_pattern.hpp"

namespace dslaunch::runtime::text {
namespace {

// What becomes of the text that matches a pattern.
enum class Delimiter { kRemoved, kIsolated, kContiguous, kWithPrevious, kWithNext };

Delimiter read_delimiter(const JsonNode& node) {
  const std::string text = node.text();
  if (text == "Removed") return Delimiter::kRemoved;
  if (text == "Isolated") return Delimiter::kIsolated;
  if (text == "Contiguous") return Delimiter::kContiguous;
  if (text == "MergedWithPrevious") return Delimiter::kWithPrevious;
  if (text == "MergedWithNext") return Delimiter::kWithNext;
  node.refuse(fmt::format("the behavior {}", text));
}

// Joins a match with its neighbour that `spans` has before it. `begin` and `end` change roles when they are reversed.
std::vector<Span> join_matches(const std::vector<Span>& spans) {
  std::vector<Span> out;
  bool was_match = false;
  for (const Span& span : spans) {
    if (span.is_match && !was_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, span.begin);
      out.back().end = std::max(out.back().end, span.end);
    } else {
      out.push_back(span);
    }
    was_match = span.is_match;
  }
  return out;
}

std::vector<Span> divide(std::vector<Span> spans, Delimiter delimiter) {
  switch (delimiter) {
    case Delimiter::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      return spans;
    case Delimiter::kIsolated:
      return spans;
    case Delimiter::kContiguous: {
      std::vector<Span> out;
      for (const Span& span : spans) {
        if (!out.empty() && out.back().is_match == span.is_match) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
      }
      return out;
    }
    case Delimiter::kWithPrevious:
      return join_matches(spans);
    case Delimiter::kWithNext:
      std::reverse(spans.begin(), spans.end());
      spans = join_matches(spans);
      std::reverse(spans.begin(), spans.end());
      return spans;
  }
  return spans;
}

void split_words(Words& words, const TextPattern& pattern, Delimiter delimiter, bool is_inverted = false) {
  std::vector<Word> out;
  out.reserve(words.list.size());
  for (const Word& word : words.list) {
    auto spans = pattern.split(word.text);
    for (Span& span : spans) span.is_match = span.is_match != is_inverted;
    for (const Span& span : divide(std::move(spans), delimiter)) {
      out.push_back({word.text.substr(span.begin, span.end - span.begin), word.is_at_start && span.begin == 0});
    }
  }
  words.list = std::move(out);
}

void prepend(Words& words, Word& word, std::string_view prefix) {
  words.texts.push_back(std::string(prefix) + std::string(word.text));
  word.text = words.texts.back();
}

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<TextPattern> pattern, Delimiter delimiter, bool is_inverted)
      : pattern_(std::move(pattern)), delimiter_(delimiter), is_inverted_(is_inverted) {}
  void apply(Words& words) const override { split_words(words, *pattern_, delimiter_, is_inverted_); }

 private:
  const std::unique_ptr<TextPattern> pattern_;
  const Delimiter delimiter_;
  const bool is_inverted_;
};

// The characters of all bytes as UTF-8, each in 1 or 2 bytes.
const std::array<std::string, 256>& byte_texts() {
  static const auto texts = [] {
    std::array<std::string, 256> out;
    for (int byte = 0; byte < 256; ++byte) {
      append_utf8(out[static_cast<size_t>(byte)], byte_character(static_cast<unsigned char>(byte)));
    }
    return out;
  }();
  return texts;
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool adds_space, bool splits) : adds_space_(adds_space) {
    if (splits) {
      pattern_ = regex_pattern("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
    }
  }

  void apply(Words& words) const override {
    for (Word& word : words.list) {
      if (adds_space_ && !word.text.starts_with(' ')) prepend(words, word, " ");
    }
    if (pattern_) split_words(words, *pattern_, Delimiter::kIsolated);
    size_t num_bytes = 0;
    for (const Word& word : words.list) num_bytes += word.text.size();
    std::string& mapped = words.texts.emplace_back();
    mapped.reserve(2 * num_bytes);  // so that it does not move
    const auto& texts = byte_texts();
    for (Word& word : words.list) {
      const size_t begin = mapped.size();
      for (const char byte : word.text) mapped += texts[static_cast<unsigned char>(byte)];
      word.text = std::string_view(mapped).substr(begin);
    }
  }

 private:
  const bool adds_space_;
  std::unique_ptr<TextPattern> pattern_;
};

// Punctuation as Hugging Face's library has it: ASCII's, and that of Unicode 7.
std::unique_ptr<TextPattern> punctuation() {
  return regex_pattern(
      "[!-/:-@\\[-`{-~\\x{166d}\\x{111c9}\\p{P}&&[^\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}\\x{1b4e}-\\x{1b4f}"
      "\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e4f}\\x{2e52}-\\x{2e5d}\\x{10d6e}\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-"
      "\\x{10f89}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}"
      "\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}\\x{11944}-\\x{11946}\\x{119e2}\\x{11a3f}-\\x{11a46}\\x{11a9a}-"
      "\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}"
      "\\x{11ef7}-\\x{11ef8}\\x{11f43}-\\x{11f4f}\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16d6d}-\\x{16d6f}\\x{16e97}-"
      "\\x{16e9a}\\x{16fe2}\\x{1e5ff}\\x{1e95e}-\\x{1e95f}]]");
}

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, std::unique_ptr<TextPattern> pattern)
      : replacement_(std::move(replacement)), scheme_(scheme), pattern_(std::move(pattern)) {}

  void apply(Words& words) const override {
    for (Word& word : words.list) {
      std::string text;
      for (const char byte : word.text) byte == ' ' ? text += replacement_ : text += byte;
      const bool is_place = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && word.is_at_start);
      if (is_place && !text.starts_with(replacement_)) text = replacement_ + text;
      word.text = words.texts.emplace_back(std::move(text));
    }
    if (pattern_) split_words(words, *pattern_, Delimiter::kWithNext);
  }

 private:
  const std::string replacement_;
  const PrependScheme scheme_;
  const std::unique_ptr<TextPattern> pattern_;  // null: words are not split
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Words& words) const override {
    for (const auto& step : steps_) step->apply(words);
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

std::unique_ptr<PreTokenizer> read_metaspace(const JsonNode& node) {
  const std::string replacement = node["replacement"].text("\xe2\x96\x81");
  const bool adds_prefix = node["add_prefix_space"].flag(true);  // of older files
  const auto scheme_node = node["prepend_scheme"];
  const std::string scheme = scheme_node.text(adds_prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") scheme_node.refuse("the scheme " + scheme);
  if (replacement.empty()) node["replacement"].fail("expected a character");
  std::string quoted;
  for (const char byte : replacement) {
    if (std::string_view("\\^$.|?*+()[]{}").find(byte) != std::string_view::npos) quoted += '\\';
    quoted += byte;
  }
  return std::make_unique<Metaspace>(replacement,
                                     scheme == "always"  ? PrependScheme::kAlways
                                     : scheme == "first" ? PrependScheme::kFirst
                                                         : PrependScheme::kNever,
                                     node["split"].flag(true) ? regex_pattern(quoted) : nullptr);
}

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  if (node.is_null()) return std::make_unique<Sequence>(std::move(steps));
  const std::string type = node.type();
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(node["add_prefix_space"].flag(true), node["use_regex"].flag(true));
  }
  if (type == "Split") {
    return std::make_unique<Split>(read_pattern(node["pattern"]), read_delimiter(node["behavior"]),
                                   node["invert"].flag(false));
  }
  if (type == "Digits") {  // Rust's, with those of Unicode 17
    const bool is_each = node["individual_digits"].flag(false);
    return std::make_unique<Split>(regex_pattern("[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]"),
                                   is_each ? Delimiter::kIsolated : Delimiter::kContiguous, false);
  }
  if (type == "Punctuation") {
    const auto behavior = node["behavior"];
    return std::make_unique<Split>(punctuation(), behavior.is_null() ? Delimiter::kIsolated : read_delimiter(behavior),
                                   false);
  }
  if (type == "Metaspace") return read_metaspace(node);
  if (type != "Sequence") node.refuse(fmt::format("the pre-tokenizer {}", type));
  for (const JsonNode& step : node["pretokenizers"].list()) steps.push_back(read_pre_tokenizer(step));
  return std::make_unique<Sequence>(std::move(steps));
}

char32_t byte_character(unsigned char byte) {
  const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
  if (is_printable) return byte;
  const int before = byte <= ' ' ? byte : byte <= 0xa0 ? byte - 0x7f + 33 : 67;  // of those that are not
  return static_cast<char32_t>(256 + before);
}

}  // namespace dslaunch::runtime::text
