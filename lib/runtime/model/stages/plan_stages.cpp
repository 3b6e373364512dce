#include "runtime/model/stages/plan_stages.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/memory_types.hpp"
#include "runtime/model/stages/layer_probe.hpp"
#include "runtime/model/stages/partition.hpp"
#include "runtime/model/stages/stage_graph.hpp"
#include "runtime/model/stages/stage_needs.hpp"
#include "runtime/model/stages/value_kinds.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Value;

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, what);
}

std::string at_most(size_t num_stages) {
  return num_stages <= 1 ? "1 stage" : fmt::format("at most {} stages", num_stages);
}

// Alike on all tensor ranks, which must cut at the same places.
int64_t whole_numel(const ParameterInfo& parameter) {
  int64_t out = 1;
  for (const int64_t size : parameter.whole_shape()) out *= size;
  return out;
}

FlatForward flatten_with_sizes(const ModelToCut& model) {
  constexpr int kMaxRounds = 8;  // what is computed from an inferred size may give further ones
  auto flat =
      find_layers(model.flat != nullptr ? *model.flat : graph::flatten_forward(model.module, model.units), model.units);
  for (int round = 0; round < kMaxRounds; ++round) {
    const graph::Aliases memory(flat);
    require_followed(memory.obstacle());
    if (!infer_sizes(flat, ValueKinds(flat, memory))) break;
  }
  return flat;
}

// A place between two layers.
struct CutPoint {
  size_t position = 0;  // in front of this node
  StageNeeds needs;
};

// Between two neighbouring layers: the places where the forward can be cut, or what stops it.
struct Gap {
  std::vector<CutPoint> points;
  std::string obstacle;  // if there are no points
  size_t best = 0;       // index of a point
};

class Planner {
 public:
  Planner(const ModelToCut& model, const StageOptions& options)
      : model_(model),
        options_(options),
        flat_(flatten_with_sizes(model)),
        memory_(flat_),
        kinds_(flat_, memory_),
        splitter_(flat_, memory_, kinds_) {}

  CutModel run() {
    require_enough_layers();
    find_gaps();
    take_measurement();
    for (auto& gap : gaps_) choose_point(gap);
    describe_layers();
    plan_.partition = set_layer_costs(plan_.layers, options_, options_.num_stages, plan_.notes);
    plan_.is_measured = plan_.partition == "time" && options_.layer_costs.empty() && options_.measurement.has_value();
    return cut_at(choose_first_layers());
  }

  Result<LayerMeasurement> measure(const std::vector<ExampleInput>& inputs, at::Device device) {
    require_enough_layers();
    find_gaps();
    LayerProbe probe{device, model_.compute_dtype, inputs, {}, candidates()};
    for (const auto& layer : flat_.layers) probe.layer_begins.push_back(probe.layer_begins.empty() ? 0 : layer.begin);
    return probe_layers(flat_, probe);
  }

 private:
  void find_gaps() {
    const auto whole_outputs = flat_.graph->outputs().vec();
    for (size_t i = 1; i < flat_.layers.size(); ++i) gaps_.push_back(find_gap(i, whole_outputs));
  }

  void require_enough_layers() const {
    const auto num_stages = static_cast<size_t>(options_.num_stages);
    if (flat_.layers.size() >= num_stages) return;
    std::vector<std::string> paths;
    for (const auto& layer : flat_.layers) paths.push_back("'" + layer.path + "'");
    const std::string smaller = smaller_units();
    refuse(fmt::format("the model cannot be cut into {} pipeline stages: it has {} ({}). Use {}{}", num_stages,
                       flat_.layers.size() == 1 ? "1 layer" : fmt::format("{} layers", flat_.layers.size()),
                       fmt::join(paths, ", "), at_most(flat_.layers.size()),
                       smaller.empty() ? ""
                                       : fmt::format(", or set \"units\": [\"{}\"] in the config, blocks that lie "
                                                     "inside these layers",
                                                     smaller)));
  }

