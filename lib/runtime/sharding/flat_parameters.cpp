#include "runtime/sharding/flat_parameters.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

comm::DType wire_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return comm::DType::kFloat32;
    case at::kBFloat16:
      return comm::DType::kBFloat16;
    case at::kHalf:
      return comm::DType::kFloat16;
    default:
      break;
  }
  throw InternalError(__FILE__, __LINE__, "wire_type",
                      fmt::format("{} is not sent between ranks", c10::toString(dtype)));
}

comm::Buffer buffer_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<size_t>(tensor.numel()), wire_type(tensor.scalar_type())};
}

at::Tensor slice(const at::Tensor& flat, Range range) {
  return flat.narrow(0, range.begin, range.size());
}

// Gradients go to their places a unit at a time: one fused launch on a device instead of one for each parameter.
struct GradientMoves {
  std::vector<at::Tensor> copy_to, copy_from, add_to, add_from;
  void run() {
    if (!copy_to.empty()) at::_foreach_copy_(copy_to, copy_from);
    if (!add_to.empty()) at::_foreach_add_(add_to, add_from);
  }
};

}  // namespace

FlatParameters::FlatParameters(const ParameterTable& table, ShardingOptions options, comm::Communicator& data_group)
    : table_(table), options_(std::move(options)), data_group_(data_group) {
  DSL_CHECK(options_.stage == 0 || options_.stage == 1, "stages 2 and 3 are refused by the config");
  if (options_.stage >= 1) {
    num_shards_ = data_group_.size();
    shard_index_ = data_group_.rank();
  }
  groups_ = plan_flat_groups(table_, options_.compute_dtypes, num_shards_, options_.max_group_numel);
  places_.resize(table_.units.size());
  unit_views_.resize(table_.units.size());
  open_calls_.resize(table_.units.size());
  buffers_.resize(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    allocate_group(i);
    make_shard(i);
  }
  if (options_.overlap_communication && options_.device.is_cuda()) {
    side_stream_ = c10::impl::VirtualGuardImpl(options_.device.type()).getStreamFromGlobalPool(options_.device);
  }
}

void FlatParameters::allocate_group(size_t index) {
  const auto& group = groups_[index];
  auto& buffers = buffers_[index];
  const auto on_device = at::TensorOptions().device(options_.device);
  buffers.parameters = at::zeros({group.padded_numel}, on_device.dtype(group.dtype));
  buffers.accumulated = at::zeros({group.padded_numel}, on_device.dtype(options_.accumulation_dtype));
  buffers.written.assign(group.segments.size(), false);
  // Segments stand in the order of the unit's parameters, so places come out in that order for one dtype; a unit of two
  // dtypes has two groups, hence the look-up by parameter.
  auto& unit = table_.units[group.unit];
  places_[group.unit].resize(unit.parameters.size());
  unit_views_[group.unit].resize(unit.parameters.size());
  for (size_t s = 0; s < group.segments.size(); ++s) {
    const auto& segment = group.segments[s];
    buffers.gradient_views.push_back(buffers.accumulated.narrow(0, segment.offset, segment.numel));
    const auto position =
        std::find(unit.parameters.begin(), unit.parameters.end(), segment.parameter) - unit.parameters.begin();
    places_[group.unit][position] = {static_cast<int>(index), static_cast<int>(s)};
    unit_views_[group.unit][position] =
        buffers.parameters.narrow(0, segment.offset, segment.numel).view(table_.parameters[segment.parameter].shape);
  }
}

void FlatParameters::make_shard(size_t index) {
  const auto& group = groups_[index];
  auto& buffers = buffers_[index];
  Shard shard{static_cast<int>(index), shard_range(group, shard_index_, num_shards_), {}, {}, {}};
  const auto fp32 = at::TensorOptions().device(options_.device).dtype(at::kFloat);
  if (group.dtype == at::kFloat) {
    shard.master = slice(buffers.parameters, shard.range);
  } else {
    shard.master = at::zeros({shard.range.size()}, fp32);
    shard.low_precision = slice(buffers.parameters, shard.range);
  }
  const bool in_place = options_.accumulation_dtype == at::kFloat;
  shard.gradient = in_place ? slice(buffers.accumulated, shard.range) : at::zeros({shard.range.size()}, fp32);
  shards_.push_back(std::move(shard));
}

void FlatParameters::load(const ReadElements& read) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    // In fp32 the master is the parameter itself; else it takes its part of the same reading before that is rounded.
    const auto pieces =
        shards_[i].low_precision.defined() ? pieces_in(groups_[i], shards_[i].range) : std::vector<Piece>();
    auto piece = pieces.begin();
    for (const auto& segment : groups_[i].segments) {
      at::Tensor values = at::empty({segment.numel}, at::kFloat);
      read(segment.parameter, 0, values);
      buffers_[i].parameters.narrow(0, segment.offset, segment.numel).copy_(values);
      if (piece == pieces.end() || piece->parameter != segment.parameter) continue;
      shards_[i].master.narrow(0, piece->offset, piece->count).copy_(values.narrow(0, piece->begin, piece->count));
      ++piece;
    }
  }
}

void FlatParameters::load_masters(const ReadElements& read) {
  for (auto& shard : shards_) {
    for (const auto& piece : pieces_in(groups_[shard.group], shard.range)) {
      at::Tensor values = at::empty({piece.count}, at::kFloat);
      read(piece.parameter, piece.begin, values);
      shard.master.narrow(0, piece.offset, piece.count).copy_(values);
    }
    if (shard.low_precision.defined()) shard.low_precision.copy_(shard.master);
  }
  gather_parameters();
}

