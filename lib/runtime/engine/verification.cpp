#include "runtime/engine/verification.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/engine/rank_exchange.hpp"
#include "runtime/state/random_state.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::runtime {
namespace {

// What the order of additions and the type in which gradients travel may do to a gradient, relative. A sum over ranks
// in bf16 rounds at 2^-9 for each addition; there remains a margin of some additions.
double error_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 1.0 / 32;
    case at::kHalf:
      return 1.0 / 128;
    default:
      return 1e-5;
  }
}

double largest_model_error(const ModelSource& model, const precision::ModelDtypes& dtypes) {
  double error = error_of(at::kFloat);
  for (const auto& parameter : model.table().parameters) {
    if (parameter.trainable) error = std::max(error, error_of(dtypes(parameter.name, parameter.dtype)));
  }
  return error;
}

double error_of_gradients(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine) {
  double error = largest_model_error(model, engine.dtypes);
  for (const auto& type : {config.communication_data_type, config.grad_accum_dtype, config.autocast}) {
    if (type) error = std::max(error, error_of(precision::to_torch(*type)));
  }
  return error;
}

// Other instructions for other lengths; and masters that are rounded to what 16 bits hold, where "amp" O3 keeps no
// more.
double rounding_of(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine) {
  return config.fp32_master ? 1e-6 : largest_model_error(model, engine.dtypes);
}

// Gradients are rounded to the type that travels, and small sums may be what large ones leave.
double moment_rounding_of(const config::JobConfig& config, double rounding) {
  const bool is_low = config.precision == config::Precision::kBf16 || config.precision == config::Precision::kFp16;
  return is_low ? 0x1p-8 : rounding;
}

void refuse_quantized(const config::Zero& zero) {
  if (!zero.quantized_weights && !zero.quantized_gradients) return;
  throw UserError(
      ExitCode::kBadInput,
      "--verify: zero_quantized_weights and zero_quantized_gradients round what travels to 8 bits and less, "
      "so the run is not one with an unsharded replica by design; verify without them");
}

comm::CommunicatorOptions group_of_one(at::Device device) {
  comm::CommunicatorOptions out;
  out.name = "verification";
  out.device = device.is_cuda() ? device.index() : -1;
  return out;
}

std::string random_bytes(at::Device device) {
  const at::Tensor state = save_random_state(device);
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
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

std::string coordinates(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    out[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return fmt::format("[{}]", fmt::join(out, ", "));
}

}  // namespace

Verification::Verification(Engine& engine, ReplicatedRun run, comm::Communicator& world, rendezvous::Store& store,
                           bool is_resumed)
    : engine_(engine),
      model_(run.model),
      world_(world),
      device_(run.engine.device),
      gradient_error_(error_of_gradients(run.model, run.config, run.engine)),
      rounding_(rounding_of(run.model, run.config, run.engine)),
      moment_rounding_(moment_rounding_of(run.config, rounding_)) {
  refuse_quantized(run.config.zero);
  require_memory(run);
  run.random_states = gather_bytes(world, device_, random_bytes(device_));
  if (world.rank() == 0) {
    alone_ = comm::make_communicator(group_of_one(device_), store);
    replica_ = std::make_unique<Replica>(run, *alone_, gradient_error_);
  }
  learn_layout();
  // A checkpoint is the run's own business; from the model's file both sides must read the same.
  const auto different = compare_state();
  agree(engine_.steps_done(), different && !is_resumed ? describe(*different) : "");
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
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("--verify: the unsharded replica needs {} and its activations on rank 0 beside the "
                                "run, and {} are free there. Verify a smaller model of the same kind, or on a machine "
                                "with more memory",
                                gibibytes(memory.needed), gibibytes(memory.free)));
  }
  if (world_.rank() == 0) {
    log::info(
        "--verify: the unsharded replica takes {} on rank 0 beside the run (free: {}), and the activations of "
        "one micro batch",
        gibibytes(memory.needed), gibibytes(memory.free));
  }
}

void Verification::learn_layout() {
  std::map<std::string, int> parameter_of, state_of;
  const auto& parameters = model_.table().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) parameter_of[parameters[i].name] = static_cast<int>(i);
  std::string lines;
  for (const auto& piece : engine_.owned_state()) {
    lines +=
        fmt::format("{} {} {} {}\n", parameter_of.at(piece.parameter), piece.begin, piece.values.numel(), piece.state);
  }
  for (const auto& text : gather_texts(world_, device_, lines)) {
    auto& places = layout_.emplace_back();
    std::istringstream in(text);
    Place place;
    std::string state;
    while (in >> place.parameter >> place.begin >> place.count >> state) {
      const auto [known, is_new] = state_of.try_emplace(state, static_cast<int>(state_of.size()));
      if (is_new) state_names_.push_back(state);
      place.state = known->second;
      places.push_back(place);
    }
  }
}

