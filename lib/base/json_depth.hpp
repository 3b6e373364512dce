// A look at a JSON text of a stranger's before it is parsed: nlohmann's parser takes any depth, but copies and writes
// what it read by recursion, and a deep one ends the process. Pure.
#pragma once
#include <cstddef>
#include <string_view>

namespace dslaunch {

// Whether lists and objects stand in each other more than `levels` deep; of what is no JSON anything is true.
inline bool nests_deeper(std::string_view json, size_t levels) {
  size_t level = 0;
  bool in_text = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') in_text = !in_text;
    if (in_text) {
      at += c == '\\';  // what follows it is no end of the text
    } else if (c == '[' || c == '{') {
      if (++level > levels) return true;
    } else if ((c == ']' || c == '}') && level > 0) {
      --level;
    }
  }
  return false;
}

}  // namespace dslaunch
