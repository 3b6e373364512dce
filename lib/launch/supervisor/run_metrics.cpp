#include "launch/supervisor/run_metrics.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace dslaunch::launch {

// Longer than any line.
static constexpr std::streamoff kTailBytes = 65536;

std::string last_metrics_line(const std::string& run_dir) {
  std::ifstream in(run_dir + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!in) return {};
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kTailBytes));
  std::string line, last;
  while (std::getline(in, line)) last = line;
  return last;
}

std::optional<int64_t> last_recorded_step(const std::string& run_dir) {
  const auto metrics = nlohmann::json::parse(last_metrics_line(run_dir), nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object() || !metrics.contains("step") || !metrics["step"].is_number_integer()) return std::nullopt;
  return metrics["step"].get<int64_t>();
}

}  // namespace dslaunch::launch
