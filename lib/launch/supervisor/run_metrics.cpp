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

// The line of an evaluation alone; the end of a step's line has these keys too.
bool is_of_evaluation(const std::string& line) {
  if (line.find(R"("eval_samples")") == std::string::npos) return false;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("eval_samples") && !json.contains("loss");
}

std::string read_last_line(const std::string& path, bool skips_evaluations) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kTailBytes));
  std::string tail(kTailBytes, '\0');
  in.read(tail.data(), kTailBytes);
  tail.resize(static_cast<size_t>(in.gcount()));
  while (true) {
    if (tail.ends_with('\n')) tail.pop_back();
    std::string line = tail.substr(tail.rfind('\n') + 1);
    if (!skips_evaluations || !is_of_evaluation(line)) return line;
    tail.resize(tail.size() - line.size());
  }
}

// "" if it was not read in time.
std::string read_in_time(FileThread& reads, const std::string& run_dir, bool skips_evaluations) {
  auto line = std::make_shared<std::string>();
  reads.submit(kTailBytes, [line, path = run_dir + "/metrics.jsonl", skips_evaluations] {
    *line = read_last_line(path, skips_evaluations);
    return std::string();
  });
  return reads.wait(Deadline::after(kTimeout)) ? *line : std::string();
}

}  // namespace

std::string last_metrics_line(FileThread& reads, const std::string& run_dir) {
  return read_in_time(reads, run_dir, /*skips_evaluations=*/false);
}

std::string last_training_line(FileThread& reads, const std::string& run_dir) {
  return read_in_time(reads, run_dir, /*skips_evaluations=*/true);
}

std::optional<int64_t> last_recorded_step(FileThread& reads, const std::string& run_dir) {
  const auto metrics = nlohmann::json::parse(last_training_line(reads, run_dir), nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object() || !metrics.contains("step") || !metrics["step"].is_number_integer()) return std::nullopt;
  return metrics["step"].get<int64_t>();
}

}  // namespace dslaunch::launch
