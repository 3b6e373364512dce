#include "runtime/engine/verify/verification.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/tensor_bytes.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::runtime::engine::verify {
namespace {

comm::CommunicatorOptions group_of_one(at::Device device) {
  comm::CommunicatorOptions out;
  out.name = "verification";
  out.device = device.is_cuda() ? device.index() : -1;
  return out;
}

int64_t free_bytes(at::Device device) {
  if (!device.is_cpu()) {
    return static_cast<int64_t>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  }
  return read_available_memory().value_or(std::numeric_limits<int64_t>::max());
}

double relative(double a, double b) {
  const double size = std::max(std::abs(a), std::abs(b));
  return a == b || size == 0 ? 0.0 : std::abs(a - b) / size;
}

at::Tensor as_bytes(const at::Tensor& values) {
  return values.detach().contiguous().view({-1}).view(at::kByte);
}

}  // namespace

void require_same_draws(const model::ModelFacts& model) {
  if (!model.placements || model.placements->draws_on_parts.empty()) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("--verify with {} tensor ranks: {}: each rank draws its own numbers for its part of a split "
                  "value, which the unsharded replica cannot draw; verify with --tp 1, or with a model "
                  "whose dropout is 0",
                  model.placements->ranks, fmt::join(model.placements->draws_on_parts, ", ")));
}

Verification::Verification(step::Engine& engine, ReplicatedRun run, const comm::Groups& groups,
                           rendezvous::Store& store, bool is_resumed)
    : engine_(engine),
      model_(run.model),
      groups_(groups),
      world_(groups.world),
      device_(run.engine.device),
      dtypes_(run.engine.dtypes),
      bounds_(bounds_of(run.model, run.config, run.engine, run.num_data_ranks)),
      state_(engine, groups.world, run.engine.device, bounds_) {
  require_memory(run);
  open_replica(run, store);
  share_held();
  share_frozen();
  // A checkpoint may differ from the model file; after a start from the model file both sides must have read the same.
  const Result<> state = state_.compare(replica_.get());
  agree(engine_.steps_done(), is_resumed ? Result<>() : state);
  compare_copies(engine_.steps_done());
}

void Verification::open_replica(ReplicatedRun run, rendezvous::Store& store) {
  const auto of_ranks = gather_bytes(world_, device_, bytes_of_tensor(device::save_random_state(device_)));
  for (size_t rank = 0; rank < of_ranks.size(); rank += static_cast<size_t>(groups_.mesh.tensor)) {
    run.random_states.push_back(of_ranks[rank]);
  }
  if (world_.rank() != 0) return;
  single_rank_group_ = comm::make_communicator(group_of_one(device_), store);
  replica_ = std::make_unique<Replica>(run, *single_rank_group_, bounds_.gradient);
}

void Verification::require_memory(const ReplicatedRun& run) {
  struct Memory {
    int64_t needed = 0, free = 0;
  };
  int64_t own_buffers = 0;
  for (const auto& [name, buffer] : model_.tensors.buffers()) own_buffers += static_cast<int64_t>(buffer.nbytes());
  const auto buffers = gather_values(world_, device_, own_buffers);
  Memory own{replica_bytes(model_.facts.whole_table(), run.engine.dtypes, engine_.num_moments()), free_bytes(device_)};
  const auto ranks_of_stage = static_cast<size_t>(groups_.mesh.data * groups_.mesh.tensor);
  for (size_t rank = 0; rank < buffers.size(); rank += ranks_of_stage) own.needed += buffers[rank];
  const auto memory = gather_values(world_, device_, own)[0];
  if (memory.needed > memory.free) {
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("--verify: the unsharded replica{} needs {} plus activations on rank 0 beside the run, but only {} "
                    "are free. Verify a smaller model of the same kind, or use a machine with more memory",
                    groups_.pipe != nullptr ? ", which has the layers of all stages," : "", format_bytes(memory.needed),
                    format_bytes(memory.free)));
  }
  if (world_.rank() == 0) {
    log::info(
        "--verify: the unsharded replica uses {} on rank 0 beside the run (free: {}), plus the activations of one "
        "micro batch",
        format_bytes(memory.needed), format_bytes(memory.free));
  }
}

