#include "runtime/state/archive_nesting.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

// With the usual stack of 8 MiB, LibTorch crashes at 2,700 nested lists in code, at 3,400 nested blocks, and at 50,000
// nested lists in a pickle. torch.jit.save writes statements of 25 levels, blocks as deep as those of the program, and
// two levels of a pickle for each module inside a module.
constexpr size_t kMaxCodeLevels = 500, kMaxPickleLevels = 1000;

[[noreturn]] void refuse(const std::string& path, const std::string& record, const std::string& what) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("cannot read model '{}': its record '{}' {}: it is damaged, or made to exhaust the stack",
                              path, record, what));
}

std::string text_of(const ZipMember& member, const std::string& path) {
  if (!member.deflated) return {reinterpret_cast<const char*>(member.bytes.data()), member.bytes.size()};
  const auto bytes = inflate_member(member, fmt::format("model '{}'", path));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// LibTorch finds records whatever the case of their names.
std::string lower(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace

void require_shallow(const std::vector<ZipMember>& members, const std::string& path) {
  for (const auto& member : members) {
    const std::string name = lower(member.name);
    if (name.ends_with("pkl") && pickle_nests_deeper(text_of(member, path), kMaxPickleLevels)) {
      refuse(path, member.name, fmt::format("nests values more than {} levels deep", kMaxPickleLevels));
    }
    if (!name.ends_with(".py")) continue;
    if (const auto line = line_nesting_deeper(text_of(member, path), kMaxCodeLevels)) {
      refuse(path, member.name,
             fmt::format("nests blocks and expressions more than {} levels deep in line {}", kMaxCodeLevels, *line));
    }
  }
}

}  // namespace dslaunch::runtime