void Verification::compare(const StepResult& run) {
  std::optional<StepResult> replica;
  if (replica_) replica = replica_->step();
  const bool comparable = !replica || !overflows_apart(run, *replica);
  std::string problem = replica && comparable ? compare_numbers(run, *replica) : "";
  const auto different = compare_state();
  if (different && comparable) {
    problem += (problem.empty() ? "" : "; ") + describe(*different);
    if (num_different_ > 1) problem += fmt::format(" ({} parameters differ in all)", num_different_);
  }
  agree(run.step, problem);
  compare_copies(run.step);
  steps_compared_ += 1;
}

// The run adds up ranks in fp16, where a sum may overflow that the replica's does not.
bool Verification::overflows_apart(const StepResult& run, const StepResult& replica) {
  if (!run.overflow || replica.overflow) return false;
  log::info("--verify: step {} overflowed where the run adds up gradients in fp16 and was skipped; nothing to compare",
            run.step);
  return true;
}

std::string Verification::compare_numbers(const StepResult& run, const StepResult& replica) {
  if (replica.overflow && !run.overflow) return "the replica's step overflowed, the run's did not";
  if (run.overflow) return {};  // losses and norms of skipped steps mean nothing
  const double loss = relative(run.loss, replica.loss), norm = relative(run.grad_norm, replica.grad_norm);
  largest_loss_error_ = std::max(largest_loss_error_, loss);
  largest_norm_error_ = std::max(largest_norm_error_, norm);
  std::string problem;
  auto compare = [&](const char* what, double error, double of_run, double of_replica) {
    if (error <= gradient_error_) return;
    problem += fmt::format("{}the {} is {:.9g}, that of the replica {:.9g} (bound: {:.1e}, relative)",
                           problem.empty() ? "" : "; ", what, of_run, of_replica, gradient_error_);
  };
  compare("loss", loss, run.loss, replica.loss);
  compare("gradient norm", norm, run.grad_norm, replica.grad_norm);
  return problem;
}

// What the rank owns, in the order of its layout, on every rank.
at::Tensor Verification::values_of_rank(int rank) {
  int64_t count = 0;
  for (const auto& place : layout_[static_cast<size_t>(rank)]) count += place.count;
  at::Tensor flat = at::empty({count}, at::TensorOptions().device(device_).dtype(at::kFloat));
  if (rank == world_.rank()) {
    int64_t at = 0;
    for (const auto& piece : engine_.owned_state()) {
      flat.narrow(0, at, piece.values.numel()).copy_(piece.values);
      at += piece.values.numel();
    }
  }
  if (count > 0 && world_.size() > 1) {
    world_.broadcast({flat.data_ptr(), static_cast<size_t>(count), comm::DType::kFloat32}, rank);
  }
  return flat;
}

// On rank 0: the first difference in the order of the model; the replica then has what the run has.
std::optional<Verification::Difference> Verification::compare_state() {
  std::optional<Difference> first;
  std::vector<bool> differs(model_.table().parameters.size(), false);
  auto mine = replica_ ? replica_->state() : Replica::State{};
  std::map<std::pair<std::string, std::string>, size_t> index_of;
  for (size_t i = 0; i < mine.values.size(); ++i) index_of[{mine.values[i].parameter, mine.values[i].state}] = i;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const at::Tensor theirs = values_of_rank(rank);
    int64_t at = 0;
    for (const auto& place : layout_[static_cast<size_t>(rank)]) {
      const at::Tensor piece = theirs.narrow(0, at, place.count);
      at += place.count;
      if (!replica_) continue;
      const auto& name = model_.table().parameters[static_cast<size_t>(place.parameter)].name;
      const size_t index = index_of.at({name, state_names_[static_cast<size_t>(place.state)]});
      const auto difference = compare_piece(mine, index, place, rank, piece);
      mine.values[index].values.narrow(0, place.begin, place.count).copy_(piece);
      if (!difference) continue;
      differs[static_cast<size_t>(place.parameter)] = true;
      auto order = [](const Difference& d) { return std::tuple(d.at.parameter, d.at.state, d.element); };
      if (!first || order(*difference) < order(*first)) first = difference;
    }
  }
  if (replica_) replica_->take_over(engine_);
  num_different_ = std::count(differs.begin(), differs.end(), true);
  return first;
}

std::optional<Verification::Difference> Verification::compare_piece(const Replica::State& mine, size_t index,
                                                                    const Place& place, int rank,
                                                                    const at::Tensor& theirs) {
  auto part = [&](const std::vector<OwnedState>& state) {
    return state.at(index).values.narrow(0, place.begin, place.count);
  };
  if (place.count == 0) return std::nullopt;
  const at::Tensor own = part(mine.values);
  at::Tensor bound = at::zeros_like(own);
  if (!mine.lower.empty()) {
    // Twice what the error of the gradient makes, either way; and a rounding of the largest value here, since a small
    // one may be the difference of two large ones.
    bound = at::maximum((part(mine.lower) - own).abs(), (part(mine.upper) - own).abs()) * 2 +
            own.abs().max() *
                (state_names_.at(static_cast<size_t>(place.state)) == "master" ? rounding_ : moment_rounding_);
  }
  const at::Tensor error = (theirs - own).abs();
  const at::Tensor good = (error <= bound).logical_or(theirs == own);
  if (good.all().item<bool>()) {
    const double share = (error / (bound + 1e-30)).max().item<double>();
    largest_share_ = std::max(largest_share_, share);
    return std::nullopt;
  }
  const auto element = good.to(at::kByte).argmin().item<int64_t>();
  return Difference{place,
                    place.begin + element,
                    rank,
                    theirs[element].item<double>(),
                    own[element].item<double>(),
                    bound[element].item<double>()};
}

