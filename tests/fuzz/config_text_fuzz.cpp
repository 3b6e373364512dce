// Any bytes as the text of a job file, as HJSON and as YAML, without the check of its keys: a tree comes out whose
// places lie in the text and which is no larger than allowed, or problems.
#include <algorithm>
#include <cstdlib>

#include "config/document.hpp"

using namespace dslaunch::config;

namespace {

void require(bool good) {
  if (!good) std::abort();
}

size_t require_sound(const Value& value, int num_lines, int level) {
  require(level <= kMaxLevels && value.place.line >= 0 && value.place.line <= num_lines);
  size_t num_values = 1;
  for (const auto& item : value.items) num_values += require_sound(item, num_lines, level + 1);
  for (const auto& member : value.members) {
    require(member.key.size() <= kMaxKey);
    num_values += require_sound(member.value, num_lines, level + 1);
  }
  return num_values;
}

void read(std::string_view text, Format format) {
  const auto num_lines = static_cast<int>(std::count(text.begin(), text.end(), '\n') + 1);
  const ReadResult result = read_document(text, format);
  require(result.root || !result.problems.empty());
  if (result.root) require(require_sound(*result.root, num_lines, 0) <= kMaxValues);
  for (const auto& problem : result.problems) require(problem.place.line <= num_lines && !problem.message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(text, Format::kHjson);
  read(text, Format::kYaml);
  return 0;
}
