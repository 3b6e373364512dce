#include "runtime/sharding/collective_order.hpp"

#include <ATen/ATen.h>

#include <array>
#include <limits>

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

// The position of an event in a pass that runs the units in order. Any order would be correct; this one needs the
// fewest events in which a rank only participates.
std::array<int64_t, 3> canonical_order(int64_t code) {
  if (code == kEndOfPass) return {2, 0, 0};
  const UnitEvent event = event_of(code);
  if (event.kind == UnitEvent::Kind::kForward) return {0, event.unit, 0};
  const bool is_first = event.unit == 0 && event.kind == UnitEvent::Kind::kBackward;  // of the root
  return {1, is_first ? std::numeric_limits<int64_t>::min() : -event.unit, static_cast<int64_t>(event.kind)};
}

}  // namespace

void CollectiveOrder::begin_pass(Pass pass) {
  pass_ = pass;
  order().begin_pass();
}

void CollectiveOrder::arrive(UnitEvent event) {
  if (negotiates()) {
    agree(code_of(event));
    if (order().is_recording()) order().insert(event);
    return;
  }
  if (order().is_ahead(event)) {
    while (order().ahead().front() != event) options_.participate(order().advance());
    order().advance();
    return;
  }
  order().insert(event);
  if (group_.size() > 1 && !order().is_recording()) {
    options_.barrier(fmt::format("{}, place {}", describe(event), order().position()));
  }
}

void CollectiveOrder::end_pass() {
  if (negotiates()) {
    agree(kEndOfPass);
  } else {
    while (!order().ahead().empty()) options_.participate(order().advance());
  }
  order().end_pass();
}

// Ranks that are not at the chosen event participate in it and ask again; ranks that are at it continue with its
// collectives.
void CollectiveOrder::agree(int64_t own) {
  while (!all_have(own)) {
    diverged_[static_cast<size_t>(pass_)] = true;
    const int64_t chosen = first_of_all(own);
    if (chosen == own) return;
    options_.participate(event_of(chosen));
  }
}

// The maximum of the code and of its negation over the ranks: equal when all ranks have the same code.
bool CollectiveOrder::all_have(int64_t code) {
  const at::Tensor range = at::tensor({code, -code}, at::kLong).to(options_.device);
  group_.all_reduce(buffer_of(range), comm::ReduceOp::kMax);
  group_.wait_for_completion();
  const at::Tensor host = range.cpu();
  return host[0].item<int64_t>() == -host[1].item<int64_t>();
}

int64_t CollectiveOrder::first_of_all(int64_t own) {
  const at::Tensor own_code = at::full({1}, own, at::TensorOptions().dtype(at::kLong).device(options_.device));
  const at::Tensor all = at::empty({group_.size()}, own_code.options());
  group_.all_gather(buffer_of(own_code), buffer_of(all));
  group_.wait_for_completion();
  const at::Tensor host = all.cpu();
  int64_t first = own;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto code = host[rank].item<int64_t>();
    if (canonical_order(code) < canonical_order(first)) first = code;
  }
  return first;
}

std::string CollectiveOrder::describe(UnitEvent event) const {
  const auto& name = options_.unit_names.at(static_cast<size_t>(event.unit));
  return fmt::format("{} of {}", to_string(event.kind), name.empty() ? "the root" : "unit '" + name + "'");
}

}  // namespace dslaunch::runtime
