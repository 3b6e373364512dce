#include "runtime/model/interface/placement_report.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::runtime::model {

std::string ProbeReport::summary() const {
  if (num_compared == 0 && not_compared.empty()) return "probe: nothing to compare, as nothing is split";
  return fmt::format("probe: {} of {} distinct units agree with their unsplit form, forward and backward", num_compared,
                     static_cast<size_t>(num_compared) + not_compared.size());
}

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

std::vector<std::string> PlacementReport::whole_lines() const {
  struct Whole {
    std::string reason, first;
    int64_t elements = 0;
    size_t count = 0;
  };
  std::vector<Whole> wholes;
  for (const auto& gemm : gemms) {
    if (!gemm.split.empty()) continue;
    auto of_reason =
        std::find_if(wholes.begin(), wholes.end(), [&](const auto& each) { return each.reason == gemm.reason; });
    if (of_reason == wholes.end()) of_reason = wholes.insert(wholes.end(), {gemm.reason, gemm.parameter});
    of_reason->elements += gemm.elements;
    ++of_reason->count;
  }
  std::stable_sort(wholes.begin(), wholes.end(),
                   [](const Whole& a, const Whole& b) { return a.elements > b.elements; });
  std::vector<std::string> out;
  for (const Whole& whole : wholes) {
    out.push_back(fmt::format("{:.1f} % of the parameters of GEMMs stay whole: '{}'{}: {}",
                              100.0 * static_cast<double>(whole.elements) / static_cast<double>(gemm_elements()),
                              whole.first, whole.count > 1 ? fmt::format(" and {} more", whole.count - 1) : "",
                              whole.reason));
  }
  out.insert(out.end(), notes.begin(), notes.end());
  return out;
}

}  // namespace dslaunch::runtime::model
