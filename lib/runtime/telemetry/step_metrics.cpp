#include "runtime/telemetry/step_metrics.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::runtime {

namespace {

constexpr size_t kShownBytes = 48;  // of a prompt or a text

// In quotes, the end or the beginning of a long text left out.
std::string quoted(const std::string& text, bool shows_end) {
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (line.size() <= kShownBytes) return '"' + line + '"';
  size_t cut = shows_end ? line.size() - kShownBytes : kShownBytes;
  const auto is_inside = [&] { return (static_cast<unsigned char>(line[cut]) & 0xc0) == 0x80; };  // of a character
  while (cut > 0 && cut < line.size() && is_inside()) shows_end ? ++cut : --cut;
  return shows_end ? "\"…" + line.substr(cut) + '"' : '"' + line.substr(0, cut) + "…\"";
}

}  // namespace

std::string format_sample(const std::vector<EvaluationSample>& samples) {
  const auto& first = samples.front();
  return fmt::format("sample {} → {} (1 of {})", quoted(first.prompt, /*shows_end=*/true),
                     quoted(first.text, /*shows_end=*/false), samples.size());
}

std::string format_evaluation(double loss, const NamedValues& metrics, const char* separator) {
  std::string out = "eval_loss " + format_loss(loss);
  for (const auto& [name, value] : metrics) out += fmt::format("{}eval_{} {}", separator, name, format_loss(value));
  return out;
}

std::string format_progress(const StepMetrics& metrics, int64_t total_steps) {
  const std::string total = total_steps > 0 ? fmt::format("{}", total_steps) : "";
  std::string line = fmt::format("step {:>{}}{}{}", metrics.step, total.size(), total.empty() ? "" : "/", total);
  line += fmt::format("  loss {}  lr {:.1e}", format_loss(metrics.loss), metrics.lr);
  if (metrics.grad_norm) line += "  grad_norm " + format_ms(*metrics.grad_norm);
  if (metrics.overflow) line += fmt::format("  overflow (step skipped, loss scale {:g})", metrics.loss_scale);
  line += fmt::format("  {} ms/step", format_ms(metrics.step_ms));
  if (metrics.tokens_per_s) {
    line += fmt::format("  {} tok/s", format_rate(*metrics.tokens_per_s));
  } else {
    line += fmt::format("  {} samples/s", format_rate(metrics.samples_per_s));
  }
  if (metrics.eval_loss) line += "  " + format_evaluation(*metrics.eval_loss, metrics.eval_metrics);
  return line;
}

}  // namespace dslaunch::runtime
