#include "runtime/pipeline/schedule.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/enum_names.hpp"

namespace dslaunch::runtime::pipeline {
namespace {

using enum ActionKind;

void check_stage(int num_stages, int stage, int num_micro_batches) {
  DSL_CHECK(num_stages >= 1 && stage >= 0 && stage < num_stages && num_micro_batches >= 1,
            fmt::format("no schedule for stage {} of {} and {} micro batches", stage, num_stages, num_micro_batches));
}

std::vector<Action> all_of(std::initializer_list<ActionKind> kinds, int num_micro_batches) {
  std::vector<Action> out;
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    for (const ActionKind kind : kinds) out.push_back({kind, micro_batch});
  }
  return out;
}

std::vector<Action> gpipe(int num_micro_batches) {
  std::vector<Action> out = all_of({kForward}, num_micro_batches);
  const std::vector<Action> backwards = all_of({kBackward}, num_micro_batches);
  out.insert(out.end(), backwards.begin(), backwards.end());
  return out;
}

// 1f1b and zb-h1: `backward` and, `delay` micro batches later, the rest of it; no rest if `delay` is negative.
std::vector<Action> one_forward_one_backward(int num_warmup, int num_micro_batches, ActionKind backward, int delay) {
  std::vector<Action> out;
  int next_forward = 0;
  const auto add_forward = [&] {
    if (next_forward < num_micro_batches) out.push_back({kForward, next_forward++});
  };
  const auto add_rest = [&](int micro_batch) {
    if (micro_batch >= 0) out.push_back({kWeightGradient, micro_batch});
  };
  for (int i = 0; i < num_warmup; ++i) add_forward();
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    out.push_back({backward, micro_batch});
    if (delay >= 0) add_rest(micro_batch - delay);
    add_forward();
  }
  for (int left = std::min(delay, num_micro_batches); left > 0; --left) add_rest(num_micro_batches - left);
  return out;
}

std::vector<Action> computations(ScheduleKind kind, int num_stages, int stage, int num_micro_batches) {
  if (num_stages == 1) return all_of({kForward, kBackward}, num_micro_batches);
  const int num_warmup = num_stages - stage;
  switch (kind) {
    case ScheduleKind::kGPipe:
      return gpipe(num_micro_batches);
    case ScheduleKind::k1F1B:
      return one_forward_one_backward(num_warmup, num_micro_batches, kBackward, /*delay=*/-1);
    case ScheduleKind::kZbH1:
      return one_forward_one_backward(num_warmup, num_micro_batches, kInputGradient, /*delay=*/stage);
  }
  DSL_CHECK(false, "unknown schedule");
}

// Adds a stage's transfers to its computations: a receive before the computation that needs it, a send right after the
// one that made the tensor.
class TransferPlanner {
 public:
  TransferPlanner(int num_stages, int stage) : is_first_(stage == 0), is_last_(stage == num_stages - 1) {}

  std::vector<Action> plan(std::span<const Action> computations) {
    for (size_t i = 0; i < computations.size(); ++i) {
      receive_input_of(computations[i]);
      out_.push_back(computations[i]);
      const bool has_sent = send_output_of(computations[i]);
      // A neighbour sends the next activation and receives this gradient in one exchange. It must not wait for the
      // weight gradient in between, so the activation is received before it.
      if (has_sent && i + 2 < computations.size() && computations[i + 1].kind == kWeightGradient &&
          computations[i + 2].kind == kForward) {
        receive_input_of(computations[i + 2]);
      }
    }
    return std::move(out_);
  }

 private:
  void receive_input_of(const Action& computation) {
    if (computation.kind == kForward && !is_first_ && num_activations_ == computation.micro_batch) {
      out_.push_back({kReceiveActivation, num_activations_++});
    }
    if ((computation.kind == kBackward || computation.kind == kInputGradient) && !is_last_) {
      out_.push_back({kReceiveGradient, computation.micro_batch});
    }
  }
  bool send_output_of(const Action& computation) {
    const bool is_forward = computation.kind == kForward;
    if (computation.kind == kWeightGradient || (is_forward ? is_last_ : is_first_)) return false;
    out_.push_back({is_forward ? kSendActivation : kSendGradient, computation.micro_batch});
    return true;
  }

  const bool is_first_, is_last_;
  std::vector<Action> out_;
  int num_activations_ = 0;  // received so far
};

}  // namespace

bool is_transfer(ActionKind kind) {
  return kind >= kSendActivation;
}

bool is_send(ActionKind kind) {
  return kind == kSendActivation || kind == kSendGradient;
}

int peer_of(ActionKind transfer, int stage) {
  DSL_CHECK(is_transfer(transfer), "only a transfer has a peer");
  return transfer == kSendActivation || transfer == kReceiveGradient ? stage + 1 : stage - 1;
}

std::vector<Action> plan_schedule(ScheduleKind kind, int num_stages, int stage, int num_micro_batches) {
  check_stage(num_stages, stage, num_micro_batches);
  return TransferPlanner(num_stages, stage).plan(computations(kind, num_stages, stage, num_micro_batches));
}

std::vector<Action> plan_evaluation(int num_stages, int stage, int num_micro_batches) {
  check_stage(num_stages, stage, num_micro_batches);
  return TransferPlanner(num_stages, stage).plan(all_of({kForward}, num_micro_batches));
}

std::span<const Action> exchange_at(std::span<const Action> plan, size_t begin) {
  const auto from = plan.subspan(begin);
  const auto end =
      std::find_if(from.begin(), from.end(), [](const Action& action) { return !is_transfer(action.kind); });
  return from.first(static_cast<size_t>(end - from.begin()));
}

std::string_view name_of(ScheduleKind kind) {
  const auto* row = std::find_if(std::begin(config::kPipelineSchedules), std::end(config::kPipelineSchedules),
                                 [kind](const auto& each) { return each.value == kind; });
  DSL_CHECK(row != std::end(config::kPipelineSchedules), "every schedule has a name");
  return row->text;
}

std::string_view name_of(ActionKind kind) {
  constexpr std::string_view kNames[] = {"forward",         "backward",           "input gradient", "weight gradient",
                                         "send activation", "receive activation", "send gradient",  "receive gradient"};
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const Action& action) {
  return fmt::format("{} {}", name_of(action.kind), action.micro_batch);
}

std::string label(const Action& action) {
  constexpr const char* kLabels[] = {"F", "B", "I", "W", "SA", "RA", "SG", "RG"};
  return fmt::format("{}{}", kLabels[static_cast<size_t>(action.kind)], action.micro_batch);
}

}  // namespace dslaunch::runtime::pipeline