void Verification::compare(const step::StepResult& run) {
  std::optional<step::StepResult> replica;
  if (replica_) replica = replica_->step();
  const bool comparable = !replica || !overflows_apart(run, *replica);
  std::vector<std::string> differences;
  if (replica && comparable) differences = compare_numbers(run, *replica);
  const Result<> state = state_.compare(replica_.get());
  if (!state.ok() && comparable) {
    differences.push_back(state.error());
    if (state_.num_different() > 1) {
      differences.back() += fmt::format(" ({} parameters differ in total)", state_.num_different());
    }
  }
  agree(run.step, differences.empty() ? Result<>() : Failure{fmt::format("{}", fmt::join(differences, "; "))});
  compare_copies(run.step);
  steps_compared_ += 1;
}

// The run sums gradients of ranks in fp16, where a sum may overflow although the replica's does not.
bool Verification::overflows_apart(const step::StepResult& run, const step::StepResult& replica) {
  if (!run.overflow || replica.overflow) return false;
  log::info("--verify: step {} overflowed where the run adds up gradients in fp16 and was skipped; nothing to compare",
            run.step);
  return true;
}

std::vector<std::string> Verification::compare_numbers(const step::StepResult& run, const step::StepResult& replica) {
  if (replica.overflow && !run.overflow) return {"the step overflowed in the replica but not in the run"};
  if (run.overflow) return {};  // losses and norms of skipped steps are meaningless
  const double loss = relative(run.loss, replica.loss), norm = relative(run.grad_norm, replica.grad_norm);
  largest_loss_error_ = std::max(largest_loss_error_, loss);
  largest_norm_error_ = std::max(largest_norm_error_, norm);
  std::vector<std::string> differences;
  auto compare = [&](const char* what, double error, double of_run, double of_replica) {
    if (error <= bounds_.gradient.relative) return;
    differences.push_back(fmt::format("the {} is {:.9g}, in the replica {:.9g} (bound: {:.1e}, relative)", what, of_run,
                                      of_replica, bounds_.gradient.relative));
  };
  compare("loss", loss, run.loss, replica.loss);
  compare("gradient norm", norm, run.grad_norm, replica.grad_norm);
  return differences;
}

namespace {

// The root unit stays unsharded while the other units are visited, as in a forward pass of the model.
void for_every_unit(const ParameterTable& table, UnitParameters& parameters,
                    const std::function<void(int unit, const UnitValues& values)>& visit) {
  at::NoGradGuard no_grad;
  const auto root = parameters.acquire(0, UnitCall::kInference);
  visit(0, root);
  for (size_t i = 1; i < table.units.size(); ++i) {
    const int unit = static_cast<int>(i);
    const auto& members = table.units[i];
    if (members.parameters.empty() && members.frozen.empty()) continue;
    visit(unit, parameters.acquire(unit, UnitCall::kInference));
    parameters.release(unit);
  }
  parameters.release(0);
}

struct NamedParameter {
  int index = 0;  // into the table
  at::Tensor value;
};

// Trained parameters by name, where they stay whole between their uses.
std::map<std::string, NamedParameter> parameters_by_name(const ParameterTable& table, UnitParameters& parameters) {
  std::map<std::string, NamedParameter> out;
  for_every_unit(table, parameters, [&](int unit, const UnitValues& values) {
    const auto& members = table.units[static_cast<size_t>(unit)].parameters;
    for (size_t i = 0; i < members.size(); ++i) {
      out[table.parameters[static_cast<size_t>(members[i])].name] = {members[i], values.parameters[i]};
    }
  });
  return out;
}

// As far as the roundings of a sum in another order may move a value.
bool is_close(const at::Tensor& a, const at::Tensor& b, double rounding) {
  const double of_dtype = a.scalar_type() == at::kFloat ? 0 : a.scalar_type() == at::kHalf ? 0x1p-10 : 0x1p-7;
  const at::Tensor error = (a.to(at::kDouble) - b.to(at::kDouble)).abs(), size = b.to(at::kDouble).abs();
  return error.le(size * of_dtype + size.max() * rounding).all().item<bool>();
}

}  // namespace

