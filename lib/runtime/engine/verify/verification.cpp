#include "runtime/engine/verify/verification.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/state/random_state.hpp"
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

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
}

double relative(double a, double b) {
  const double size = std::max(std::abs(a), std::abs(b));
  return a == b || size == 0 ? 0.0 : std::abs(a - b) / size;
}

at::Tensor as_bytes(const at::Tensor& values) {
  return values.detach().contiguous().view({-1}).view(at::kByte);
}

}  // namespace

Verification::Verification(step::Engine& engine, ReplicatedRun run, const comm::Groups& groups,
                           rendezvous::Store& store, bool is_resumed)
    : engine_(engine),
      model_(run.model),
      world_(groups.world),
      device_(run.engine.device),
      bounds_(bounds_of(run.model, run.config, run.engine, run.num_data_ranks)),
      state_(engine, run.model, groups.world, run.engine.device, bounds_) {
  require_memory(run);
  run.random_states = gather_bytes(groups.data, device_, bytes_of_tensor(save_random_state(device_)));
  if (world_.rank() == 0) {
    single_rank_group_ = comm::make_communicator(group_of_one(device_), store);
    replica_ = std::make_unique<Replica>(run, *single_rank_group_, bounds_.gradient);
  }
  share_frozen();
  // A checkpoint may differ from the model file; after a start from the model file both sides must have read the same.
  const Result<> state = state_.compare(replica_.get());
  agree(engine_.steps_done(), is_resumed ? Result<>() : state);
  compare_copies(engine_.steps_done());
}

void Verification::require_memory(const ReplicatedRun& run) {
  struct Memory {
    int64_t needed = 0, free = 0;
  };
  const auto memory =
      gather_values(world_, device_,
                    Memory{replica_bytes(run.model, run.engine.dtypes, engine_.num_moments()), free_bytes(device_)})[0];
  if (memory.needed > memory.free) {
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("--verify: the unsharded replica needs {} plus activations on rank 0 beside the run, but only {} "
                    "are free. Verify a smaller model of the same kind, or use a machine with more memory",
                    gibibytes(memory.needed), gibibytes(memory.free)));
  }
  if (world_.rank() == 0) {
    log::info(
        "--verify: the unsharded replica uses {} on rank 0 beside the run (free: {}), plus the activations of one "
        "micro batch",
        gibibytes(memory.needed), gibibytes(memory.free));
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

// The root unit stays unsharded while the other units are visited, as in a forward pass of the model.
void Verification::for_every_unit(const std::function<void(int unit, const UnitValues& values)>& visit) {
  at::NoGradGuard no_grad;
  auto& parameters = engine_.unit_parameters();
  const auto root = parameters.acquire(0, UnitCall::kInference);
  visit(0, root);
  for (size_t i = 1; i < model_.facts.table.units.size(); ++i) {
    const int unit = static_cast<int>(i);
    const auto& members = model_.facts.table.units[i];
    if (members.parameters.empty() && members.frozen.empty()) continue;
    visit(unit, parameters.acquire(unit, UnitCall::kInference));
    parameters.release(unit);
  }
  parameters.release(0);
}

// Gives the replica the whole values of frozen parameters that are sharded over the ranks.
void Verification::share_frozen() {
  for_every_unit([&](int unit, const UnitValues& values) {
    const auto& members = model_.facts.table.units[static_cast<size_t>(unit)].frozen;
    for (size_t i = 0; i < values.frozen.size(); ++i) {
      if (replica_ && values.frozen[i].defined()) replica_->set_frozen(members[i], values.frozen[i].clone());
    }
  });
}

// On every rank, compares what its units read with the replica's values, which are now computed from the run's masters.
void Verification::compare_copies(int64_t step) {
  Result<> copies;
  for_every_unit([&](int unit, const UnitValues& values) {
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
    const at::Tensor mine = as_bytes(own[i]);
    if (mine.numel() == 0) continue;
    at::Tensor theirs = replica_ ? as_bytes(expected[i]).clone() : at::empty_like(mine);
    if (world_.size() > 1) {
      world_.broadcast({theirs.data_ptr(), theirs.nbytes(), comm::DType::kUInt8}, /*root=*/0);
    }
    if (!compared.ok() || mine.equal(theirs)) continue;
    const auto width = static_cast<int64_t>(own[i].element_size());
    const int64_t element = mine.eq(theirs).to(at::kByte).argmin().item<int64_t>() / width;
    const auto value = [&](const at::Tensor& bytes) {
      return bytes.narrow(0, element * width, width).view(own[i].scalar_type()).item<double>();
    };
    compared =
        Failure{fmt::format("{}, element {}, is {:.9g} where forward reads it on rank {}, but the masters give {:.9g}",
                            describe_parameter(model_.facts.table, members[i]),
                            coordinates(element, model_.facts.table.parameters[static_cast<size_t>(members[i])].shape),
                            value(mine), world_.rank(), value(theirs))};
  }
  if (replica_) replica_->unit_parameters().release(unit);
  return compared;
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
  const auto buffers = model_.tensors.buffers();
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
