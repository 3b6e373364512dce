// Short ways to load a text in a test and to look at what came of it.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace dslaunch::config {

inline LoadResult load(const std::string& text, int world = 1, const std::vector<Override>& overrides = {}) {
  return load_text(text, "ds.json", Format::kHjson, overrides, {world});
}

inline LoadResult load_yaml(const std::string& text, int world = 1) {
  return load_text(text, "ds.yaml", Format::kYaml, {}, {world});
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

// Of a text with one error: its line.
inline std::string only_line(const std::string& text, int world = 1) {
  auto result = load(text, world);
  INFO(text << "\n" << all_lines(result));
  REQUIRE(result.issues.size() == 1);
  return lines_of(result).front();
}

// Of a text without errors: what it says.
inline JobConfig good(const std::string& text) {
  auto result = load(text);
  INFO(text << "\n" << all_lines(result));
  REQUIRE(result.ok());
  return result.config;
}

inline auto num_notes(const LoadResult& result, const std::string& part) {
  return std::count_if(result.notes.begin(), result.notes.end(),
                       [&](const std::string& note) { return note.find(part) != note.npos; });
}

inline bool has_note(const LoadResult& result, const std::string& part) {
  return num_notes(result, part) > 0;
}

}  // namespace dslaunch::config