  // The class of repeated blocks inside the layers; empty: there are none.
  std::string smaller_units() const {
    for (const auto& layer : flat_.layers) {
      if (layer.module == nullptr) continue;
      for (const auto& inner : graph::find_unit_candidates(torch::jit::Module(layer.module), {})) {
        if (inner.is_block) return graph::class_name(inner.module);
      }
    }
    return {};
  }

  Gap find_gap(size_t layer, const std::vector<Value*>& outputs) const {
    Gap gap;
    const size_t first = flat_.layers[layer - 1].end, last = flat_.layers[layer].begin;
    for (size_t position = first; position <= last; ++position) {
      // What is carried changes only where something is computed that is carried.
      const bool may_differ = position == first || position == last || kinds_.has_effect(position - 1) ||
                              kinds_.of_node(position - 1) == ValueKind::kSize;
      if (!may_differ) continue;
      if (const char* obstacle = kinds_.obstacle_at(position)) {
        gap.obstacle = obstacle;
        continue;
      }
      auto needs = splitter_.needs_of({position, flat_.nodes.size(), outputs});
      if (needs.ok()) {
        gap.points.push_back({position, *std::move(needs)});
      } else {
        gap.obstacle = needs.error();
      }
    }
    return gap;
  }

  // All values that a cut may carry, in the order of their definition.
  std::vector<Value*> candidates() const {
    std::map<std::pair<size_t, size_t>, Value*> ordered;
    for (const auto& gap : gaps_) {
      for (const auto& point : gap.points) {
        for (Value* value : point.needs.carried_in) {
          const auto found = flat_.position.find(value->node());
          const size_t position = found == flat_.position.end() ? 0 : found->second + 1;
          ordered[{position, value->offset()}] = value;
        }
      }
    }
    std::vector<Value*> out;
    out.reserve(ordered.size());
    for (const auto& [place, value] : ordered) out.push_back(value);
    return out;
  }

  void take_measurement() {
    if (!options_.measurement) return;
    const auto& measured = *options_.measurement;
    const auto values = candidates();
    const bool is_split = model_.flat != nullptr;  // then other values are carried than in the model that was measured
    DSL_CHECK(measured.nanoseconds.size() == flat_.layers.size() && measured.flops.size() == flat_.layers.size() &&
                  (is_split || measured.carried_bytes.size() == values.size()),
              "the measurement is of this model with these units");
    if (is_split) return;
    for (size_t i = 0; i < values.size(); ++i) bytes_[values[i]] = measured.carried_bytes[i];
  }

  // The fewest bytes, then tensors, copies and numbers; of equal points the last.
  void choose_point(Gap& gap) const {
    const auto price = [&](const CutPoint& point) {
      int64_t tensors = 0;
      const auto kinds = kinds_of(point.needs.carried_in);
      for (const auto kind : kinds) tensors += kind == CarriedKind::kTensor ? 1 : 0;
      return std::tuple(bytes_of(point), tensors, point.needs.copied.size(), kinds.size());
    };
    for (size_t i = 1; i < gap.points.size(); ++i) {
      if (price(gap.points[i]) <= price(gap.points[gap.best])) gap.best = i;
    }
  }

  int64_t bytes_of(const CutPoint& point) const {
    int64_t sum = 0;
    for (const Value* value : point.needs.carried_in) sum += bytes_of(value).value_or(0);
    return sum;
  }
  std::optional<int64_t> bytes_of(const Value* value) const {
    const auto found = bytes_.find(value);
    return found == bytes_.end() ? std::nullopt : std::optional(found->second);
  }

  // Where the part of a layer begins: the layer, and the code around it up to the next possible cut.
  size_t begin_of(size_t layer) const {
    if (layer == 0) return 0;
    const auto& gap = gaps_[layer - 1];
    return gap.points.empty() ? flat_.layers[layer].begin : gap.points[gap.best].position;
  }

