#include "launch/supervisor/run_metrics.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

namespace dslaunch::launch {
namespace {

// Longer than any line.
constexpr std::streamoff kTailBytes = 65536;

constexpr std::chrono::seconds kTimeout{2};

std::string read_last_line(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kTailBytes));
  std::string tail(kTailBytes, '\0');
  in.read(tail.data(), kTailBytes);
  tail.resize(static_cast<size_t>(in.gcount()));
  if (tail.ends_with('\n')) tail.pop_back();
  return tail.substr(tail.rfind('\n') + 1);
}

}  // namespace

std::string last_metrics_line(FileThread& reads, const std::string& run_dir) {
  auto line = std::make_shared<std::string>();
  reads.submit(kTailBytes, [line, path = run_dir + "/metrics.jsonl"] {
    *line = read_last_line(path);
    return std::string();
  });
  return reads.wait(Deadline::after(kTimeout)) ? *line : std::string();
}

std::optional<int64_t> last_recorded_step(FileThread& reads, const std::string& run_dir) {
  const auto metrics = nlohmann::json::parse(last_metrics_line(reads, run_dir), nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object() || !metrics.contains("step") || !metrics["step"].is_number_integer()) return std::nullopt;
  return metrics["step"].get<int64_t>();
}

}  // namespace dslaunch::launch
