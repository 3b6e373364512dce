#include "runtime/engine/inference/infer_report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

int64_t rest_of(const InferReport& report) {
  return std::max<int64_t>(0, report.peak_bytes - report.weight_bytes - report.cache_bytes);
}

double tokens_per_second(const InferReport& report) {
  return report.total.count() > 0 ? static_cast<double>(report.new_tokens) / report.total.count() : 0;
}

double milliseconds(const std::vector<InferReport::Seconds>& values, double quantile) {
  return 1000 * percentile(values, quantile);
}

int64_t bytes_of_step(const InferReport& report) {
  return report.decode_steps.empty() ? 0 : report.read_bytes / std::ssize(report.decode_steps);
}

// Of the memory's rate that the median step reads at; 0: not known.
double share_of_rate(const InferReport& report) {
  const double seconds = percentile(report.decode_steps, 0.5);
  if (seconds <= 0 || report.memory_rate <= 0) return 0;
  return static_cast<double>(bytes_of_step(report)) / seconds / report.memory_rate;
}

nlohmann::json known(double value) {
  return value > 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

double percentile(std::vector<InferReport::Seconds> values, double quantile) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  const size_t index = std::min(values.size(), std::max<size_t>(1, rank)) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index].count();
}

nlohmann::json as_json(const InferReport& report) {
  return {{"prompts", report.num_prompts},
          {"prompt_tokens", report.prompt_tokens},
          {"new_tokens", report.new_tokens},
          {"seconds", report.total.count()},
          {"tokens_per_second", tokens_per_second(report)},
          {"time_to_first_token_ms",
           {{"p50", milliseconds(report.first_tokens, 0.5)}, {"max", milliseconds(report.first_tokens, 1)}}},
          {"decode_ms",
           {{"p50", milliseconds(report.decode_steps, 0.5)},
            {"p90", milliseconds(report.decode_steps, 0.9)},
            {"p99", milliseconds(report.decode_steps, 0.99)}}},
          {"decode_read",
           {{"bytes", bytes_of_step(report)},
            {"memory_bytes_per_second", known(report.memory_rate)},
            {"share", known(share_of_rate(report))}}},
          {"memory_bytes",
           {{"weights", report.weight_bytes},
            {"cache", report.cache_bytes},
            {"rest", rest_of(report)},
            {"peak", report.peak_bytes}}},
          {"weight_types", report.weight_types},
          {"tensor_ranks", report.tensor_ranks},
          {"small_sums", report.small_sums},
          {"cache", report.cache},
          {"steps", report.steps}};
}

std::string as_text(const InferReport& report) {
  std::string text =
      fmt::format("{} of {} tokens in all; {} tokens written in {:.2f} s, {:.1f} per second\n",
                  report.num_prompts == 1 ? "1 prompt" : fmt::format("{} prompts", report.num_prompts),
                  report.prompt_tokens, report.new_tokens, report.total.count(), tokens_per_second(report));
  text += fmt::format("first token after {:.1f} ms (at most {:.1f})", milliseconds(report.first_tokens, 0.5),
                      milliseconds(report.first_tokens, 1));
  if (!report.decode_steps.empty()) {
    text += fmt::format("; then {:.1f} ms for each step, 90% within {:.1f}, 99% within {:.1f}",
                        milliseconds(report.decode_steps, 0.5), milliseconds(report.decode_steps, 0.9),
                        milliseconds(report.decode_steps, 0.99));
  }
  if (const double share = share_of_rate(report); share > 0) {
    text += fmt::format("\na step reads {}: {:.0f}% of the {}/s that copies read and write",
                        format_bytes(bytes_of_step(report)), 100 * share,
                        format_bytes(static_cast<int64_t>(report.memory_rate)));
  }
  if (report.tensor_ranks > 1) {
    text += fmt::format("\n{} tensor ranks{}", report.tensor_ranks,
                        report.small_sums.empty() ? "" : "; small sums " + report.small_sums);
  }
  text += fmt::format("\nmemory at most {}: weights {}{}, cache {}, rest {}\ncache: {}\n",
                      format_bytes(report.peak_bytes), format_bytes(report.weight_bytes),
                      report.weight_types.empty() ? "" : fmt::format(" ({})", report.weight_types),
                      format_bytes(report.cache_bytes), format_bytes(rest_of(report)), report.cache);
  return text;
}

}  // namespace dslaunch::runtime::engine::inference
