#include "runtime/model/interface/placement_report.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::runtime::model {

int64_t PlacementReport::split_elements() const {
  int64_t out = 0;
  for (const auto& gemm : gemms) out += gemm.split.empty() ? 0 : gemm.elements;
  return out;
}

int64_t PlacementReport::gemm_elements() const {
  int64_t out = 0;
  for (const auto& gemm : gemms) out += gemm.elements;
  return out;
}

std::string PlacementReport::summary() const {
  const auto split = std::count_if(gemms.begin(), gemms.end(), [](const auto& one) { return !one.split.empty(); });
  const int64_t all = gemm_elements();
  return fmt::format("tensor parallel: {} ranks split {} of {} GEMMs ({:.1f} % of their parameters)", ranks, split,
                     gemms.size(),
                     all == 0 ? 0.0 : 100.0 * static_cast<double>(split_elements()) / static_cast<double>(all));
}

}  // namespace dslaunch::runtime::model
