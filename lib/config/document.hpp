// From bytes to a value tree: checks that the input is text and an object, and selects the reader. Any thread; never
// throws on bad input.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.hpp"

namespace dslaunch::config {

enum class Format { kHjson, kYaml };

// .yaml and .yml (any case) are YAML; everything else is HJSON, a superset of JSON.
Format format_of(std::string_view file_name);

// Whether the value of --config is the config itself, not its path: it begins with '{' or has several lines.
bool is_config_text(std::string_view argument);
// Of such a text: HJSON if it begins with '{', behind comments. YAML would take most of HJSON too, but not its
// comments.
Format format_of_text(std::string_view text);
// The name of such a text in messages.
inline constexpr std::string_view kTextName = "--config";

struct Problem {
  Position position;
  std::string message;
};

// The tree is empty after a syntax error; repeated keys leave a tree (the first occurrence counts) and one problem
// each.
struct ReadResult {
  std::optional<Value> root;
  std::vector<Problem> problems;
};

// Limits for both formats, so that an untrusted file cannot exhaust memory or time.
inline constexpr int kMaxLevels = 128;          // of nesting
inline constexpr size_t kMaxBytes = 16u << 20;  // of a job file
inline constexpr size_t kMaxValues = 200'000;   // in the file; values behind an alias count at each place they are
                                                // copied to
inline constexpr size_t kMaxKey = 1024;         // in bytes

// The position of the first byte that is not text (UTF-8 without zero bytes); line 0: all of it is text.
Position first_non_text(std::string_view text);

// Checks that the text is UTF-8 and not empty, reads it, checks that it is an object.
ReadResult read_document(std::string_view text, Format format);

}  // namespace dslaunch::config
