// The parts of a text between separators; at least one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace dslaunch
