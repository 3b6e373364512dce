#include "base/quantity.hpp"

#include <cstddef>
#include <iterator>

#include "base/format.hpp"

namespace dslaunch {

std::string quantity(int64_t count, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  auto scaled = static_cast<double>(count);
  for (; scaled >= 999.5 && prefix + 1 < std::size(kPrefixes); ++prefix) scaled /= 1000;
  return fmt::format("{:.3g} {}{}", scaled, kPrefixes[prefix], unit);
}

std::string with_separators(int64_t count) {
  std::string out = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(out.size()) - 3; at > 0; at -= 3) out.insert(static_cast<size_t>(at), ",");
  return out;
}

}  // namespace dslaunch
