#include "launch/plan/node_binding.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

void check_working_dir(const JobDescription& job) {
  std::error_code error;
  if (job.cwd.empty() || std::filesystem::is_directory(job.cwd, error)) return;
  throw UserError(ExitCode::kNoInput,
                  fmt::format("the directory {} does not exist on {}; ranks start in the same directory on every host, "
                              "which --chdir DIR chooses",
                              job.cwd, job.host));
}

std::vector<RankBinding> bind_ranks(const JobDescription& job) {
  check_binding_environment(job.binding, job.env);
  std::vector<std::string> devices;
  for (const auto& rank : job.ranks) {
    auto visible = rank.env.find("CUDA_VISIBLE_DEVICES");
    devices.push_back(visible == rank.env.end() ? std::string() : visible->second);
  }
  bool follows_gpus = job.binding.kind != BindingKind::kNone && job.binding.kind != BindingKind::kCores;
  bool with_gpus =
      follows_gpus && std::any_of(devices.begin(), devices.end(), [](const auto& d) { return !d.empty(); });
  return plan_binding(job.binding, topology_of_this_process(with_gpus), devices);
}

}  // namespace dslaunch::launch
