#include "runtime/telemetry/monitor.hpp"

#include <filesystem>

#include "runtime/telemetry/csv_monitor.hpp"
#include "runtime/telemetry/tensorboard_monitor.hpp"
#include "runtime/telemetry/wandb_monitor.hpp"

namespace dslaunch::runtime {
namespace {

std::string directory_of(const config::MonitorFiles& files) {
  const auto directory = std::filesystem::path(files.output_path) / files.job_name;
  return directory.empty() ? "." : directory.string();
}

}  // namespace

std::vector<std::unique_ptr<Monitor>> make_monitors(const config::JobConfig& config, const std::string& run_dir,
                                                    bool resumes, const std::string& job_config) {
  std::vector<std::unique_ptr<Monitor>> out;
  if (config.tensorboard.enabled) out.push_back(std::make_unique<TensorBoardMonitor>(directory_of(config.tensorboard)));
  if (config.wandb.enabled) out.push_back(std::make_unique<WandbMonitor>(config.wandb, run_dir, resumes, job_config));
  if (config.csv_monitor.enabled) out.push_back(std::make_unique<CsvMonitor>(directory_of(config.csv_monitor)));
  return out;
}

}  // namespace dslaunch::runtime
