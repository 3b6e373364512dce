#include "runtime/engine/verify/state_comparison.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/format.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime::engine::verify {
namespace {

constexpr int64_t kNoSlice = -1;  // instead of a dim

}  // namespace

// Elements of a slice of a parameter, where they are in the whole one; at least one.
class StateComparison::PieceInWhole {
 public:
  PieceInWhole(const PieceLocation& location, c10::IntArrayRef shape)
      : layout_(shape, location.slice),
        begin_(location.begin),
        run_{to_whole(0), to_whole(location.count - 1) + 1},
        part_(location.slice, layout_, run_) {}

  int64_t to_whole(int64_t element) const { return layout_.to_whole(begin_ + element); }
  at::Tensor read(const at::Tensor& whole) const {
    return part_.gather(0, part_.count(),
                        [&](int64_t first, int64_t numel) { return whole.narrow(0, run_.begin + first, numel); });
  }
  void write(const at::Tensor& whole, const at::Tensor& piece) const {
    part_.fill(whole.narrow(0, run_.begin, run_.size()), [&](const at::Tensor& values) { values.copy_(piece); });
  }

 private:
  const SliceLayout layout_;
  const int64_t begin_;
  const Range run_;
  const RangePart part_;
};

StateComparison::StateComparison(step::Engine& engine, comm::Communicator& world, at::Device device,
                                 const VerificationBounds& bounds)
    : engine_(engine), world_(world), device_(device), bounds_(bounds) {
  exchange_layout();
}

void StateComparison::exchange_layout() {
  std::string lines;
  for (const auto& piece : engine_.owned_state()) {
    const Slice slice = piece.slice.value_or(Slice{kNoSlice, 0, 0});
    lines += fmt::format("{} {} {} {} {} {} {}\n", piece.parameter, piece.begin, piece.count, piece.state, slice.dim,
                         slice.start, slice.length);
  }
  for (const auto& text : gather_texts(world_, device_, lines)) {
    auto& locations = layout_.emplace_back();
    std::istringstream in(text);
    PieceLocation location;
    Slice slice;
    while (in >> location.parameter >> location.begin >> location.count >> location.state >> slice.dim >> slice.start >>
           slice.length) {
      location.slice = slice.dim == kNoSlice ? std::nullopt : std::optional(slice);
      locations.push_back(location);
    }
  }
}

// Broadcasts the values that `rank` owns to every rank, in the order of its layout.
at::Tensor StateComparison::values_of_rank(int rank) {
  int64_t count = 0;
  for (const auto& location : layout_[static_cast<size_t>(rank)]) count += location.count;
  at::Tensor flat = at::empty({count}, at::TensorOptions().device(device_).dtype(at::kFloat));
  if (rank == world_.rank()) {
    int64_t at = 0;
    for (const auto& piece : engine_.owned_state()) {
      flat.narrow(0, at, piece.count).copy_(piece.read_all());
      at += piece.count;
    }
  }
  if (count > 0 && world_.size() > 1) {
    world_.broadcast(buffer_of(flat), rank);
  }
  return flat;
}

Result<> StateComparison::compare(Replica* replica) {
  std::optional<Difference> first;
  std::set<int> different;  // parameters
  auto replica_state = replica ? replica->state() : Replica::State{};
  std::map<std::pair<std::string, std::string>, size_t> index_of;
  for (size_t i = 0; i < replica_state.values.size(); ++i) {
    index_of[{replica_state.values[i].parameter, replica_state.values[i].state}] = i;
  }
  for (int rank = 0; rank < world_.size(); ++rank) {
    const at::Tensor run_values = values_of_rank(rank);
    int64_t at = 0;
    for (const auto& location : layout_[static_cast<size_t>(rank)]) {
      const at::Tensor piece = run_values.narrow(0, at, location.count);
      at += location.count;
      if (!replica || location.count == 0) continue;
      const size_t index = index_of.at({location.parameter, location.state});
      const int parameter = replica->parameter_of(location.parameter);
      const PieceInWhole in_whole(location, replica->table().parameters[static_cast<size_t>(parameter)].shape);
      auto difference = compare_piece(replica_state, index, in_whole, piece);
      in_whole.write(replica_state.values[index].values, piece);
      if (!difference) continue;
      difference->parameter = parameter;
      difference->state = location.state;
      difference->rank = rank;
      different.insert(difference->parameter);
      auto order = [](const Difference& d) { return std::tuple(d.parameter, d.index, d.element); };
      if (!first || order(*difference) < order(*first)) first = difference;
    }
  }
  if (replica) replica->load_state(engine_);
  num_different_ = std::ssize(different);
  if (!first) return {};
  return Failure{describe(*first, replica->table())};
}

namespace {

// Twice the largest change that the gradient error causes in any element of the parameter: which roundings it flips is
// random, and two trials may miss the worst case.
at::Tensor largest_change(const Replica::State& replica_state, size_t index) {
  return (replica_state.upper.at(index).values - replica_state.lower.at(index).values).abs().max() * 2;
}

}  // namespace

std::optional<StateComparison::Difference> StateComparison::compare_piece(const Replica::State& replica_state,
                                                                          size_t index, const PieceInWhole& in_whole,
                                                                          const at::Tensor& run_values) {
  auto part = [&](const std::vector<step::OwnedState>& state) { return in_whole.read(state.at(index).values); };
  const at::Tensor own = part(replica_state.values);
  at::Tensor bound = at::zeros_like(own);
  if (!replica_state.lower.empty()) {
    // Twice the change caused by the gradient error in either direction, plus one rounding of the largest value here,
    // because a small value may be the difference of two large ones.
    const at::Tensor change =
        at::maximum((part(replica_state.lower) - own).abs(), (part(replica_state.upper) - own).abs());
    bound = (bounds_.is_spread ? largest_change(replica_state, index).expand_as(change) : change) * 2 +
            own.abs().max() * bounds_.rounding;
  }
  const at::Tensor error = (run_values - own).abs();
  const at::Tensor is_close = (error <= bound).logical_or(run_values == own);
  if (is_close.all().item<bool>()) {
    const double share = (error / (bound + 1e-30)).max().item<double>();
    largest_share_ = std::max(largest_share_, share);
    return std::nullopt;
  }
  const auto element = is_close.to(at::kByte).argmin().item<int64_t>();
  return Difference{.index = index,
                    .element = in_whole.to_whole(element),
                    .run = run_values[element].item<double>(),
                    .replica = own[element].item<double>(),
                    .bound = bound[element].item<double>()};
}

std::string StateComparison::describe(const Difference& difference, const ParameterTable& table) {
  const auto& shape = table.parameters[static_cast<size_t>(difference.parameter)].shape;
  return fmt::format(
      "first difference: {}, element {}{}: {:.9g} on rank {}, {:.9g} in the replica (difference {:.3g}, bound {:.3g})",
      describe_parameter(table, difference.parameter), coordinates(difference.element, shape),
      difference.state == "master" ? "" : " of " + difference.state, difference.run, difference.rank,
      difference.replica, std::abs(difference.run - difference.replica), difference.bound);
}

std::string describe_parameter(const ParameterTable& table, int parameter) {
  const auto& info = table.parameters[static_cast<size_t>(parameter)];
  const auto& unit = table.units[static_cast<size_t>(info.unit)].name;
  return fmt::format("parameter '{}' ({})", info.name, unit.empty() ? "root unit" : "unit '" + unit + "'");
}

std::string coordinates(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    out[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return fmt::format("[{}]", fmt::join(out, ", "));
}

}  // namespace dslaunch::runtime::engine::verify
