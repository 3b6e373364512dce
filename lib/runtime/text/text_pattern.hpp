// What a tokenizer searches a text for: a string, or a regular expression. One thread.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {

// Bytes [begin, end) of a text; whether the pattern has matched them or they lie between its matches.
struct Span {
  size_t begin = 0, end = 0;
  bool is_match = false;
};

class TextPattern {
 public:
  virtual ~TextPattern() = default;
  // The whole text, in order. Throws UserError(65) when the pattern gives up on the text.
  virtual std::vector<Span> split(std::string_view text) const = 0;
};

// Of {"String": "..."} or {"Regex": "..."}.
std::unique_ptr<TextPattern> read_pattern(const JsonNode& node);
// Of a regular expression that translate_regex() takes; for our own.
std::unique_ptr<TextPattern> regex_pattern(std::string_view regex);

// The regular expressions of tokenizer.json are Oniguruma's, in Ruby's syntax and with Unicode 16. Translates what
// patterns of tokenizers use to PCRE2 (with UTF, UCP and MULTILINE), with the characters that PCRE2's older Unicode
// lacks. The error is a part of the syntax that is not supported: "the escape \h".
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace dslaunch::runtime::text
