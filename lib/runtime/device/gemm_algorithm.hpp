// Which of several ways to compute a GEMM is the fastest, and how a choice is written down. Without a device.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime::device {

// cuBLASLt's own bytes; valid for one of its versions.
struct Algorithm {
  std::array<uint64_t, 8> words{};
  int64_t workspace_bytes = 0;

  bool operator==(const Algorithm&) const = default;
};

// The candidate that takes the least time, by medians over `rounds` in which all take turns that are not far behind:
// the clock of a GPU that runs at its power limit changes within milliseconds. Candidate 0 stays unless another one
// takes less than `share` of its time. `microseconds(turns)` measures candidates in this order, without a pause, in
// which the GPU would cool down.
using MeasureTurns = std::function<std::vector<double>(const std::vector<size_t>& turns)>;
size_t choose_fastest(size_t num_candidates, int rounds, double share, const MeasureTurns& microseconds);

// Nothing: PyTorch's operator.
using Choice = std::optional<Algorithm>;
std::string to_text(const Choice& choice);
// Nothing: `text` is not from to_text().
std::optional<Choice> choice_of(const std::string& text);

}  // namespace dslaunch::runtime::device