// Gives the replica the buffers and unsharded frozen parameters of the run, those of each stage from its first data
// rank.
void Verification::share_held() {
  if (groups_.own.data != 0) return;
  auto own = model_.tensors.buffers();
  const auto& parameters = model_.facts.table.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].trainable) continue;
    if (const at::Tensor value = model_.tensors.frozen_value(static_cast<int>(i)); value.defined()) {
      own.emplace_back(parameters[i].name, whole_of(parameters[i], value));
    }
  }
  if (replica_) {
    for (const auto& [name, value] : own) replica_->set_held(name, value);
  }
  if (groups_.pipe != nullptr) receive_held(own);
}

// The whole value of a parameter of which each tensor rank holds a part. Collective among them.
at::Tensor Verification::whole_of(const ParameterInfo& info, const at::Tensor& value) const {
  if (!info.slice) return value;
  at::Tensor whole = at::zeros(info.whole_shape(), value.options().dtype(at::kFloat));
  int64_t offset = 0;
  for (const Range& range : info.slice->ranges) {
    if (info.slice->copy > 0) break;  // another rank has the same
    whole.narrow(info.slice->dim, range.begin, range.size()).copy_(value.narrow(info.slice->dim, offset, range.size()));
    offset += range.size();
  }
  groups_.tensor->all_reduce(buffer_of(whole.view({-1})), comm::ReduceOp::kSum);
  return whole.to(value.scalar_type());
}

at::Tensor Verification::empty_like_held(const std::string& name) const {
  const at::Tensor held = replica_->held(name);
  return at::empty(held.sizes(), held.options());
}

void Verification::receive_held(const std::vector<std::pair<std::string, at::Tensor>>& own) {
  comm::Communicator& pipe = *groups_.pipe;
  std::string lines;
  for (const auto& [name, value] : own) lines += fmt::format("{}\n", name);
  const auto names = gather_texts(pipe, device_, lines);
  for (int stage = 1; stage < pipe.size(); ++stage) {
    std::istringstream in(names[static_cast<size_t>(stage)]);
    std::string name;
    for (size_t i = 0; std::getline(in, name); ++i) {
      if (pipe.rank() != 0 && pipe.rank() != stage) continue;
      const at::Tensor value = pipe.rank() == stage ? own[i].second.contiguous() : empty_like_held(name);
      const comm::Buffer bytes{value.data_ptr(), value.nbytes(), comm::DType::kUInt8};
      if (bytes.count == 0) continue;
      const comm::Outgoing send{bytes, 0};
      const comm::Incoming receive{bytes, stage};
      pipe.rank() == stage ? pipe.exchange({&send, 1}, {}) : pipe.exchange({}, {&receive, 1});
      if (replica_) replica_->set_held(name, value);
    }
  }
}

// Gives the replica the whole values of frozen parameters that are sharded over the ranks.
void Verification::share_frozen() {
  for_every_unit(model_.facts.table, engine_.unit_parameters(), [&](int unit, const UnitValues& values) {
    const auto& members = model_.facts.table.units[static_cast<size_t>(unit)].frozen;
    for (size_t i = 0; i < values.frozen.size(); ++i) {
      if (!values.frozen[i].defined()) continue;
      const at::Tensor whole =
          whole_of(model_.facts.table.parameters[static_cast<size_t>(members[i])], values.frozen[i]);
      if (replica_) replica_->set_frozen(members[i], whole.clone());
    }
  });
}

// On every rank, compares what its units read with the replica's values, which are now computed from the run's masters.
void Verification::compare_copies(int64_t step) {
  if (groups_.pipe != nullptr) return agree(step, compare_stage());
  Result<> copies;
  for_every_unit(model_.facts.table, engine_.unit_parameters(), [&](int unit, const UnitValues& values) {
    const Result<> compared = compare_unit(unit, values.parameters);
    if (copies.ok()) copies = compared;
  });
  agree(step, copies);
}

Result<> Verification::compare_unit(int unit, const std::vector<at::Tensor>& own) {
  const auto& members = model_.facts.table.units[static_cast<size_t>(unit)].parameters;
  const auto expected =
      replica_ ? replica_->unit_parameters().acquire(unit, UnitCall::kInference).parameters : std::vector<at::Tensor>();
  Result<> compared;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].numel() == 0) continue;
    const auto& info = model_.facts.table.parameters[static_cast<size_t>(members[i])];
    const at::Tensor theirs = replica_ ? expected[i].detach().clone() : at::empty(info.whole_shape(), own[i].options());
    share(theirs);
    if (compared.ok()) compared = compare_copy(members[i], own[i], theirs);
  }
  if (replica_) replica_->unit_parameters().release(unit);
  return compared;
}

