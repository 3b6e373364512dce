// Names with ranges as Slurm and pdsh write them: n[01-03,7] is n01 n02 n03 n7. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::hostfile {

struct RangeExpansion {
  std::vector<std::string> names;  // in the order written; the leftmost bracket turns slowest
  std::string error;               // empty on success
  size_t error_offset = 0;         // where in the text
};

// Any number of bracket groups; the width of leading zeros comes from a range's lower bound. A text without brackets
// is one name of any length. At most kMaxExpandedNames names come out of brackets.
constexpr size_t kMaxExpandedNames = 65536;
constexpr size_t kMaxHostName = 255;
RangeExpansion expand_host_range(std::string_view text);

}  // namespace dslaunch::hostfile
