#include "runtime/state/saved_scalars.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

bool is_count(double value, int64_t least) {
  return value >= static_cast<double>(least) && value < static_cast<double>(kExactIntegerLimit) &&
         value == std::floor(value);
}

std::optional<int64_t> saved_count(const std::map<std::string, double>& scalars, const std::string& name,
                                   int64_t least) {
  const auto found = scalars.find(name);
  if (found == scalars.end()) return std::nullopt;
  const double value = found->second;
  if (!is_count(value, least)) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the checkpoint is damaged: its '{}' is {}, which is not a count. Use another checkpoint", name,
                    value));
  }
  return static_cast<int64_t>(value);
}

}  // namespace dslaunch::runtime
