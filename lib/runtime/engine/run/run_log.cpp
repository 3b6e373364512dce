#include "runtime/engine/run/run_log.hpp"

#include <sys/stat.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/live_progress.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/quantity.hpp"
#include "base/unshare_file.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/state/output_file.hpp"
#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

void write_config(const std::string& path, const std::string& text) {
  unshare_file(path);
  OutputFile out(path);
  out.write(text + "\n");
  out.finish(/*sync=*/false);
}

std::string metrics_path(const std::string& run_dir) {
  return run_dir + "/metrics.jsonl";
}

// One write per line, so that lines of several programs on one terminal do not mix.
void write(const std::string& line) {
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

void print(const std::string& line) {
  write(printable_lines(line) + "\n");
}

// What a reader of the run's figures needs to judge them.
std::vector<std::pair<std::string, std::string>> environment_of(const RunDescription& run, const std::string& job,
                                                                const std::string& host) {
  std::vector<std::pair<std::string, std::string>> out{
      {"dslaunch", DSL_VERSION},
      {"torch", TORCH_VERSION},
      {"job", job},
      {"host", host},
      {"hosts", fmt::format("{}", run.num_hosts)},
      {"ranks", fmt::format("{} ({} data x {} stages)", run.data_ranks * run.stages, run.data_ranks, run.stages)},
      {"device", run.device},
      {"model", run.model},
      {"parameters", fmt::format("{} ({} trainable)", run.num_parameters, run.num_trainable)},
      {"compute_dtype", run.compute_dtype}};
  for (auto& entry : describe_machine()) out.push_back(std::move(entry));
  return out;
}

void print(const std::vector<std::string>& lines) {
  for (const auto& line : lines) print(line);
}

std::vector<Momentum> momentum_of(const config::Optimizer& optimizer) {
  using enum config::OptimizerType;
  if (optimizer.type == kSgd || optimizer.type == kRmsprop) return {{false, optimizer.momentum, 0}};
  return {{true, optimizer.beta1, optimizer.beta2}};
}

std::string event_name(const std::string& name) {
  return fmt::format("Train/Samples/{}", name);
}

// The points of a step that DeepSpeed's monitors get: the loss at the sample count where the step began; at the sample
// count where it ended, the learning rate and loss scale of the next step, and the times.
std::vector<ScalarEvent> monitor_events(const step::StepResult& result, int64_t train_batch, bool is_fp16,
                                        const std::optional<StepBreakdown>& times) {
  const int64_t after = result.step * train_batch;
  std::vector<ScalarEvent> events{{event_name("train_loss"), result.loss, after - train_batch},
                                  {event_name("lr"), result.next_lr, after}};
  if (is_fp16) events.push_back({event_name("loss_scale"), result.next_loss_scale, after});
  if (!times) return events;
  const PhaseTimes& step = times->step;
  events.push_back({event_name("elapsed_time_ms_forward"), step.forward, after});
  events.push_back({event_name("elapsed_time_ms_backward"), step.backward, after});
  events.push_back({event_name("elapsed_time_ms_backward_inner"), step.backward_inner, after});
  events.push_back({event_name("elapsed_time_ms_backward_allreduce"), step.backward_reduce, after});
  events.push_back({event_name("elapsed_time_ms_step"), step.step, after});
  return events;
}

// What else the step's line in metrics.jsonl has: ours, at the sample count where the step ended.
std::vector<ScalarEvent> further_events(const StepMetrics& metrics, int64_t train_batch) {
  const int64_t after = metrics.step * train_batch;
  std::vector<ScalarEvent> events;
  const auto add = [&](const char* name, double value) { events.push_back({event_name(name), value, after}); };
  if (metrics.grad_norm) add("grad_norm", *metrics.grad_norm);
  add("overflow", metrics.overflow ? 1 : 0);
  add("step_ms", metrics.step_ms);
  add("input_ms", metrics.input_ms);
  add("samples_per_s", metrics.samples_per_s);
  if (metrics.tokens_per_s) add("tokens_per_s", *metrics.tokens_per_s);
  if (metrics.gpu_mem_bytes) add("gpu_mem_bytes", static_cast<double>(*metrics.gpu_mem_bytes));
  if (metrics.gpu_reserved_bytes) add("gpu_reserved_bytes", static_cast<double>(*metrics.gpu_reserved_bytes));
  for (const auto& [name, value] : metrics.of_data) add(name.c_str(), static_cast<double>(value));
  if (metrics.host_mem_bytes) add("host_mem_bytes", static_cast<double>(*metrics.host_mem_bytes));
  return events;
}

// At the sample count where the evaluated step ended.
std::vector<ScalarEvent> evaluation_events(const step::EvaluationResult& result, int64_t after) {
  std::vector<ScalarEvent> events{{event_name("eval_loss"), result.loss, after}};
  for (const auto& [name, value] : result.metrics) events.push_back({event_name("eval_" + name), value, after});
  return events;
}

// In Markdown, which would otherwise read the text's own characters.
std::string as_code_block(const EvaluationSample& sample) {
  std::string out = "    ";
  for (const char c : sample.prompt + sample.text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

RunLog::RunLog(RunLogOptions options, const config::JobConfig& config, at::Device device)
    : options_(std::move(options)),
      config_(config),
      device_(device),
      throughput_(config.batch.train_batch, config.batch.accumulation) {
  if (options_.rank != 0) return;
  make_directory(options_.run_dir);
  const std::string resolved = options_.run_dir + "/config.resolved.json";
  if (!options_.eval_only || !std::filesystem::exists(resolved)) write_config(resolved, options_.resolved_config);
  const int64_t kept = options_.eval_only ? MetricsFile::kKeepAll : options_.resumed_step;
  file_.emplace(metrics_path(options_.run_dir), kept);
  if (config.train.samples) samples_file_.emplace(options_.run_dir + "/samples.jsonl", kept);
  if (options_.eval_only) return;
  events_.emplace(options_.run_dir + "/events.jsonl");
  monitors_ = make_monitors(config, options_.run_dir, options_.resumed_step > 0, options_.resolved_config);
}

StepMetrics RunLog::metrics_of(const step::StepResult& result, const StepReport& report) const {
  const double seconds = result.step_ms / 1e3;
  StepMetrics metrics;
  metrics.step = result.step;
  metrics.loss = result.loss;
  metrics.lr = result.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.loss_scale = result.loss_scale;
  metrics.overflow = result.overflow;
  metrics.step_ms = result.step_ms;
  metrics.input_ms = report.input_ms;
  const auto& batches = options_.schedule.batches;
  const int64_t num_samples = batches ? batches->num_samples(result.step) : config_.batch.train_batch;
  metrics.samples_per_s = static_cast<double>(num_samples) / seconds;
  metrics.of_data = options_.schedule.values_at(result.step);
  if (result.num_tokens > 0)
    metrics.tokens_per_s = static_cast<double>(result.num_tokens * options_.data_ranks) / seconds;
  if (!device_.is_cpu()) {
    const DeviceMemory memory = read_device_memory(device_);
    metrics.gpu_mem_bytes = std::max(memory.peak_allocated, report.peak_device_bytes);
    metrics.gpu_reserved_bytes = std::max(memory.peak_reserved, report.peak_reserved_bytes);
  }
  if (auto memory = read_host_memory()) metrics.host_mem_bytes = memory->resident;
  if (report.times) {
    const PhaseTimes& times = report.times->step;
    metrics.forward_ms = times.forward;
    metrics.backward_ms = times.backward_inner;
    metrics.reduce_ms = times.backward_reduce;
    metrics.update_ms = times.step;
  }
  return metrics;
}

// A run that was killed may have ended before it recorded its last checkpoint.
void RunLog::record_resumed_checkpoint(const std::string& checkpoints) {
  struct stat status {};
  const std::string path = checkpoints + "/" + step_name(options_.resumed_step);
  const bool is_there = options_.resumed_step > 0 && !checkpoints.empty() && ::stat(path.c_str(), &status) == 0;
  if (is_there) events_->checkpoint(options_.resumed_step, static_cast<double>(status.st_mtime));
}

void RunLog::report_start(const RunDescription& run) {
  if (events_) {
    events_->start({.step = options_.resumed_step,
                    .total_steps = options_.total_steps,
                    .environment = environment_of(run, options_.job, options_.host)});
    record_resumed_checkpoint(run.checkpoint_dir);
  }
  if (writes() && !options_.quiet && !options_.eval_only) print(format_description(run, config_));
}

void RunLog::report_step(const step::StepResult& result, const StepReport& report) {
  if (!writes()) return;
  write_pending();
  const StepMetrics metrics = metrics_of(result, report);
  throughput_.add_step(metrics.step_ms);
  totals_.add(metrics);
  const bool is_fp16 = config_.precision == config::Precision::kFp16;
  auto events = monitor_events(result, config_.batch.train_batch, is_fp16, report.times);
  const auto further = further_events(metrics, config_.batch.train_batch);
  events.insert(events.end(), further.begin(), further.end());
  for (auto& monitor : monitors_) monitor->write(events);
  if (result.overflow && !options_.quiet) print(result.overflow_line);
  if (!options_.quiet) show(result, metrics, report);
  watch_input(metrics);
  if (!options_.quiet && options_.live) show_live(metrics);
  pending_ = metrics;
  const int64_t interval = config_.train.eval_interval;
  const bool evaluation_follows = (interval > 0 && result.step % interval == 0) ||
                                  (options_.evaluates_at_end && result.step == options_.total_steps);
  if (!evaluation_follows) write_pending();
}

// Once, after steps enough to know.
void RunLog::watch_input(const StepMetrics& metrics) {
  constexpr int64_t kNumSteps = 20;
  if (metrics.step == options_.resumed_step + 1) return;
  input_.add(metrics.step_ms, metrics.input_ms);
  if (input_.num_steps() != kNumSteps || !input_.is_limit()) return;
  log::warning("the input limits this run: {} (steps {} to {}); {}", input_.text(), options_.resumed_step + 2,
               metrics.step, input_advice(config_.data.num_workers));
}

void RunLog::show(const step::StepResult& result, const StepMetrics& metrics, const StepReport& report) const {
  const bool is_shown = metrics.step % config_.steps_per_print == 0 || metrics.step == options_.resumed_step + 1 ||
                        metrics.step == options_.total_steps;
  if (is_shown) {
    const std::string line = format_progress(metrics, options_.total_steps);
    options_.live ? write(live::plain_line_record(printable_lines(line))) : print(line);
  }
  if (is_shown) {
    show_deepspeed_lines(result, report);
    if (report.times) {
      print(format_accumulation_step_times(report.times->last_accumulation_step));
      print(format_step_times(report.times->step));
    }
    print(report.lines_at_report);
  }
  print(report.lines);
}

// A reader follows ten records a second; the last step has one in any case.
void RunLog::show_live(const StepMetrics& metrics) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_record_ && metrics.step != options_.total_steps) return;
  next_record_ = now + std::chrono::milliseconds(100);
  const double elapsed = std::chrono::duration<double>(now - began_).count();
  const auto num_done = static_cast<double>(metrics.step - options_.resumed_step);
  LiveProgress out{.step = metrics.step,
                   .total_steps = options_.total_steps,
                   .loss = metrics.loss,
                   .lr = metrics.lr,
                   .step_ms = metrics.step_ms,
                   .per_s = metrics.tokens_per_s.value_or(metrics.samples_per_s),
                   .counts_tokens = metrics.tokens_per_s.has_value(),
                   .memory_bytes = metrics.gpu_mem_bytes ? metrics.gpu_mem_bytes : metrics.host_mem_bytes,
                   .remaining_s = elapsed / num_done * static_cast<double>(options_.total_steps - metrics.step)};
  if (options_.steps_per_epoch > 0) {
    out.epoch = static_cast<double>(metrics.step) / static_cast<double>(options_.steps_per_epoch);
  }
  write(live::progress_record(out));
}

void RunLog::show_deepspeed_lines(const step::StepResult& result, const StepReport& report) const {
  if (!config_.deepspeed_lines || result.step % config_.steps_per_print != 0) return;
  print(format_step_line(result.step, result.num_skipped, {result.next_lr}, momentum_of(config_.optimizer)));
  const DeviceMemory memory = read_device_memory(device_);
  const std::string line = throughput_.line(
      result.step, memory.allocated, std::max(memory.peak_allocated, report.peak_device_bytes), report.step_flops);
  if (config_.throughput_timer && !line.empty()) print(line);
}

void RunLog::report_evaluation(int64_t step, const step::EvaluationResult& result,
                               const std::vector<EvaluationSample>& samples) {
  if (!writes()) return;
  if (pending_ && pending_->step == step) {
    pending_->eval_loss = result.loss;
    pending_->eval_metrics = result.metrics;
    write_pending();
  } else {
    file_->write(EvaluationMetrics{step, result.loss, result.metrics, result.num_samples});
  }
  totals_.add_evaluation(step, result.loss, result.metrics);
  const auto points = evaluation_events(result, step * config_.batch.train_batch);
  for (auto& monitor : monitors_) monitor->write(points);
  if (!samples.empty()) report_samples(step, samples);
  if (options_.quiet && !options_.eval_only) return;
  print(fmt::format("step {}  {}  over {} samples", step, format_evaluation(result.loss, result.metrics),
                    result.num_samples));
  if (!samples.empty()) print(fmt::format("step {}  {}", step, format_sample(samples)));
}

void RunLog::report_samples(int64_t step, const std::vector<EvaluationSample>& samples) {
  samples_file_->write(step, samples);
  std::vector<TextEvent> events;
  for (size_t i = 0; i < samples.size(); ++i) {
    events.push_back(
        {event_name(fmt::format("text_{}", i + 1)), as_code_block(samples[i]), step * config_.batch.train_batch});
  }
  for (auto& monitor : monitors_) monitor->write_texts(events);
}

void RunLog::report_checkpoint(int64_t step, double time) {
  if (events_) events_->checkpoint(step, time);
}

void RunLog::finish(const RunEnd& end) {
  if (!writes()) return;
  write_pending();
  if (events_) events_->end(end.step, end.stopped);
  if (options_.quiet) return;
  if (options_.live) write(live::end_record());
  print(end.lines);
  const auto time = std::chrono::steady_clock::now() - began_;
  print(totals_.lines(options_.total_steps, std::chrono::duration_cast<std::chrono::milliseconds>(time), end.best,
                      end.input));
  const std::string nothing_saved = end.stopped ? ", no checkpoint saved" : "";
  print(fmt::format("{}{}; metrics in {}/metrics.jsonl", end.stopped ? "stopped on request" : "finished",
                    end.checkpoint.empty() ? nothing_saved : ", checkpoint in " + end.checkpoint, options_.run_dir));
}

void RunLog::write_last_step() {
  if (!writes() || !pending_ || pending_is_written_) return;
  file_->write(*pending_);
  pending_is_written_ = true;
}

bool RunLog::has_evaluation(int64_t step) const {
  return MetricsFile::has_evaluation(metrics_path(options_.run_dir), step);
}

bool RunLog::lacks_evaluation(int64_t step) const {
  return MetricsFile::has_step(metrics_path(options_.run_dir), step) && !has_evaluation(step);
}

void RunLog::write_pending() {
  if (pending_ && pending_is_written_ && pending_->eval_loss) file_->rewrite_last(*pending_);
  if (pending_ && !pending_is_written_) file_->write(*pending_);
  pending_.reset();
  pending_is_written_ = false;
}

}  // namespace dslaunch::runtime::engine::run
