// Short ways to load a text in a test and to look at what came of it.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace dslaunch::config {

inline LoadResult load(const std::string& text, int world = 1, const std::vector<Override>& overrides = {}) {
  return load_text(text, "ds.json", Format::kHjson, overrides, {world, {}});
}

inline LoadResult load_yaml(const std::string& text, int world = 1) {
  return load_text(text, "ds.yaml", Format::kYaml, {}, {world, {}});
}

inline std::vector<std::string> lines_of(const LoadResult& result) {
  std::vector<std::string> out;
  for (const auto& issue : result.issues) out.push_back(to_line(issue));
  return out;
}

inline std::string all_lines(const LoadResult& result) {
  std::string out;
  for (const auto& line : lines_of(result)) out += line + "\n";
  return out;
}

inline bool has_note(const LoadResult& result, const std::string& part) {
  return std::any_of(result.notes.begin(), result.notes.end(),
                     [&](const std::string& note) { return note.find(part) != note.npos; });
}

}  // namespace dslaunch::config
