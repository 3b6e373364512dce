// Lists in messages that stay readable however long the list is: the first few items and the number of the others.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// "a, b, c and 7 more", where `describe` gives the text of an item.
template <class Items, class Describe>
std::string join_some(const Items& items, size_t max_count, std::string_view separator, Describe describe) {
  std::string out;
  const size_t shown = std::min(items.size(), max_count);
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) out += separator;
    out += describe(items[i]);
  }
  if (items.size() > shown) out += " and " + std::to_string(items.size() - shown) + " more";
  return out;
}

inline std::string join_some(const std::vector<std::string>& items, size_t max_count,
                             std::string_view separator = ", ") {
  return join_some(items, max_count, separator, [](const std::string& item) -> const std::string& { return item; });
}

}  // namespace dslaunch
