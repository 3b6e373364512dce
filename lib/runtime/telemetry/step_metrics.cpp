#include "runtime/telemetry/step_metrics.hpp"

#include <cmath>

#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

// Three significant digits without an exponent for common magnitudes.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 1e5 || (size < 1e-3 && size > 0)) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0);
}

}  // namespace

std::string format_ms(double ms) {
  return three_digits(ms);
}

std::string format_loss(double loss) {
  const double size = std::abs(loss);
  const bool needs_exponent = size >= 1e5 || (size < 1e-3 && size > 0);
  return needs_exponent && std::isfinite(loss) ? fmt::format("{:.2e}", loss) : fmt::format("{:.4f}", loss);
}

std::string format_rate(double per_second) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G"}) {
    if (std::abs(per_second) < 999.5) break;
    per_second /= 1000;
    unit = next;
  }
  const int decimals = per_second >= 99.95 || (*unit == 0 && per_second >= 9.995) ? 0 : 1;
  return fmt::format("{:.{}f}{}", per_second, decimals, unit);
}

std::string format_progress(const StepMetrics& metrics, int64_t total_steps) {
  const std::string total = total_steps > 0 ? fmt::format("{}", total_steps) : "";
  std::string line = fmt::format("step {:>{}}{}{}", metrics.step, total.size(), total.empty() ? "" : "/", total);
  line += fmt::format("  loss {}  lr {:.1e}", format_loss(metrics.loss), metrics.lr);
  if (metrics.grad_norm) line += "  grad_norm " + three_digits(*metrics.grad_norm);
  if (metrics.overflow) line += fmt::format("  overflow (step skipped, loss scale {:g})", metrics.loss_scale);
  line += fmt::format("  {} ms/step", three_digits(metrics.step_ms));
  if (metrics.tokens_per_s) {
    line += fmt::format("  {} tok/s", format_rate(*metrics.tokens_per_s));
  } else {
    line += fmt::format("  {} samples/s", format_rate(metrics.samples_per_s));
  }
  if (metrics.eval_loss) line += "  eval_loss " + format_loss(*metrics.eval_loss);
  return line;
}

}  // namespace dslaunch::runtime
