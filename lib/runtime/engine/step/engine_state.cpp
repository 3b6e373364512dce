// The state that a checkpoint saves from an engine and restores into it.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/engine/step/engine.hpp"
#include "runtime/state/saved_scalars.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

constexpr char kScheduleOffset[] = "schedule_offset";

}  // namespace

// Whether this rank's shards count: in sums over the world, and in what is saved.
bool Engine::owns_shards() const {
  return parameters_->num_shards() > 1 ? groups_.owns_data_shards() : groups_.owns_replicas();
}

std::vector<FrozenPart> Engine::owned_frozen() const {
  std::vector<FrozenPart> out;
  if (!groups_.owns_data_shards()) return out;
  for (const auto& shard : parameters_->frozen_shards()) {
    for (const auto& piece : pieces_in(parameters_->groups()[shard.group], shard.range)) {
      out.push_back({piece.parameter, piece.begin, piece.count});
    }
  }
  return out;
}

// Also the delayed one, before the ranks exchange parameters: a later change would miss the exchange.
void Engine::finish_updates() {
  if (host_updates_) host_updates_->finish();
  parameters_->finish_updates();
}

std::vector<OwnedState> Engine::owned_state() {
  if (host_updates_) host_updates_->finish();
  return named_state(parameters_->state());
}

UnitParameters& Engine::unit_parameters() {
  finish_updates();
  return *parameters_;
}

std::vector<OwnedState> Engine::named_state(std::span<const SpanState> states) const {
  std::vector<OwnedState> out;
  if (!owns_shards()) return out;
  for (const auto& [span, arrays] : states) {
    const auto& moments = optimizer_->moment_names(span.optimizer_group);
    for (const auto& piece : pieces_in(parameters_->groups()[span.flat_group], span.range)) {
      if (is_saved_elsewhere(piece.parameter)) continue;
      const auto& name = model_.facts.table.parameters[piece.parameter].name;
      const StateArrays part = narrow(arrays, piece.offset, piece.count);
      out.push_back({name, "master", piece.begin, part.master, arrays.is_offloaded});
      for (size_t m = 0; m < part.moments.size(); ++m) {
        out.push_back({name, moments[m], piece.begin, part.moments[m], arrays.is_offloaded});
      }
    }
  }
  return out;
}

int64_t Engine::num_moments() const {
  size_t most = 0;
  for (const auto& [span, arrays] : parameters_->state()) most = std::max(most, arrays.moments.size());
  return static_cast<int64_t>(most);
}

void Engine::load_state_from(int64_t steps_done, const std::map<std::string, double>& scalars) {
  set_counters(steps_done, scalars, /*fresh_moments=*/false);
  for (auto& [span, arrays] : parameters_->state()) {
    if (arrays.has_copy()) arrays.low_precision.copy_(arrays.master);
  }
  parameters_->gather_parameters();
  parameters_->finish_updates();
}

std::map<std::string, double> Engine::scalars() const {
  auto out = loss_scaling_.scalars();
  if (rates_.offset() != 0) out[kScheduleOffset] = static_cast<double>(rates_.offset());
  return out;
}

void Engine::set_counters(int64_t steps_done, std::map<std::string, double> scalars, bool fresh_moments) {
  steps_done_ = steps_done;
  if (host_updates_) host_updates_->continue_after(steps_done);
  const int64_t offset = saved_count(scalars, kScheduleOffset, /*least=*/-kExactIntegerLimit).value_or(0);
  const int64_t applied = saved_count(scalars, "applied_steps", /*least=*/0).value_or(steps_done);
  rates_.set_offset(offset + (fresh_moments ? applied : 0));
  scalars["applied_steps"] = fresh_moments ? 0.0 : static_cast<double>(applied);
  loss_scaling_.restore(scalars, steps_done);
}

void Engine::restore(int64_t steps_done, const std::map<std::string, double>& scalars, bool fresh_moments,
                     const ReadState& read, const std::function<void()>& barrier) {
  set_counters(steps_done, scalars, fresh_moments);
  if (host_updates_) host_updates_->finish();
  const auto& table = model_.facts.table;
  parameters_->load([&](int parameter, int64_t begin,
                        at::Tensor out) { read(table.parameters[parameter].name, "master", begin, std::move(out)); },
                    barrier);
  for (auto& [span, arrays] : parameters_->state()) {
    const auto& moments = optimizer_->moment_names(span.optimizer_group);
    for (const auto& piece : pieces_in(parameters_->groups()[span.flat_group], span.range)) {
      for (size_t m = 0; m < arrays.moments.size(); ++m) {
        at::Tensor values = at::empty({piece.count}, at::kFloat);
        read(table.parameters[piece.parameter].name, moments[m], piece.begin, values);
        arrays.moments[m].narrow(0, piece.offset, piece.count).copy_(values);
      }
    }
  }
  update_->round_masters(parameters_->state());
}

}  // namespace dslaunch::runtime::engine::step
