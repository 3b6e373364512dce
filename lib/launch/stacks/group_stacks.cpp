#include "launch/stacks/group_stacks.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>

namespace dslaunch::launch {
namespace {

// After these words gdb and py-spy print a pid, a thread id or an address. Source line numbers are kept.
constexpr std::array<std::string_view, 5> kBeforeNumbers{"0x", "LWP ", "Thread ", "Process ", "process "};

bool is_digit(char c, bool hexadecimal) {
  const auto byte = static_cast<unsigned char>(c);
  return hexadecimal ? std::isxdigit(byte) != 0 : std::isdigit(byte) != 0;
}

}  // namespace

std::string without_numbers_of_processes(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto rest = std::string_view(text).substr(at);
    const auto* word = std::find_if(kBeforeNumbers.begin(), kBeforeNumbers.end(),
                                    [&](std::string_view each) { return rest.starts_with(each); });
    if (word == kBeforeNumbers.end()) {
      out += text[at++];
      continue;
    }
    out += *word;
    at += word->size();
    if (text.compare(at, 2, "0x") == 0) continue;  // "Thread 0x7f..": an address follows
    while (at < text.size() && is_digit(text[at], *word == "0x")) ++at;
  }
  return out;
}

std::vector<StackGroup> group_stacks(std::vector<RankStack> stacks) {
  std::sort(stacks.begin(), stacks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::vector<StackGroup> groups;
  std::map<std::string, size_t> indices;  // by the compared text
  for (auto& stack : stacks) {
    const auto [index, is_new] =
        indices.emplace(stack.source + "\n" + without_numbers_of_processes(stack.text), groups.size());
    if (is_new) groups.emplace_back();
    groups[index->second].ranks.push_back(std::move(stack));
  }
  return groups;
}

}  // namespace dslaunch::launch
