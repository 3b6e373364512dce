#include "runtime/device/gemm_algorithm.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>

#include "base/format.hpp"

namespace dslaunch::runtime::device {
namespace {

constexpr int kRoundsOfAll = 3;
constexpr double kStillClose = 1.1;  // times the fastest's time, after the rounds of all
constexpr const char* kPyTorch = "pytorch";

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

size_t choose_fastest(size_t num_candidates, int rounds, double share, const MeasureTurns& microseconds) {
  std::vector<size_t> candidates(num_candidates);
  std::iota(candidates.begin(), candidates.end(), size_t{0});
  std::vector<double> medians(num_candidates, std::numeric_limits<double>::infinity());
  const auto measure = [&](int num_rounds) {
    std::vector<size_t> turns;
    for (int round = 0; round < num_rounds; ++round) {
      turns.insert(turns.end(), candidates.begin(), candidates.end());
      std::rotate(candidates.begin(), candidates.begin() + 1, candidates.end());
    }
    const auto measured = microseconds(turns);
    std::vector<std::vector<double>> times(num_candidates);
    for (size_t i = 0; i < turns.size(); ++i) times[turns[i]].push_back(measured[i]);
    for (const size_t candidate : candidates) medians[candidate] = median(times[candidate]);
  };
  measure(kRoundsOfAll);
  const double fastest = *std::min_element(medians.begin(), medians.end());
  std::erase_if(candidates,
                [&](size_t candidate) { return candidate != 0 && medians[candidate] > kStillClose * fastest; });
  std::fill(medians.begin(), medians.end(), std::numeric_limits<double>::infinity());
  measure(rounds);
  const auto best = static_cast<size_t>(std::min_element(medians.begin(), medians.end()) - medians.begin());
  return medians[best] < share * medians[0] ? best : 0;
}

std::string to_text(const Choice& choice) {
  if (!choice) return kPyTorch;
  std::string out;
  for (const uint64_t word : choice->words) out += fmt::format("{:016x} ", word);
  return out + std::to_string(choice->workspace_bytes);
}

std::optional<Choice> choice_of(const std::string& text) {
  if (text == kPyTorch) return Choice();
  Algorithm algorithm;
  std::istringstream in(text);
  for (uint64_t& word : algorithm.words) in >> std::hex >> word;
  in >> std::dec >> algorithm.workspace_bytes;
  if (in.fail() || to_text(algorithm) != text) return std::nullopt;
  return algorithm;
}

}  // namespace dslaunch::runtime::device
