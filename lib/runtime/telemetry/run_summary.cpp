#include "runtime/telemetry/run_summary.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/telemetry/fragmentation.hpp"

namespace dslaunch::runtime {
namespace {

std::string line(const char* heading, const std::string& text) {
  return fmt::format("{:<10}  {}", heading, text);
}

// "1 step", "2 steps"; a large number gets separators.
std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", with_separators(count), what, count == 1 ? "" : "s");
}

std::string short_count(int64_t count) {
  std::string text = quantity(count, "");
  return text.ends_with(' ') ? text.substr(0, text.size() - 1) : text;
}

// Of a count below a thousand the short form is the whole one.
std::string count_of(int64_t count, const char* what) {
  if (count < 1000) return fmt::format("{} {}", count, what);
  return fmt::format("{} {} ({})", short_count(count), what, with_separators(count));
}

std::string model_text(const RunDescription& run) {
  const bool trains_all = run.num_trainable == run.num_parameters;
  return fmt::format("{}: {}, {}", run.model, count_of(run.num_parameters, "parameters"),
                     trains_all ? "all trainable" : count_of(run.num_trainable, "trainable"));
}

const char* place_of(config::OffloadDevice device) {
  return device == config::OffloadDevice::kFile ? "files" : "host memory";
}

std::string precision_text(const RunDescription& run, const config::JobConfig& config) {
  std::string text = run.compute_dtype;
  if (config.autocast)
    text = fmt::format("autocast to {}", *config.autocast == config::ScalarType::kBf16 ? "bf16" : "fp16");
  if (run.compute_dtype != "fp32") text += config.fp32_master ? ", fp32 masters" : ", no fp32 masters";
  text += config.zero.stage == 0 ? "; no ZeRO" : fmt::format("; ZeRO stage {}", config.zero.stage);
  const auto& zero = config.zero;
  if (zero.offload_optimizer.device != config::OffloadDevice::kNone) {
    text += fmt::format(", optimizer state in {}", place_of(zero.offload_optimizer.device));
  }
  if (zero.offload_param.device != config::OffloadDevice::kNone) {
    text += fmt::format(", parameters in {}", place_of(zero.offload_param.device));
  }
  if (config.recomputation.enabled) {
    text += "; activations are recomputed";
  } else if (config.recomputation.selective && run.device != "cpu") {
    text += "; selective recomputation";
  }
  return text;
}

std::string ranks_text(const RunDescription& run) {
  const int world = run.data_ranks * run.stages * run.tensor_ranks;
  std::string text = fmt::format("{} on {}", counted(world, "rank"), run.device);
  if (run.num_hosts > 1) text += fmt::format(" of {} hosts", run.num_hosts);
  if (run.stages * run.tensor_ranks == 1) return text;
  text += fmt::format(": {} data", run.data_ranks);
  if (run.stages > 1) text += fmt::format(" x {} stages", run.stages);
  if (run.tensor_ranks > 1) text += fmt::format(" x {} tensor", run.tensor_ranks);
  return text;
}

std::string batch_text(const RunDescription& run, const config::Batch& batch) {
  return fmt::format("{} = {} (micro) x {} (accumulation) x {} (data ranks)", counted(batch.train_batch, "sample"),
                     batch.micro_batch, batch.accumulation, run.data_ranks);
}

std::string data_text(const RunDescription& run, const config::Data& data) {
  std::string text = data.synthetic_train ? "synthetic" : fmt::format("{}", fmt::join(data.train, ", "));
  if (run.num_samples > 0) {
    text += fmt::format(": {}, {} an epoch", counted(run.num_samples, "sample"), counted(run.steps_per_epoch, "step"));
  }
  if (run.first_step > run.total_steps)
    return text + fmt::format("; all {} are done", counted(run.total_steps, "step"));
  return text + (run.first_step > 1 ? fmt::format("; steps {} to {}", run.first_step, run.total_steps)
                                    : fmt::format("; {} in all", counted(run.total_steps, "step")));
}

}  // namespace

