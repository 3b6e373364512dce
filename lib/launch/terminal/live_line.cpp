#include "launch/terminal/live_line.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kMinBar = 6, kMaxBar = 30;  // cells of the bar

// A terminal may be narrower before it says so (tmux by up to 0.25 s): a line drawn then must not wrap. The row that
// the change of width itself has wrapped is still above, where erase() looks for it.
constexpr const char *kNoWrap = "\x1b[?7l", *kWrap = "\x1b[?7h\x1b[K";

// A part of the line; the one with the highest rank is left out first.
struct Part {
  int rank;
  std::string text;
};

// "[=====>    ]"
std::string bar(double done, int cells) {
  const int full = std::clamp(static_cast<int>(done * cells), 0, cells);
  std::string out(static_cast<size_t>(cells), ' ');
  std::fill_n(out.begin(), full, '=');
  if (full < cells) out[static_cast<size_t>(full)] = '>';
  return "[" + out + "]";
}

std::string memory_text(int64_t bytes) {
  constexpr double kGiB = 1 << 30, kMiB = 1 << 20;
  const auto size = static_cast<double>(bytes);
  return size >= kGiB ? fmt::format("{:.1f} GiB", size / kGiB) : fmt::format("{:.0f} MiB", size / kMiB);
}

std::string remaining_text(double seconds) {
  if (!std::isfinite(seconds)) return "ETA ?";
  if (seconds <= 0) return "done";
  const auto ms = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) * 1e3);
  return "ETA " + format_time(std::chrono::milliseconds(std::max<int64_t>(ms, 1000)));
}

std::vector<Part> parts_of(const LiveProgress& progress) {
  std::vector<Part> parts;
  if (progress.epoch) parts.push_back({6, fmt::format("epoch {:.2f}", *progress.epoch)});
  const std::string total = fmt::format("{}", progress.total_steps);
  parts.push_back({0, fmt::format("step {:>{}}/{}", progress.step, total.size(), total)});
  parts.push_back({0, "loss " + format_loss(progress.loss)});
  parts.push_back({5, fmt::format("lr {:.1e}", progress.lr)});
  parts.push_back({3, format_ms(progress.step_ms) + " ms/step"});
  parts.push_back({2, fmt::format("{} {}/s", format_rate(progress.per_s), progress.counts_tokens ? "tok" : "samples")});
  if (progress.memory_bytes) parts.push_back({4, memory_text(*progress.memory_bytes)});
  parts.push_back({1, remaining_text(progress.remaining_s)});
  return parts;
}

std::string joined(const std::vector<Part>& parts) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : "  ") + part.text;
  return out;
}

}  // namespace

std::string layout(const LiveProgress& progress, int columns) {
  const auto width = static_cast<size_t>(std::max(1, columns - 1));
  std::vector<Part> parts = parts_of(progress);
  std::string text = joined(parts);
  while (text.size() > width) {
    const auto least =
        std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (least->rank == 0) return text.substr(0, width);
    parts.erase(least);
    text = joined(parts);
  }
  const int room = static_cast<int>(width - text.size()) - 4;  // brackets and two blanks
  if (room < kMinBar) return text;
  const double done =
      progress.total_steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.total_steps) : 0;
  return bar(done, std::min(room, kMaxBar)) + "  " + text;
}

std::string LiveLine::draw(int columns) {
  if (!progress_) return {};
  const std::string text = layout(*progress_, columns);
  drawn_length_ = static_cast<int>(text.size());
  drawn_columns_ = columns;
  return fmt::format("{}{}{}", kNoWrap, text, kWrap);
}

std::string LiveLine::erase(int columns) {
  if (!is_drawn()) return {};
  const int rows_above = (drawn_length_ - 1) / std::max(1, columns);
  drawn_length_ = 0;
  const std::string up = rows_above > 0 ? fmt::format("\x1b[{}A", rows_above) : "";
  return "\r" + up + "\x1b[J";
}

std::string LiveLine::keep(int columns) {
  if (!progress_) return {};
  const std::string out = erase(columns) + draw(columns) + "\n";
  progress_.reset();
  drawn_length_ = 0;
  return out;
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace dslaunch::launch
