#include "runtime/telemetry/monitor.hpp"

#include <filesystem>

#include "runtime/telemetry/csv_monitor.hpp"
#include "runtime/telemetry/tensorboard_monitor.hpp"

namespace dslaunch::runtime {
namespace {

std::string directory_of(const config::MonitorFiles& files) {
  const auto directory = std::filesystem::path(files.output_path) / files.job_name;
  return directory.empty() ? "." : directory.string();
}

}  // namespace

std::vector<std::unique_ptr<Monitor>> make_monitors(const config::MonitorFiles& tensorboard,
                                                    const config::MonitorFiles& csv) {
  std::vector<std::unique_ptr<Monitor>> out;
  if (tensorboard.enabled) out.push_back(std::make_unique<TensorBoardMonitor>(directory_of(tensorboard)));
  if (csv.enabled) out.push_back(std::make_unique<CsvMonitor>(directory_of(csv)));
  return out;
}

}  // namespace dslaunch::runtime