// All parameters of the model go to all ranks, each of which has some of them.
Result<> Verification::compare_stage() {
  const auto own = parameters_by_name(model_.facts.table, engine_.unit_parameters());
  const auto expected = replica_ ? parameters_by_name(replica_->table(), replica_->unit_parameters())
                                 : std::map<std::string, NamedParameter>();
  Result<> compared;
  for (const auto& info : model_.facts.whole_table().parameters) {
    if (!info.trainable || info.numel == 0) continue;
    const at::Tensor theirs =
        replica_
            ? expected.at(info.name).value.detach().clone()
            : at::empty(info.whole_shape(), at::TensorOptions().device(device_).dtype(dtypes_(info.name, info.dtype)));
    share(theirs);
    const auto found = own.find(info.name);
    if (compared.ok() && found != own.end()) compared = compare_copy(found->second.index, found->second.value, theirs);
  }
  return compared;
}

// From rank 0 to all.
void Verification::share(const at::Tensor& values) {
  if (world_.size() == 1) return;
  world_.broadcast({values.data_ptr(), values.nbytes(), comm::DType::kUInt8}, /*root=*/0);
}

// `own`: what this rank has of the parameter.
Result<> Verification::compare_copy(int parameter, const at::Tensor& own, const at::Tensor& whole) const {
  const auto& info = model_.facts.table.parameters[static_cast<size_t>(parameter)];
  const at::Tensor theirs = local_part(whole, info.slice);
  const at::Tensor mine = as_bytes(own), of_masters = as_bytes(theirs);
  if (mine.equal(of_masters)) return {};
  // The norms that a step needs are sums in another order on another stage.
  if (bounds_.has_norms && engine_.is_saved_elsewhere(parameter) && is_close(own, theirs, bounds_.rounding)) return {};
  const int64_t element = mine.eq(of_masters).to(at::kByte).argmin().item<int64_t>() / own.element_size();
  const auto value = [&](const at::Tensor& values) { return values.reshape({-1})[element].item<double>(); };
  return Failure{fmt::format("{}, element {}, is {:.9g} where forward reads it on rank {}, but the masters give {:.9g}",
                             describe_parameter(model_.facts.table, parameter),
                             coordinates(LocalSliceLayout(info).to_whole(element), info.whole_shape()), value(own),
                             world_.rank(), value(theirs))};
}

// Either all ranks throw the same error, or none throws.
void Verification::agree(int64_t step, const Result<>& own) {
  for (const auto& result : gather_results(world_, device_, own)) {
    if (result.ok()) continue;
    throw UserError(ExitCode::kCannotContinue,
                    fmt::format("--verify: {} the run differs from an unsharded replica: {}",
                                step == 0 ? std::string("before the first step") : fmt::format("at step {}", step),
                                result.error()));
  }
}

std::string Verification::report() const {
  std::string out = fmt::format(
      "--verify: {} step{} agree{} with an unsharded replica: loss within {:.1e}, gradient norm within {:.1e}, "
      "parameters and moments within {:.0f} % of what an error of {:.1e} in the gradient makes",
      steps_compared_, steps_compared_ == 1 ? "" : "s", steps_compared_ == 1 ? "s" : "", largest_loss_error_,
      largest_norm_error_, 100 * state_.largest_share(), bounds_.gradient.relative);
  std::vector<std::string> by_split;
  if (replica_ && replica_->draws_random_numbers()) by_split.emplace_back("random numbers");
  const auto buffers = replica_ ? replica_->buffers() : model_.tensors.buffers();
  const bool has_statistics = std::any_of(buffers.begin(), buffers.end(), [](const auto& buffer) {
    return buffer.first.find("running_mean") != std::string::npos;
  });
  if (has_statistics) by_split.emplace_back("statistics of batches");
  if (!by_split.empty()) {
    out += fmt::format(". The model's {} depend on how a batch is split; the replica splits it as the run does",
                       fmt::join(by_split, " and "));
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::verify