std::vector<at::Tensor> FlatParameters::acquire(int unit, UnitCall call) {
  if (call == UnitCall::kTraining) open_calls_[unit] += 1;
  std::vector<at::Tensor> out;
  out.reserve(unit_views_[unit].size());
  for (const auto& view : unit_views_[unit]) out.push_back(view.variable_data());
  return out;
}

// At stages 0 and 1 parameters are always there.
void FlatParameters::release(int) {}
void FlatParameters::prepare_backward(int) {}

void FlatParameters::take_gradients(int unit, std::vector<at::Tensor> gradients) {
  at::NoGradGuard no_grad;
  GradientMoves moves;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Place place = places_[unit][i];
    auto& buffers = buffers_[place.group];
    auto gradient = gradients[i].reshape({-1});
    if (gradient.numel() == 0) continue;
    const bool is_first = !buffers.written[place.segment];
    buffers.written[place.segment] = true;
    (is_first ? moves.copy_to : moves.add_to).push_back(buffers.gradient_views[place.segment]);
    (is_first ? moves.copy_from : moves.add_from).push_back(std::move(gradient));
  }
  moves.run();
  open_calls_[unit] -= 1;
  if (reduce_as_ready_) reduce_ready_units();
}

void FlatParameters::begin_step() {
  for (auto& buffers : buffers_) {
    buffers.written.assign(buffers.written.size(), false);
    buffers.reduced = false;
  }
}

void FlatParameters::begin_micro_step(bool is_last) {
  std::fill(open_calls_.begin(), open_calls_.end(), 0);
  reduce_as_ready_ = is_last && side_stream_.has_value();
  next_unit_to_reduce_ = static_cast<int>(table_.units.size()) - 1;
}

// Ranks must issue the same sequence, whatever order their gradients come in: a unit waits for those behind it.
void FlatParameters::reduce_ready_units() {
  for (; next_unit_to_reduce_ >= 0 && open_calls_[next_unit_to_reduce_] == 0; --next_unit_to_reduce_) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].unit == next_unit_to_reduce_) reduce_on_side_stream(i);
    }
  }
}

void FlatParameters::reduce_on_side_stream(size_t group) {
  const c10::impl::VirtualGuardImpl guard(options_.device.type());
  c10::Event written(options_.device.type());
  written.record(guard.getStream(options_.device));
  written.block(*side_stream_);
  const c10::StreamGuard on_side(*side_stream_);
  reduce_group(group);
}

void FlatParameters::reduce_gradients() {
  reduce_as_ready_ = false;
  // From the last unit to the root, as the overlapped path does, so that both give the same order.
  for (size_t i = groups_.size(); i-- > 0;) {
    if (!side_stream_ && !buffers_[i].reduced) reduce_group(i);
  }
  if (!side_stream_) return;
  for (; next_unit_to_reduce_ >= 0; --next_unit_to_reduce_) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].unit == next_unit_to_reduce_) reduce_on_side_stream(i);
    }
  }
  c10::Event reduced(options_.device.type());
  reduced.record(*side_stream_);
  reduced.block(c10::impl::VirtualGuardImpl(options_.device.type()).getStream(options_.device));
}

void FlatParameters::zero_unwritten(GroupBuffers& buffers) {
  for (size_t s = 0; s < buffers.written.size(); ++s) {
    if (!buffers.written[s]) buffers.gradient_views[s].zero_();
  }
}

at::ScalarType FlatParameters::wire_dtype(const FlatGroup& group) const {
  return options_.communication_dtype.value_or(group.dtype);
}

void FlatParameters::reduce_group(size_t index) {
  auto& buffers = buffers_[index];
  auto& shard = shards_[index];
  buffers.reduced = true;
  zero_unwritten(buffers);
  if (options_.predivide != 1.0) buffers.accumulated.div_(options_.predivide);
  at::Tensor wire = buffers.accumulated;
  const bool alone = data_group_.size() == 1;
  if (!alone && wire.scalar_type() != wire_dtype(groups_[index])) wire = wire.to(wire_dtype(groups_[index]));
  at::Tensor own = slice(wire, shard.range);
  if (!alone) {
    if (num_shards_ > 1 && options_.use_reduce_scatter) {
      data_group_.reduce_scatter(buffer_of(wire), buffer_of(own), comm::ReduceOp::kSum);
    } else {
      data_group_.all_reduce(buffer_of(wire), comm::ReduceOp::kSum);
    }
  }
  if (own.data_ptr() != shard.gradient.data_ptr()) shard.gradient.copy_(own);
}

void FlatParameters::gather_parameters() {
  if (num_shards_ == 1) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    auto& parameters = buffers_[i].parameters;
    if (options_.use_all_gather) {
      data_group_.all_gather(buffer_of(slice(parameters, shards_[i].range)), buffer_of(parameters));
      continue;
    }
    for (int owner = 0; owner < num_shards_; ++owner) {
      data_group_.broadcast(buffer_of(slice(parameters, shard_range(groups_[i], owner, num_shards_))), owner);
    }
  }
}

double FlatParameters::gradient_divisor() const {
  return data_group_.size() / options_.predivide;
}

}  // namespace dslaunch::runtime
