// Checks the nesting of an untrusted JSON text before parsing: nlohmann's parser takes any depth, but copies and writes
// the result by recursion, and a deep document crashes the process. Pure.
#pragma once
#include <cstddef>
#include <string_view>

namespace dslaunch {

// Whether lists and objects nest more than `levels` deep. For a text that is not JSON, the result may be either.
inline bool nests_deeper(std::string_view json, size_t levels) {
  size_t level = 0;
  bool in_text = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') in_text = !in_text;
    if (in_text) {
      at += c == '\\';  // an escaped character does not end the text
    } else if (c == '[' || c == '{') {
      if (++level > levels) return true;
    } else if ((c == ']' || c == '}') && level > 0) {
      --level;
    }
  }
  return false;
}

}  // namespace dslaunch
