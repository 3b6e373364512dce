// Notes about modules for the user, one line each.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {

// Adds a note unless `modules` (paths) is empty. `text` has a placeholder for their names.
inline void add_note(std::vector<std::string>& notes, std::vector<std::string> modules,
                     fmt::format_string<std::string> text) {
  if (modules.empty()) return;
  std::replace(modules.begin(), modules.end(), std::string(), std::string("the model itself"));
  notes.push_back(fmt::format(text, fmt::format("{}", fmt::join(modules, ", "))));
}

}  // namespace dslaunch::runtime::model::torchscript
