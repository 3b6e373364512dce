// What the launcher's live line shows of a training step, as rank 0 writes it to its standard output between its lines,
// and the other records that it writes there. Each is a line that begins with kMark; only a launcher that has asked for
// them (dsworker train --live) gets them. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct LiveProgress {
  int64_t step = 0, total_steps = 0;
  std::optional<double> epoch;  // epochs done, 1.5: half of the second; empty: the data is endless
  double loss = 0, lr = 0, step_ms = 0;
  double per_s = 0;  // tokens, or samples where the data has none
  bool counts_tokens = false;
  std::optional<int64_t> memory_bytes;  // peak of the GPU, else resident on the host
  double remaining_s = 0;               // until the last step

  bool operator==(const LiveProgress&) const = default;
};

namespace live {

inline constexpr char kMark = '\x1e';                                 // the record separator of ASCII
inline constexpr char kProgress = 'p', kPlainLine = 'l', kEnd = 'e';  // what follows the mark

// Whole lines.
std::string progress_record(const LiveProgress& progress);
// A line for files and the console log, which the live line stands for on a terminal.
std::string plain_line_record(std::string_view line);
// The live line stays as it is from here on.
std::string end_record();

// Of the text behind the mark and kProgress; empty if it is not one.
std::optional<LiveProgress> parse_progress(std::string_view text);

}  // namespace live
}  // namespace dslaunch
