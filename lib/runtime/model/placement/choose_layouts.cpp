#include "runtime/model/placement/choose_layouts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Node;

constexpr int kMaxChanges = 8;  // of what one parameter is demanded to be, before its uses count as in disagreement

constexpr int64_t kLargeTable = 1 << 16;  // elements

// Of the elements of a graph's weights one in this many must be split by it, or an exchange is not worth it: a
// router's.
constexpr int64_t kWorthGathering = 50;

int64_t count(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// The parameter of a GEMM, and the dim of it that holds the output's features.
struct Candidate {
  int parameter = 0;
  int64_t in = 0, out = 0;
  Sizes sizes = {};
  int64_t results = 0;  // elements that all its GEMMs make of a batch

  int64_t elements() const { return count(sizes); }
};

std::vector<Candidate> find_candidates(const PlacedGraph& graph, const ParameterViews& views, int ranks) {
  const WalkState state{graph.known, views, ranks, {}};
  std::vector<Candidate> out;
  for (const Node* node : graph.flat.graph->nodes()) {
    const Operation operation(*node, state);
    const auto form = gemm_form(operation);
    const ParameterView* view = form ? operation.parameter(form->weight) : nullptr;
    if (view == nullptr) continue;
    const int64_t results = count(operation.result_sizes());
    const auto known = std::find_if(out.begin(), out.end(),
                                    [&](const Candidate& other) { return other.parameter == view->parameter; });
    if (known != out.end()) {
      known->results += results;
      continue;
    }
    out.push_back({view->parameter,
                   view->dims.at(static_cast<size_t>(form->weight_in)),
                   view->dims.at(static_cast<size_t>(form->weight_out)),
                   {},
                   results});
    const Sizes sizes = operation.sizes(form->weight);
    out.back().sizes.resize(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) out.back().sizes[static_cast<size_t>(view->dims[i])] = sizes[i];
  }
  return out;
}

// Of a table of embeddings.
struct TableRows {
  int64_t count = 0;
  bool is_large = false;  // worth the sum over the ranks of what is read of them
};

// By parameter.
std::map<int, TableRows> find_tables(const PlacedGraph& graph, const ParameterViews& views, int ranks) {
  const WalkState state{graph.known, views, ranks, {}};
  std::map<int, TableRows> out;
  for (const Node* node : graph.flat.graph->nodes()) {
    if (node->kind() != c10::aten::embedding) continue;
    const Operation operation(*node, state);
    const ParameterView* view = operation.parameter(0);
    const Sizes sizes = operation.sizes(0);
    if (view == nullptr || sizes.size() != 2 || view->dims[0] != 0) continue;
    if (sizes[0] >= ranks) out.emplace(view->parameter, TableRows{sizes[0], sizes[0] * sizes[1] >= kLargeTable});
  }
  return out;
}

class Choice {
 public:
  Choice(const PlacedGraph& graph, int ranks, const std::map<int, GivenSplit>& given)
      : graph_(graph),
        ranks_(ranks),
        views_(parameter_views(graph)),
        candidates_(find_candidates(graph, views_, ranks)) {
    for (const auto& [parameter, choice] : given) {
      if (choice.split != GemmSplit::kWhole) continue;
      reasons_.emplace(parameter, choice.reason);
      block(parameter);
    }
    for (const Candidate& candidate : candidates_) {
      const auto choice = given.find(candidate.parameter);
      begin(candidate, choice == given.end() ? GivenSplit{GemmSplit::kColumn} : choice->second);
    }
    for (const auto& [parameter, rows] : find_tables(graph, views_, ranks)) {
      const auto choice = given.find(parameter);
      const bool is_wanted = rows.is_large || (choice != given.end() && choice->second.split == GemmSplit::kColumn);
      if (!is_wanted || reasons_.count(parameter) > 0 || begun_.count(parameter) > 0) continue;
      begun_[parameter] = sharded(0, numbered({segment_of_length(rows.count, ranks_)}, parameter));
    }
  }

  ChosenLayouts run() {
    for (;;) {
      try {
        Decisions decisions = begun_;
        for (const auto& [parameter, placement] : demanded_) decisions.insert_or_assign(parameter, placement);
        Propagated propagated = propagate(graph_, views_, decisions, gathered_, ranks_);
        auto gemms = report(decisions);
        return {std::move(decisions), std::move(propagated), std::move(views_), std::move(gemms),
                std::move(reasons_of_gathering_)};
      } catch (const Coarsen& demand) {
        coarsen(demand);
      } catch (const Divide& demand) {
        divide(demand);
      } catch (const Shard& demand) {
        shard(demand);
      } catch (const Refuse& refusal) {
        refuse(refusal);
      }
    }
  }

 private:
  static Segments numbered(Segments segments, int parameter) {
    for (size_t i = 0; i < segments.size(); ++i) segments[i].origins = {{parameter, i}};
    return segments;
  }

  void begin(const Candidate& candidate, const GivenSplit& choice) {
    if (reasons_.count(candidate.parameter) > 0) return;
    const int64_t dim = choice.split == GemmSplit::kRow ? candidate.in : candidate.out;
    const int64_t length = candidate.sizes.at(static_cast<size_t>(dim));
    if (length < ranks_) {
      reasons_.emplace(candidate.parameter, "it has fewer features than there are tensor ranks");
      return;
    }
    begun_[candidate.parameter] = sharded(dim, numbered({segment_of_length(length, ranks_)}, candidate.parameter));
    if (!choice.parts.empty()) divide({{{candidate.parameter, 0}}, choice.parts});
  }

  void coarsen(const Coarsen& demand) {
    bool has_changed = false;
    for (Decisions* decisions : {&begun_, &demanded_}) {
      for (auto& [parameter, placement] : *decisions) {
        for (Segment& segment : placement.segments) {
          if (!meets(segment.origins, demand.of)) continue;
          const int64_t length = segment.length(), items = std::gcd(segment.items, demand.items);
          has_changed |= items != segment.items;
          segment = {items, length / items, segment.origins};
        }
      }
    }
    if (!has_changed) refuse({demand.of, "its parts do not match"});
  }

  void divide(const Divide& demand) {
    const int64_t whole = std::accumulate(demand.pieces.begin(), demand.pieces.end(), int64_t{0});
    bool has_changed = false;
    for (auto& [parameter, placement] : begun_) {
      Segments divided;
      for (const Segment& segment : placement.segments) {
        if (!meets(segment.origins, demand.of)) {
          divided.push_back(segment);
          continue;
        }
        for (const int64_t piece : demand.pieces) {
          if (segment.length() * piece % whole != 0) return refuse({demand.of, "it is split at uneven places"});
          const int64_t length = segment.length() * piece / whole;
          if (length < ranks_) return refuse({demand.of, "a part of it is smaller than the number of tensor ranks"});
          divided.push_back(segment_of_length(length, ranks_));
        }
        has_changed = true;
      }
      placement.segments = numbered(std::move(divided), parameter);
    }
    forget_demands();
    if (!has_changed) refuse({demand.of, "its parts do not match"});
  }

  void shard(const Shard& demand) {
    if (++changes_[demand.parameter] > kMaxChanges) {
      block(demand.parameter);
      return keep_whole(demand.parameter, "its uses need different parts of it");
    }
    demanded_.insert_or_assign(demand.parameter, demand.placement);
  }

  void forget_demands() {
    demanded_.clear();
    changes_.clear();
  }

  void refuse(const Refuse& refusal) {
    if (gather(refusal)) return;
    const size_t num_begun = begun_.size();
    const bool is_other = !refusal.or_of.empty() && elements_of(refusal.or_of) < elements_of(refusal.of);
    for (const Origin& origin : is_other ? refusal.or_of : refusal.of) keep_whole(origin.parameter, refusal.reason);
    if (begun_.size() < num_begun) return;
    while (!begun_.empty()) keep_whole(begun_.begin()->first, refusal.reason);  // what it began with is not known
  }

  // Instead of keeping them whole: where what is exchanged is not more than what their GEMMs make.
  bool gather(const Refuse& refusal) {
    if (refusal.values.empty()) return false;
    int64_t exchanged = 0, made = 0, all = 0;
    for (const torch::jit::Value* value : refusal.values) exchanged += count(*graph_.known.sizes(value));
    for (const Candidate& candidate : candidates_) {
      made += is_among(candidate, refusal.of) ? candidate.results : 0;
      all += candidate.elements();
    }
    if (exchanged > made || elements_of(refusal.of) * kWorthGathering < all) return false;
    const size_t before = gathered_.size();
    gathered_.insert(refusal.values.begin(), refusal.values.end());
    if (gathered_.size() == before) return false;
    const auto known = std::find(reasons_of_gathering_.begin(), reasons_of_gathering_.end(), refusal.reason);
    if (known == reasons_of_gathering_.end()) reasons_of_gathering_.push_back(refusal.reason);
    forget_demands();
    return true;
  }

  static bool is_among(const Candidate& candidate, const Origins& origins) {
    return std::any_of(origins.begin(), origins.end(),
                       [&](const Origin& origin) { return origin.parameter == candidate.parameter; });
  }

  int64_t elements_of(const Origins& origins) const {
    int64_t out = 0;
    for (const Candidate& candidate : candidates_) out += is_among(candidate, origins) ? candidate.elements() : 0;
    return out;
  }

  // From now on the parameter is whole, and cut where a part of it is read.
  void block(int parameter) {
    std::erase_if(views_, [&](const auto& view) { return view.second.parameter == parameter; });
  }

  void keep_whole(int parameter, const std::string& reason) {
    begun_.erase(parameter);
    reasons_.emplace(parameter, reason);
    forget_demands();
  }

  std::vector<PlannedGemm> report(const Decisions& decisions) const {
    std::vector<PlannedGemm> out;
    for (const Candidate& candidate : candidates_) {
      PlannedGemm gemm{.parameter = candidate.parameter, .elements = candidate.elements()};
      const auto decision = decisions.find(candidate.parameter);
      if (decision != decisions.end()) {
        gemm.split = decision->second.dim == candidate.out ? GemmSplit::kColumn : GemmSplit::kRow;
      } else if (const auto reason = reasons_.find(candidate.parameter); reason != reasons_.end()) {
        gemm.reason = reason->second;
      }
      out.push_back(std::move(gemm));
    }
    return out;
  }

  const PlacedGraph& graph_;
  const int ranks_;
  std::map<int, std::string> reasons_;
  ParameterViews views_;
  const std::vector<Candidate> candidates_;
  Decisions begun_;     // the GEMMs that split their outputs: all others follow from these
  Decisions demanded_;  // by consumers: rows of GEMMs, biases
  GatheredValues gathered_;
  std::vector<std::string> reasons_of_gathering_;
  std::map<int, int> changes_;  // of what consumers demand, since they were last forgotten
};

}  // namespace

ChosenLayouts choose_layouts(const PlacedGraph& graph, int ranks, const std::map<int, GivenSplit>& given) {
  return Choice(graph, ranks, given).run();
}

}  // namespace dslaunch::runtime::model::placement