// Every rank: what its units see against the replica's, which now stands on the run's masters. The root is held around
// the others, as in a pass over the model.
void Verification::compare_copies(int64_t step) {
  at::NoGradGuard no_grad;
  auto& parameters = engine_.unit_parameters();
  const auto root = parameters.acquire(0, UnitCall::kInference);
  std::string problem = compare_unit(0, root);
  for (size_t i = 1; i < model_.table().units.size(); ++i) {
    const int unit = static_cast<int>(i);
    if (model_.table().units[i].parameters.empty()) continue;
    const std::string found = compare_unit(unit, parameters.acquire(unit, UnitCall::kInference));
    parameters.release(unit);
    if (problem.empty()) problem = found;
  }
  parameters.release(0);
  agree(step, problem);
}

std::string Verification::compare_unit(int unit, const std::vector<at::Tensor>& own) {
  const auto& members = model_.table().units[static_cast<size_t>(unit)].parameters;
  const auto expected =
      replica_ ? replica_->unit_parameters().acquire(unit, UnitCall::kInference) : std::vector<at::Tensor>();
  std::string problem;
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor mine = as_bytes(own[i]);
    if (mine.numel() == 0) continue;
    at::Tensor theirs = replica_ ? as_bytes(expected[i]).clone() : at::empty_like(mine);
    if (world_.size() > 1) {
      world_.broadcast({theirs.data_ptr(), theirs.nbytes(), comm::DType::kUInt8}, /*root=*/0);
    }
    if (!problem.empty() || mine.equal(theirs)) continue;
    const auto width = static_cast<int64_t>(own[i].element_size());
    const int64_t element = mine.eq(theirs).to(at::kByte).argmin().item<int64_t>() / width;
    const auto value = [&](const at::Tensor& bytes) {
      return bytes.narrow(0, element * width, width).view(own[i].scalar_type()).item<double>();
    };
    problem = fmt::format("{}, element {}, is {:.9g} where forward reads it on rank {}, but the masters give {:.9g}",
                          describe_parameter(members[i]),
                          coordinates(element, model_.table().parameters[static_cast<size_t>(members[i])].shape),
                          value(mine), world_.rank(), value(theirs));
  }
  if (replica_) replica_->unit_parameters().release(unit);
  return problem;
}

std::string Verification::describe_parameter(int parameter) const {
  const auto& info = model_.table().parameters[static_cast<size_t>(parameter)];
  const auto& unit = model_.table().units[static_cast<size_t>(info.unit)].name;
  return fmt::format("parameter '{}' ({})", info.name, unit.empty() ? "root unit" : "unit '" + unit + "'");
}

std::string Verification::describe(const Difference& difference) const {
  const auto& state = state_names_[static_cast<size_t>(difference.at.state)];
  const auto& shape = model_.table().parameters[static_cast<size_t>(difference.at.parameter)].shape;
  return fmt::format(
      "the first parameter that differs: {}, element {}{}: {:.9g} on rank {}, {:.9g} in the replica "
      "(difference {:.3g}, bound {:.3g})",
      describe_parameter(difference.at.parameter), coordinates(difference.element, shape),
      state == "master" ? "" : " of " + state, difference.run, difference.rank, difference.replica,
      std::abs(difference.run - difference.replica), difference.bound);
}

// All ranks throw the same, or none.
void Verification::agree(int64_t step, const std::string& problem) {
  for (const auto& text : gather_texts(world_, device_, problem)) {
    if (text.empty()) continue;
    throw UserError(
        ExitCode::kCannotContinue,
        fmt::format("--verify: {} the run differs from an unsharded replica: {}",
                    step == 0 ? std::string("before the first step") : fmt::format("at step {}", step), text));
  }
}

std::string Verification::report() const {
  std::string out = fmt::format(
      "--verify: {} step{} agree{} with an unsharded replica: loss within {:.1e}, gradient norm within {:.1e}, "
      "parameters and moments within {:.0f} % of what an error of {:.1e} in the gradient makes",
      steps_compared_, steps_compared_ == 1 ? "" : "s", steps_compared_ == 1 ? "s" : "", largest_loss_error_,
      largest_norm_error_, 100 * largest_share_, gradient_error_);
  std::vector<std::string> by_split;
  if (replica_ && replica_->draws_random_numbers()) by_split.emplace_back("random numbers");
  const auto buffers = model_.buffers();
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

}  // namespace dslaunch::runtime