std::vector<std::string> format_description(const RunDescription& run, const config::JobConfig& config) {
  std::vector<std::string> out{line("model", model_text(run)), line("precision", precision_text(run, config)),
                               line("ranks", ranks_text(run)), line("batch", batch_text(run, config.batch)),
                               line("data", data_text(run, config.data))};
  std::vector<std::string> autos;
  for (const auto& [key, value] : run.autos) autos.push_back(fmt::format("{} = {}", key, value));
  if (!autos.empty()) out.push_back(line("auto", fmt::format("{}", fmt::join(autos, ", "))));
  const bool is_inside = run.checkpoint_dir == run.run_dir + "/checkpoints";
  const std::string checkpoints = run.checkpoint_dir.empty() ? "; no checkpoints"
                                  : is_inside                ? ", checkpoints/"
                                                             : "; checkpoints in " + run.checkpoint_dir;
  out.push_back(line("written to", fmt::format("{}: metrics.jsonl{}", run.run_dir, checkpoints)));
  return out;
}

std::string format_steps_done(int64_t done, int64_t total) {
  if (done <= total) return fmt::format("{} of {}", done, counted(total, "step"));
  return fmt::format("{}, more than the {} of this start", counted(done, "step"), counted(total, "step"));
}

void RunTotals::add(const StepMetrics& metrics) {
  ++num_steps_;
  step_ms_ += metrics.step_ms;
  num_samples_ += metrics.samples_per_s * metrics.step_ms / 1e3;
  if (metrics.tokens_per_s) num_tokens_ += *metrics.tokens_per_s * metrics.step_ms / 1e3;
  peak_allocated_ = std::max(peak_allocated_, metrics.gpu_mem_bytes.value_or(0));
  peak_reserved_ = std::max(peak_reserved_, metrics.gpu_reserved_bytes.value_or(0));
  const Point point{metrics.step, metrics.loss};
  if (!first_) first_ = point;
  last_ = point;
  if (std::isfinite(point.loss) && (!best_ || point.loss < best_->loss)) best_ = point;
}

std::vector<std::string> RunTotals::lines(int64_t total_steps, std::chrono::milliseconds time, const std::string& best,
                                          const std::string& input) const {
  if (num_steps_ == 0) return {};
  const double seconds = step_ms_ / 1e3;
  std::string rate;
  if (seconds > 0) {
    rate = num_tokens_ > 0 ? fmt::format(", mean {} tok/s", format_rate(num_tokens_ / seconds))
                           : fmt::format(", mean {} samples/s", format_rate(num_samples_ / seconds));
  }
  std::vector<std::string> out{line(
      "steps", fmt::format("{} done in {} (now at {} of {}), {} ms/step{}", num_steps_, format_time(time), last_->step,
                           total_steps, format_ms(step_ms_ / static_cast<double>(num_steps_)), rate))};
  std::string losses = fmt::format("first {}, last {}", format_loss(first_->loss), format_loss(last_->loss));
  if (best_) losses += fmt::format(", best {} at step {}", format_loss(best_->loss), best_->step);
  out.push_back(line("loss", losses));
  if (evaluation_) {
    std::string values = fmt::format("{} after step {}", format_loss(evaluation_->loss), evaluation_->step);
    for (const auto& [name, value] : eval_metrics_) values += fmt::format(", eval_{} {}", name, format_loss(value));
    out.push_back(line("eval_loss", values));
  }
  if (!best.empty()) out.push_back(line("best", best));
  if (!input.empty()) out.push_back(line("input", input));
  if (peak_reserved_ > 0) {
    out.push_back(line("memory", fmt::format("GPU of rank 0, at the peak: {} allocated, {} reserved, fragmentation {}",
                                             in_gibibytes(peak_allocated_), in_gibibytes(peak_reserved_),
                                             describe(fragmentation_of(peak_allocated_, peak_reserved_)))));
  }
  return out;
}

}  // namespace dslaunch::runtime
