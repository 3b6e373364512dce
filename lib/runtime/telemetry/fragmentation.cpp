#include "runtime/telemetry/fragmentation.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::runtime {

Fragmentation fragmentation_of(int64_t peak_allocated, int64_t peak_reserved) {
  const int64_t bytes = std::max<int64_t>(0, peak_reserved - peak_allocated);
  return {bytes, bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(peak_reserved)};
}

std::string describe(const Fragmentation& fragmentation) {
  return fmt::format("{} ({:.1f}%)", in_gibibytes(fragmentation.bytes), 100 * fragmentation.share);
}

std::string in_gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace dslaunch::runtime
