// The mean over ranks of a tensor of which each sends one bit for an element, by its definition and in doubles, for all
// ranks at once: signs times the root mean square, and what that loses is added the next time. `padded`: the elements
// with the zeros that make each rank's chunk a number of whole bytes.
#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

namespace dslaunch::test {

using Exact = std::vector<double>;

struct OneBitMean {
  std::vector<Exact> worker;  // by rank: lost by its rounding; padded
  std::vector<Exact> server;  // by rank: lost by the rounding of its chunk

  OneBitMean(size_t ranks, size_t padded) : worker(ranks, Exact(padded)), server(ranks, Exact(padded / ranks)) {}

  static Exact round(Exact values, Exact& lost) {
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += lost[i];
      squares += values[i] * values[i];
    }
    const double scale = std::sqrt(squares / static_cast<double>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const double rounded = values[i] >= 0 ? scale : -scale;
      lost[i] = values[i] - rounded;
      values[i] = rounded;
    }
    return values;
  }

  Exact mean(const std::vector<Exact>& values) {
    const size_t ranks = worker.size(), chunk = server[0].size();
    std::vector<Exact> sent;
    for (size_t r = 0; r < ranks; ++r) {
      Exact padded = values[r];
      padded.resize(ranks * chunk);
      sent.push_back(round(padded, worker[r]));
    }
    Exact out;
    for (size_t r = 0; r < ranks; ++r) {
      Exact average(chunk);
      for (size_t i = 0; i < chunk; ++i) {
        for (const auto& each : sent) average[i] += each[r * chunk + i] / static_cast<double>(ranks);
      }
      for (const double value : round(average, server[r])) out.push_back(value);
    }
    out.resize(values[0].size());
    return out;
  }
};

}  // namespace dslaunch::test
