// The state that a checkpoint saves from an engine and restores into it.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/engine/step/engine.hpp"
#include "runtime/state/saved_scalars.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

constexpr char kScheduleOffset[] = "schedule_offset";
constexpr int64_t kMomentChunk = 16 << 20;  // elements that are read at once

// Elements [begin, begin + values.numel()) of a moment.
void set_moment(const StateArrays& arrays, size_t moment, int64_t begin, const at::Tensor& values) {
  if (arrays.stored) return arrays.stored->write(StoredArrays::kMaster + 1 + moment, begin, values);
  arrays.moments[moment].narrow(0, begin, values.numel()).copy_(values);
}

size_t num_moments_of(const StateArrays& arrays) {
  return arrays.stored ? arrays.stored->num_arrays() - 1 : arrays.moments.size();
}

}  // namespace

at::Tensor OwnedState::read(int64_t first, int64_t numel) const {
  const auto read_run = [this](int64_t at, int64_t num_read) {
    if (values.defined()) return values.narrow(0, at, num_read);
    at::Tensor out = at::empty({num_read}, at::kFloat);
    in_file.arrays->read(in_file.array, in_file.begin + at, out, in_file.count - at - num_read);
    return out;
  };
  return range ? range->gather(first, numel, read_run) : read_run(first, numel);
}

// Whether this rank's state counts as far as data ranks are concerned.
bool Engine::owns_state() const {
  return parameters_->num_shards() > 1 || ownership_.is_first_data_rank();
}

std::vector<FrozenPart> Engine::owned_frozen() const {
  std::vector<FrozenPart> out;
  for (const auto& shard : parameters_->frozen_shards()) {
    for (const auto& piece : pieces_in(parameters_->groups()[shard.group], shard.range)) {
      if (ownership_.owns_shard(piece.parameter)) out.push_back({piece.parameter, piece.begin, piece.count});
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
  std::vector<OwnedState> out = named_state(parameters_->state());
  if (!owns_state()) return out;
  for (auto& state : optimizer_->own_state()) {
    if (!ownership_.owns_shard(state.parameter)) continue;
    const auto& name = model_.facts.table.parameters[state.parameter].name;
    out.push_back({name, state.name, state.begin, state.values.numel(), state.values});
  }
  return out;
}

UnitParameters& Engine::unit_parameters() {
  finish_updates();
  return *parameters_;
}

UnitParameters& Engine::begin_generation() {
  finish_updates();
  parameters_->set_generating(true);
  return *parameters_;
}

std::vector<OwnedState> Engine::named_state(std::span<const SpanState> states) const {
  std::vector<OwnedState> out;
  if (!owns_state()) return out;
  for (const auto& [span, of_span] : states) {
    const StateArrays& arrays = of_span;
    const auto& moments = optimizer_->moment_names(span.optimizer_group);
    for (const auto& piece : pieces_in(parameters_->groups()[span.flat_group], span.range)) {
      if (!ownership_.owns_shard(piece.parameter)) continue;
      const auto& info = model_.facts.table.parameters[piece.parameter];
      const StateArrays run = narrow(arrays, piece.offset, piece.count);
      std::vector<std::shared_ptr<const RangePart>> parts;
      for (auto& part : LocalSliceLayout(info).parts(piece.begin, piece.begin + piece.count)) {
        parts.push_back(std::make_shared<const RangePart>(std::move(part)));
      }
      const auto add = [&](const std::string& state, const at::Tensor& values, size_t array) {
        for (const auto& part : parts) {
          out.push_back({info.name, state, part->begin(), part->count(), values, arrays.is_offloaded});
          if (arrays.stored) out.back().in_file = {arrays.stored, array, piece.offset, piece.count};
          out.back().slice = part->slice();
          if (info.slice) out.back().range = part;
        }
      };
      add("master", run.master, StoredArrays::kMaster);
      for (size_t m = 0; m < num_moments_of(arrays); ++m) {
        add(moments[m], arrays.stored ? at::Tensor() : run.moments[m], StoredArrays::kMaster + 1 + m);
      }
    }
  }
  return out;
}

int64_t Engine::num_moments() const {
  size_t most = 0;
  for (const auto& [span, arrays] : parameters_->state()) most = std::max(most, num_moments_of(arrays));
  return static_cast<int64_t>(most);
}

void Engine::load_state_from(const Engine& other) {
  set_counters(other.steps_done(), other.scalars(), /*fresh_moments=*/false);
  rates_.set_moment_starts(other.rates_.moment_starts());
  for (auto& [span, arrays] : parameters_->state()) {
    round_to_parameters(arrays);
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

void Engine::restore(const RestoredCounters& counters, const ReadState& read, const std::function<void()>& barrier) {
  set_counters(counters.steps_done, counters.scalars, counters.fresh_moments);
  rates_.set_moment_starts(std::make_shared<optim::MomentStarts>(counters.moment_starts));
  if (host_updates_) host_updates_->finish();
  parameters_->load(
      [&](int parameter, int64_t begin, at::Tensor out) { read(parameter, "master", begin, std::move(out)); }, barrier);
  for (auto& [span, arrays] : parameters_->state()) {
    const auto& moments = optimizer_->moment_names(span.optimizer_group);
    for (const auto& piece : pieces_in(parameters_->groups()[span.flat_group], span.range)) {
      for (size_t m = 0; m < num_moments_of(arrays); ++m) {
        for (int64_t done = 0; done < piece.count; done += kMomentChunk) {
          const at::Tensor values = at::empty({std::min(kMomentChunk, piece.count - done)}, at::kFloat);
          if (!read(piece.parameter, moments[m], piece.begin + done, values)) {
            values.fill_(optimizer_->initial_moment(span.optimizer_group, m));
          }
          set_moment(arrays, m, piece.offset + done, values);
        }
      }
    }
  }
  optimizer_->restore_own_state(read);
  update_->round_masters(parameters_->state());
}

}  // namespace dslaunch::runtime::engine::step
