#include "runtime/model/stages/partition.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace dslaunch::runtime::model::stages {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

class Search {
 public:
  Search(const PartitionProblem& problem, size_t num_parts)
      : problem_(problem), num_layers_(problem.costs.size()), num_parts_(num_parts) {
    cost_before_.push_back(0);
    trainable_before_.push_back(0);
    for (size_t i = 0; i < num_layers_; ++i) {
      cost_before_.push_back(cost_before_.back() + problem.costs[i]);
      trainable_before_.push_back(trainable_before_.back() + problem.num_trainable[i]);
    }
  }

  // The least possible cost of the largest part.
  double least_maximum() const {
    std::vector<double> best(num_layers_ + 1, kImpossible);  // of the layers from here on, in `parts` parts
    best[num_layers_] = 0;
    for (size_t parts = 1; parts <= num_parts_; ++parts) {
      std::vector<double> with_one_more(num_layers_ + 1, kImpossible);
      for (size_t first = 0; first < num_layers_; ++first) {
        for (size_t end = first + 1; end <= num_layers_; ++end) {
          if (!is_part(first, end)) continue;
          with_one_more[first] = std::min(with_one_more[first], std::max(cost(first, end), best[end]));
        }
      }
      best = std::move(with_one_more);
    }
    return best[0];
  }

  std::vector<size_t> best_under(double maximum) const {
    // By number of parts: of the layers from here on.
    std::vector<std::vector<Choice>> best(num_parts_ + 1, std::vector<Choice>(num_layers_ + 1));
    best[0][num_layers_] = {true, 0, 0, num_layers_};
    for (size_t parts = 1; parts <= num_parts_; ++parts) {
      for (size_t first = 0; first < num_layers_; ++first) {
        for (size_t end = first + 1; end <= num_layers_; ++end) {
          const auto& rest = best[parts - 1][end];
          if (!rest.is_possible || !is_part(first, end) || cost(first, end) > maximum * (1 + 1e-12)) continue;
          const double own = cost(first, end);
          const Choice choice{true, rest.bytes + (end < num_layers_ ? problem_.cut_bytes[end] : 0),
                              rest.squares + own * own, end};
          if (is_better(choice, best[parts][first])) best[parts][first] = choice;
        }
      }
    }
    std::vector<size_t> out;
    for (size_t parts = num_parts_, first = 0; parts > 1; --parts) {
      first = best[parts][first].end;
      out.push_back(first);
    }
    return out;
  }

 private:
  struct Choice {
    bool is_possible = false;
    int64_t bytes = 0;
    double squares = 0;
    size_t end = 0;  // of the first part
  };

  // A later choice ends its first part later.
  static bool is_better(const Choice& choice, const Choice& known) {
    if (!known.is_possible) return true;
    if (choice.bytes != known.bytes) return choice.bytes < known.bytes;
    const double tolerance = 1e-12 * std::max(choice.squares, known.squares);
    return choice.squares <= known.squares + tolerance;
  }

  double cost(size_t first, size_t end) const { return cost_before_[end] - cost_before_[first]; }
  bool is_part(size_t first, size_t end) const {
    if (end < num_layers_ && !problem_.can_cut[end]) return false;
    return trainable_before_[end] > trainable_before_[first];
  }

  const PartitionProblem& problem_;
  const size_t num_layers_, num_parts_;
  std::vector<double> cost_before_;
  std::vector<int64_t> trainable_before_;
};

}  // namespace

std::optional<std::vector<size_t>> partition_layers(const PartitionProblem& problem, size_t num_parts) {
  const Search search(problem, num_parts);
  const double maximum = search.least_maximum();
  if (maximum == kImpossible) return std::nullopt;
  return search.best_under(maximum);
}

}  // namespace dslaunch::runtime::model::stages