  void describe_layers() {
    for (size_t i = 0; i < flat_.layers.size(); ++i) {
      const auto& layer = flat_.layers[i];
      PlannedLayer planned{layer.path, layer.class_name, layer.is_block};
      const size_t end = i + 1 < flat_.layers.size() ? begin_of(i + 1) : flat_.nodes.size();
      const auto needs = splitter_.needs_of({begin_of(i), end, {}});
      const SlotsRead slots(flat_, needs.ok() ? needs->nodes : positions(begin_of(i), end));
      for (size_t p = 0; p < model_.parameters.size(); ++p) {
        if (!slots.contains(model_.parameters[p])) continue;
        const auto& parameter = model_.table.parameters[p];
        planned.num_parameters += whole_numel(parameter);
        planned.num_trainable += parameter.trainable ? whole_numel(parameter) : 0;
      }
      if (options_.measurement) planned.flops = options_.measurement->flops[i];
      plan_.layers.push_back(std::move(planned));
    }
  }

  static std::vector<size_t> positions(size_t begin, size_t end) {
    std::vector<size_t> out(end - begin);
    std::iota(out.begin(), out.end(), begin);
    return out;
  }

  std::vector<size_t> choose_first_layers() const {
    const auto num_stages = static_cast<size_t>(options_.num_stages);
    if (!options_.first_layers.empty()) {
      for (size_t layer : options_.first_layers) require_cut(layer);
      return options_.first_layers;
    }
    PartitionProblem problem;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      problem.costs.push_back(plan_.layers[i].cost);
      problem.num_trainable.push_back(plan_.layers[i].num_trainable);
      problem.can_cut.push_back(i > 0 && !gaps_[i - 1].points.empty());
      problem.cut_bytes.push_back(problem.can_cut[i] ? price_of_cut(i) : 0);
    }
    if (auto found = partition_layers(problem, num_stages)) return *std::move(found);
    refuse_partition(problem);
  }

  // Tensors where bytes are not known.
  int64_t price_of_cut(size_t layer) const {
    const auto& gap = gaps_[layer - 1];
    const auto& point = gap.points[gap.best];
    return options_.measurement ? bytes_of(point) : static_cast<int64_t>(kinds_of(point.needs.carried_in).size());
  }

  void require_cut(size_t layer) const {
    if (layer >= flat_.layers.size()) {
      refuse(fmt::format("pipeline.partition 'layers:{}': the model has layers 0 to {}",
                         fmt::join(options_.first_layers, ","), flat_.layers.size() - 1));
    }
    const auto& gap = gaps_[layer - 1];
    if (gap.points.empty()) {
      refuse(fmt::format("the model cannot be cut between '{}' and '{}': {}", flat_.layers[layer - 1].path,
                         flat_.layers[layer].path, gap.obstacle));
    }
  }

  [[noreturn]] void refuse_partition(const PartitionProblem& problem) const {
    const auto num_cuts = static_cast<size_t>(std::count(problem.can_cut.begin(), problem.can_cut.end(), true));
    const std::string prefix = fmt::format("the model cannot be cut into {} pipeline stages: ", options_.num_stages);
    if (num_cuts + 1 >= static_cast<size_t>(options_.num_stages)) {
      refuse(
          fmt::format("{}one of them would have no trainable parameters (frozen layers count with a trained one); "
                      "use fewer stages",
                      prefix));
    }
    std::vector<std::string> obstacles;
    for (size_t i = 1; i < flat_.layers.size() && obstacles.size() < 3; ++i) {
      if (problem.can_cut[i]) continue;
      obstacles.push_back(fmt::format("between '{}' and '{}' {}", flat_.layers[i - 1].path, flat_.layers[i].path,
                                      gaps_[i - 1].obstacle));
    }
    refuse(fmt::format("{}{}; use {}, or change forward there", prefix, fmt::join(obstacles, "; "),
                       at_most(num_cuts + 1)));
  }

  CutModel cut_at(const std::vector<size_t>& first_layers) {
    std::vector<size_t> begins{0}, layers{0};
    for (size_t layer : first_layers) {
      begins.push_back(begin_of(layer));
      layers.push_back(layer);
    }
    begins.push_back(flat_.nodes.size());
    layers.push_back(flat_.layers.size());
    const size_t num_stages = begins.size() - 1;
    CutModel out;
    out.ranges.resize(num_stages);
    out.needs.resize(num_stages);
    auto live = flat_.graph->outputs().vec();
    for (size_t stage = num_stages; stage-- > 0;) {
      out.ranges[stage] = {begins[stage], begins[stage + 1], live};
      auto needs = splitter_.needs_of(out.ranges[stage]);
      if (!needs.ok()) refuse(fmt::format("the model cannot be cut into pipeline stages: {}", needs.error()));
      out.needs[stage] = *std::move(needs);
      live = out.needs[stage].carried_in;
    }
    for (size_t stage = 0; stage < num_stages; ++stage) {
      plan_.stages.push_back(describe_stage(layers[stage], layers[stage + 1], out.needs[stage]));
    }
    out.flat = std::move(flat_);
    out.plan = std::move(plan_);
    add_parameters(out);
    return out;
  }

  PlannedStage describe_stage(size_t first, size_t end, const StageNeeds& needs) const {
    PlannedStage stage{first, end - first, {}, {needs.inputs.begin(), needs.inputs.end()}, {}};
    std::vector<CarriedInfo> numbers;
    for (const Value* value : needs.carried_in) {
      const auto leaves = graph::leaves_of(value->type());
      for (const auto& leaf : leaves) {
        CarriedInfo info{splitter_.describe(value), is_number(leaf)};
        info.depends_on_data = info.is_number && kinds_.depends_on_data(value);
        if (!info.is_number && leaves.size() == 1) info.bytes = bytes_of(value);
        (info.is_number ? numbers : stage.carried_in).push_back(std::move(info));
      }
    }
    stage.carried_in.insert(stage.carried_in.end(), numbers.begin(), numbers.end());
    if (options_.measurement) stage.flops = 0;
    for (size_t layer = first; layer < end; ++layer) {
      stage.cost += plan_.layers[layer].cost;
      if (stage.flops) *stage.flops += plan_.layers[layer].flops.value_or(0);
    }
    return stage;
  }

  void add_parameters(CutModel& out) const {
    const auto holders = out.holders_of(model_.parameters);
    for (size_t p = 0; p < holders.size(); ++p) {
      const auto& parameter = model_.table.parameters[p];
      for (int holder : holders[p]) {
        auto& stage = out.plan.stages[static_cast<size_t>(holder)];
        stage.parameters.push_back(parameter.name);
        stage.num_parameters += parameter.numel;
        stage.num_trainable += parameter.trainable ? parameter.numel : 0;
      }
      if (holders[p].size() > 1) out.plan.tied.push_back({parameter.name, holders[p], parameter.trainable});
    }
  }

  const ModelToCut& model_;
  const StageOptions& options_;
  FlatForward flat_;
  const graph::Aliases memory_;
  const ValueKinds kinds_;
  const StageSplitter splitter_;
  std::vector<Gap> gaps_;                            // gaps_[i]: between layers i and i + 1
  std::unordered_map<const Value*, int64_t> bytes_;  // of values that a cut may carry, as measured
  StagePlan plan_;
};

}  // namespace

std::vector<std::vector<int>> CutModel::holders_of(const LocationsByTensor& tensors) const {
  std::vector<SlotsRead> by_stage;
  std::vector<size_t> begins;
  for (size_t stage = 0; stage < ranges.size(); ++stage) {
    by_stage.emplace_back(flat, needs[stage].nodes);
    begins.push_back(ranges[stage].begin);
  }
  return find_holders(flat, by_stage, begins, tensors);
}

Result<LayerMeasurement> measure_layers(const ModelToCut& model, const std::vector<ExampleInput>& inputs,
                                        at::Device device) {
  const StageOptions any;
  return Planner(model, any).measure(inputs, device);
}

CutModel cut_model(const ModelToCut& model, const StageOptions& options) {
  return Planner(model, options).run();
}

}  // namespace dslaunch::runtime::model::stages
