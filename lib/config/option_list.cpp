#include "config/option_list.hpp"

#include <algorithm>

#include "base/split.hpp"
#include "config/key_table.hpp"
#include "config/readers.hpp"

namespace dslaunch::config {
namespace {

bool is_list_without_quotes(const std::string& text) {
  return text.size() > 2 && text.find_first_of("[]{}\"'", 1) == text.size() - 1;
}

}  // namespace

std::vector<std::string> words_between_commas(const std::string& text) {
  std::vector<std::string> words;
  for (const auto& item : split(text, ',')) {
    size_t start = std::min(item.find_first_not_of(' '), item.size());
    words.push_back(item.substr(start, item.find_last_not_of(' ') + 1 - start));
  }
  return words;
}

std::optional<std::vector<std::string>> list_in_option(const std::string& text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  if (is_list_without_quotes(text)) return words_between_commas(text.substr(1, text.size() - 2));
  ReadResult read = read_hjson("{v: " + text + "\n}");
  const Value* list = read.root && read.root->members.size() == 1 ? read.root->find("v") : nullptr;
  if (!list || !read.problems.empty() || list->type != Value::Type::kArray) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& item : list->items) {
    if (item.type != Value::Type::kString) return std::nullopt;
    words.push_back(item.text);
  }
  return words;
}

}  // namespace dslaunch::config
