#include "runtime/engine/run_log.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/progress_line.hpp"

namespace dslaunch::runtime {
namespace {

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError("create run folder", "'" + path + "'", error.value(), ExitCode::kCannotCreate);
}

void write_config(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::trunc);
  out << text << '\n';
  out.close();
  if (!out) throw SystemError("write", "'" + path + "'", errno, ExitCode::kCannotCreate);
}

// One write a line, so that lines of several programs on one terminal do not mix.
void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::optional<int64_t> device_memory(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

RunLog::RunLog(RunLogOptions options, at::Device device) : options_(std::move(options)), device_(device) {
  if (options_.rank != 0) return;
  make_folder(options_.run_dir);
  write_config(options_.run_dir + "/config.resolved.json", options_.resolved_config);
  file_.emplace(options_.run_dir + "/metrics.jsonl", options_.resumed_step);
}

void RunLog::report_step(const StepResult& result, const std::string& time_line) {
  if (!writes()) return;
  const double seconds = result.step_ms / 1e3;
  write_pending();
  StepMetrics metrics;
  metrics.step = result.step;
  metrics.loss = result.loss;
  metrics.lr = result.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.loss_scale = result.loss_scale;
  metrics.overflow = result.overflow;
  metrics.step_ms = result.step_ms;
  metrics.samples_per_s = static_cast<double>(options_.train_batch) / seconds;
  if (result.num_tokens > 0)
    metrics.tokens_per_s = static_cast<double>(result.num_tokens * options_.world_size) / seconds;
  metrics.gpu_mem_bytes = device_memory(device_);
  if (auto memory = read_host_memory()) metrics.host_mem_bytes = memory->resident;
  const bool shown = result.step % options_.steps_per_print == 0 || result.step == options_.resumed_step + 1 ||
                     result.step == options_.total_steps;
  if (result.overflow && !options_.quiet) say(result.overflow_line);
  if (shown && !options_.quiet) say(format_progress(metrics, options_.total_steps));
  if (shown && !options_.quiet && !time_line.empty()) say(time_line);
  pending_ = metrics;
  const bool evaluation_follows = options_.eval_interval > 0 && result.step % options_.eval_interval == 0;
  if (!evaluation_follows) write_pending();
}

void RunLog::report_evaluation(int64_t step, double loss) {
  if (!writes()) return;
  if (pending_ && pending_->step == step) pending_->eval_loss = loss;
  write_pending();
  say(fmt::format("step {}  eval_loss {:.4f}", step, loss));
}

void RunLog::finish(bool stopped, const std::string& checkpoint) {
  if (!writes()) return;
  write_pending();
  if (options_.quiet) return;
  say(fmt::format("{}{}; metrics in {}/metrics.jsonl", stopped ? "stopped on request" : "finished",
                  checkpoint.empty() ? "" : ", checkpoint in " + checkpoint, options_.run_dir));
}

void RunLog::write_pending() {
  if (pending_) file_->write(*pending_);
  pending_.reset();
}

}  // namespace dslaunch::runtime
