#include "runtime/sharding/lock_step.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime {
namespace {

constexpr int64_t kNumKinds = 3;
constexpr int64_t kEndOfPass = -1;

int64_t code_of(UnitEvent event) {
  return event.unit * kNumKinds + static_cast<int64_t>(event.kind);
}

UnitEvent event_of(int64_t code) {
  return {static_cast<UnitEvent::Kind>(code % kNumKinds), static_cast<int>(code / kNumKinds)};
}

}  // namespace

void LockStep::begin_pass(Pass pass) {
  pass_ = pass;
  order().begin_pass();
}

void LockStep::arrive(UnitEvent event) {
  if (order().is_ahead(event)) {
    while (order().ahead().front() != event) options_.serve(order().advance());
    order().advance();
    return;
  }
  order().insert(event);
  if (group_.size() == 1) return;
  if (order().is_recording()) {
    agree(event);
  } else {
    options_.meet(fmt::format("{}, place {}", describe(event), order().position()));
  }
}

void LockStep::end_pass() {
  while (!order().ahead().empty()) options_.serve(order().advance());
  if (order().is_recording() && group_.size() > 1) agree({UnitEvent::Kind::kForward, -1});
  order().end_pass();
}

// The largest code and the largest negated one over the ranks: equal when all brought the same.
void LockStep::agree(UnitEvent event) {
  const int64_t code = event.unit < 0 ? kEndOfPass : code_of(event);
  const at::Tensor range = at::tensor({code, -code}, at::kLong).to(options_.device);
  group_.all_reduce(buffer_of(range), comm::ReduceOp::kMax);
  group_.wait_for_completion();
  const at::Tensor host = range.cpu();
  if (host[0].item<int64_t>() != code || host[1].item<int64_t>() != -code) name_the_difference(code);
}

void LockStep::name_the_difference(int64_t own_code) {
  const at::Tensor own = at::full({1}, own_code, at::TensorOptions().dtype(at::kLong).device(options_.device));
  const at::Tensor all = at::empty({group_.size()}, own.options());
  group_.all_gather(buffer_of(own), buffer_of(all));
  group_.wait_for_completion();
  const at::Tensor host = all.cpu();
  std::vector<std::string> places;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto code = host[rank].item<int64_t>();
    places.push_back(
        fmt::format("rank {}: {}", rank, code == kEndOfPass ? "end of the pass" : describe(event_of(code))));
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the ranks run the model's units in different orders ({}). Sharded gradients and "
                              "parameters need one order in the first step: control flow must not depend on a rank's "
                              "own data there, or use ZeRO stage 0 or 1",
                              fmt::join(places, "; ")));
}

std::string LockStep::describe(UnitEvent event) const {
  const auto& name = options_.unit_names.at(static_cast<size_t>(event.unit));
  return fmt::format("{} of {}", to_string(event.kind), name.empty() ? "the root" : "unit '" + name + "'");
}

}  // namespace dslaunch::runtime
