// What a generation or a score begins with: texts or ids, from options and from a file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime::engine::inference {

struct Prompt {
  std::string text;          // empty: of ids, as far as it is known
  std::vector<int64_t> ids;  // in place of the text
  bool has_ids = false;
  std::string where;                          // for messages: "the prompt", "line 3 of 'p.jsonl'"
  std::optional<std::string> reference = {};  // what the text should be
  std::optional<int64_t> num_tokens = {};     // the most that are added; at least 1
};

// "1, 2,3"; `option` for the message. Throws UserError(64).
std::vector<int64_t> parse_ids(const std::string& text, const std::string& option);

// A prompt a line. A file whose first line begins with '{' or '"', or whose name ends in .jsonl, has JSON lines: a
// text, or an object with "prompt" or "text", or with "ids" or "input_ids" (and then its text, if that is known);
// "reference" is what it should continue with, "num_tokens" the most tokens that are added to it. Lines without
// anything are skipped. Throws UserError: 66 for a file that cannot be read, 65 with the line for one that is not of
// this form, 65 for a file without prompts.
std::vector<Prompt> read_prompts(const std::string& path);
// Of JSON lines; `where` names one by its number, for messages.
std::vector<Prompt> parse_prompts(const std::string& lines, const std::function<std::string(size_t number)>& where);

}  // namespace dslaunch::runtime::engine::inference
