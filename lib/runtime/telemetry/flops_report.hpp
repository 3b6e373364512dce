// The flops profiler's report, in the sections that DeepSpeed prints. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "config/job_config.hpp"
#include "runtime/state/module_info.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/telemetry/flops_profiler.hpp"
#include "runtime/telemetry/step_times.hpp"

namespace dslaunch::runtime {

// The tree with everything summed up; [0] is the model. Children come after their parents.
struct ProfiledModule {
  std::string name, class_name;  // its last name: "0" of "blocks.0"
  size_t depth = 0;
  std::vector<size_t> children;
  int64_t params = 0, flops = 0, macs = 0;  // including everything below it
  double seconds = 0;                       // of its calls, or the sum of its children's if it has no calls
};
std::vector<ProfiledModule> profile_tree(const std::vector<ModuleInfo>& modules, const std::vector<ModuleCost>& costs,
                                         const ParameterTable& table);

struct FlopsReportContext {
  int64_t step = 0;
  comm::Mesh mesh;
  int64_t micro_batch = 1;          // samples
  std::optional<PhaseTimes> times;  // of the micro batch, with wall_clock_breakdown
};
std::string format_flops_report(const std::vector<ProfiledModule>& tree, const config::FlopsProfiler& options,
                                const FlopsReportContext& context);

}  // namespace dslaunch::runtime
