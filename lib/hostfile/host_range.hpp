// Names with ranges as Slurm and pdsh write them: n[01-03,7] expands to n01 n02 n03 n7. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dslaunch::hostfile {

struct RangeError {
  std::string message;
  size_t offset = 0;  // of the error in the text
};

// The names in the order written; the leftmost bracket varies slowest. Any number of bracket groups; a range's lower
// bound determines the zero padding. A text without brackets is one name of any length. Brackets expand to at most
// kMaxExpandedNames names.
constexpr size_t kMaxExpandedNames = 65536;
constexpr size_t kMaxHostName = 255;
Result<std::vector<std::string>, RangeError> expand_host_range(std::string_view text);

}  // namespace dslaunch::hostfile
