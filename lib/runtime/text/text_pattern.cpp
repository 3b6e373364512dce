#include "runtime/text/text_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/text/characters.hpp"

namespace dslaunch::runtime::text {
namespace {

class StringPattern final : public TextPattern {
 public:
  explicit StringPattern(std::string text) : text_(std::move(text)) {}

  std::vector<Span> split(std::string_view text) const override {
    std::vector<Span> out;
    size_t begin = 0;
    while (!text_.empty()) {
      const size_t found = text.find(text_, begin);
      if (found == text.npos) break;
      if (found > begin) out.push_back({begin, found, false});
      begin = found + text_.size();
      out.push_back({found, begin, true});
    }
    if (begin < text.size()) out.push_back({begin, text.size(), false});
    return out;
  }

 private:
  const std::string text_;
};

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* value) const {
    Free(value);
  }
};

class RegexPattern final : public TextPattern {
 public:
  // `translated`: for PCRE2. `error` becomes the library's reason when it does not compile.
  RegexPattern(std::string pattern, const std::string& translated, std::string& error) : pattern_(std::move(pattern)) {
    int number = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &number, &offset, nullptr));
    if (!code_) {
      error = reason_of(number);
      return;
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it, matches are interpreted
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    stack_.reset(pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  std::vector<Span> split(std::string_view text) const override {
    std::vector<Span> out;
    size_t end_of_last = 0, from = 0;
    bool has_matched = false;
    while (from <= text.size()) {
      const auto found = find(text, from);
      if (!found) break;
      const auto [begin, end] = *found;
      if (begin == end && has_matched && end == end_of_last) {  // of one place, one match
        from += from < text.size() ? first_character(text.substr(from)).length : 1;
        continue;
      }
      if (begin > end_of_last) out.push_back({end_of_last, begin, false});
      if (begin < end) out.push_back({begin, end, true});
      end_of_last = from = end;
      has_matched = true;
    }
    if (end_of_last < text.size()) out.push_back({end_of_last, text.size(), false});
    return out;
  }

 private:
  static std::string reason_of(int number) {
    unsigned char text[256] = {};
    pcre2_get_error_message(number, text, sizeof text);
    return reinterpret_cast<const char*>(text);
  }

  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from) const {
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                   PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("cannot split a text of {} bytes by the tokenizer's pattern '{}': {}", text.size(),
                                  pattern_, reason_of(result)));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match_.get());
    return std::pair(offsets[0], offsets[1]);
  }

  const std::string pattern_;
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code_;
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> match_;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context_;
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack_;
};

// The error: what is not supported of it.
Result<std::unique_ptr<TextPattern>> compile(const std::string& regex) {
  const auto translated = translate_regex(regex);
  if (!translated.ok()) return Failure{fmt::format("{} in the regular expression '{}'", translated.error(), regex)};
  std::string error;
  auto pattern = std::make_unique<RegexPattern>(regex, *translated, error);
  if (!error.empty()) return Failure{fmt::format("the regular expression '{}' ({})", regex, error)};
  return std::unique_ptr<TextPattern>(std::move(pattern));
}

}  // namespace

std::unique_ptr<TextPattern> read_pattern(const JsonNode& node) {
  if (const auto string = node["String"]; !string.is_null()) return std::make_unique<StringPattern>(string.text());
  auto pattern = compile(node["Regex"].text());
  if (!pattern.ok()) node.refuse(pattern.error());
  return *std::move(pattern);
}

std::unique_ptr<TextPattern> regex_pattern(std::string_view regex) {
  auto pattern = compile(std::string(regex));
  DSL_CHECK(pattern.ok(), pattern.error());
  return *std::move(pattern);
}

}  // namespace dslaunch::runtime::text
