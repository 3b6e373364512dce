#include "runtime/pipeline/simulate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::pipeline {
namespace {

using enum ActionKind;

// A computation, or the transfers of one exchange, which begin together.
struct Step {
  size_t begin = 0, end = 0;  // of the plan
  bool is_exchange = false;
};

// The n-th message from one stage to another: the n-th send meets the n-th receive, whatever they carry.
struct Message {
  std::optional<Action> send, receive;
  double ready = 0;  // when the later of the two was

  bool has_met() const { return send && receive; }
};

using Route = std::pair<int, int>;  // from, to

struct Stage {
  std::vector<Action> plan;
  std::vector<Step> steps;
  StageTimeline timed;                             // for each action of the plan
  std::vector<double> ends;                        // of the steps
  size_t next_computation = 0, next_exchange = 0;  // the first step of that kind that has not ended
  double computed_until = 0, exchanged_until = 0;  // ends of those before
  bool exchange_has_begun = false;
  std::vector<Message*> messages;            // of the exchange that has begun, in the order of its transfers
  std::set<int> forwarded, input_gradients;  // micro batches
  std::map<std::pair<ActionKind, int>, double> received;

  bool is_done() const { return next_computation == steps.size() && next_exchange == steps.size(); }
};

class Simulator {
 public:
  Simulator(const std::vector<std::vector<Action>>& plans, const std::vector<ActionTimes>& times, TransferOrder order)
      : times_(times), order_(order) {
    DSL_CHECK(times.size() == 1 || times.size() == plans.size(), "action times of each stage, or one for all");
    for (const auto& plan : plans) stages_.push_back(make_stage(plan));
  }

  Simulation run() {
    while (advance_all()) {
    }
    Simulation out;
    for (size_t i = 0; i < stages_.size(); ++i) {
      Stage& stage = stages_[i];
      if (!stage.is_done()) out.deadlock.push_back({static_cast<int>(i), first_pending(stage)});
      out.timeline.stages.push_back(std::move(stage.timed));
    }
    return out;
  }

 private:
  static Stage make_stage(const std::vector<Action>& plan) {
    Stage stage;
    stage.plan = plan;
    for (size_t i = 0; i < plan.size();) {
      const size_t transfers = exchange_at(plan, i).size();
      stage.steps.push_back({i, i + std::max<size_t>(1, transfers), transfers > 0});
      i = stage.steps.back().end;
    }
    for (const Action& action : plan) stage.timed.push_back({action});
    stage.ends.resize(stage.steps.size());
    stage.next_computation = next_step(stage, 0, /*is_exchange=*/false);
    stage.next_exchange = next_step(stage, 0, /*is_exchange=*/true);
    return stage;
  }

  static size_t next_step(const Stage& stage, size_t from, bool is_exchange) {
    while (from < stage.steps.size() && stage.steps[from].is_exchange != is_exchange) ++from;
    return from;
  }

  static Action first_pending(const Stage& stage) {
    const Step& step = stage.steps[std::min(stage.next_computation, stage.next_exchange)];
    size_t first = step.begin;
    if (step.is_exchange && stage.exchange_has_begun) {
      while (stage.messages[first - step.begin]->has_met()) ++first;
    }
    return stage.plan[first];
  }

  bool advance_all() {
    bool has_advanced = false;
    for (size_t i = 0; i < stages_.size(); ++i) {
      while (compute(static_cast<int>(i)) || exchange(static_cast<int>(i))) has_advanced = true;
    }
    return has_advanced;
  }

  const ActionTimes& times_of(int stage) const { return times_[times_.size() == 1 ? 0 : static_cast<size_t>(stage)]; }

  // When the input of a computation was received; 0 for a stage that receives none. Empty: not yet.
  std::optional<double> input_time(const Stage& stage, int index, const Action& action) const {
    const bool is_forward = action.kind == kForward;
    const bool needs_none = action.kind == kWeightGradient || (is_forward ? index == 0 : index + 1 == num_stages());
    if (needs_none) return 0;
    const auto found = stage.received.find({is_forward ? kReceiveActivation : kReceiveGradient, action.micro_batch});
    if (found == stage.received.end()) return std::nullopt;
    return found->second;
  }

  static void check_order(Stage& stage, const Action& action) {
    const auto comes_after = [&](const std::set<int>& earlier, const char* what) {
      DSL_CHECK(earlier.contains(action.micro_batch), fmt::format("{} before its {}", describe(action), what));
    };
    if (action.kind == kForward) stage.forwarded.insert(action.micro_batch);
    if (action.kind == kInputGradient) stage.input_gradients.insert(action.micro_batch);
    if (action.kind == kBackward || action.kind == kInputGradient) comes_after(stage.forwarded, "forward");
    if (action.kind == kWeightGradient) comes_after(stage.input_gradients, "input gradient");
  }

  bool compute(int index) {
    Stage& stage = at(index);
    const size_t step = stage.next_computation;
    if (step == stage.steps.size()) return false;
    if (order_ == TransferOrder::kBlocking && stage.next_exchange < step) return false;
    const Action& action = stage.plan[stage.steps[step].begin];
    const auto input = input_time(stage, index, action);
    if (!input) return false;
    check_order(stage, action);
    TimedAction& timed = stage.timed[stage.steps[step].begin];
    timed.begin = std::max(stage.computed_until, *input);
    if (order_ == TransferOrder::kBlocking) timed.begin = std::max(timed.begin, stage.exchanged_until);
    timed.end = timed.begin + times_of(index).of(action.kind);
    stage.computed_until = stage.ends[step] = timed.end;
    stage.next_computation = next_step(stage, step + 1, /*is_exchange=*/false);
    return true;
  }

  bool exchange(int index) {
    Stage& stage = at(index);
    const size_t step = stage.next_exchange;
    if (step == stage.steps.size() || stage.next_computation < step) return false;
    bool has_advanced = false;
    if (!stage.exchange_has_begun) {
      begin_exchange(index, stage, step);
      has_advanced = true;
    }
    const bool have_met = std::all_of(stage.messages.begin(), stage.messages.end(),
                                      [](const Message* message) { return message->has_met(); });
    if (have_met) end_exchange(index, stage, step);
    return has_advanced || have_met;
  }

  void begin_exchange(int index, Stage& stage, size_t step) {
    // The step before an exchange is a computation, or there is none.
    const double computed = step > 0 ? stage.ends[step - 1] : 0;
    const double begin = std::max(computed, stage.exchanged_until);
    stage.exchange_has_begun = true;
    stage.messages.clear();
    for (size_t i = stage.steps[step].begin; i < stage.steps[step].end; ++i) {
      stage.timed[i].begin = begin;
      stage.messages.push_back(&post(index, stage.plan[i], begin));
    }
  }

  Message& post(int index, const Action& transfer, double time) {
    const int peer = peer_of(transfer.kind, index);
    DSL_CHECK(peer >= 0 && peer < num_stages(), fmt::format("stage {} has no peer to {}", index, describe(transfer)));
    const bool sends = is_send(transfer.kind);
    const Route route = sends ? Route{index, peer} : Route{peer, index};
    Message& message = messages_[route][(sends ? num_sent_ : num_received_)[route]++];
    (sends ? message.send : message.receive) = transfer;
    message.ready = std::max(message.ready, time);
    DSL_CHECK(!message.has_met() || message.send->micro_batch == message.receive->micro_batch,
              fmt::format("the {} of stage {} meets the {} of stage {}", describe(*message.send), route.first,
                          describe(*message.receive), route.second));
    return message;
  }

  void end_exchange(int index, Stage& stage, size_t step) {
    for (size_t i = stage.steps[step].begin; i < stage.steps[step].end; ++i) {
      const Message& message = *stage.messages[i - stage.steps[step].begin];
      stage.timed[i].end = message.ready + times_of(index).transfer;
      stage.exchanged_until = std::max(stage.exchanged_until, stage.timed[i].end);
    }
    for (size_t i = stage.steps[step].begin; i < stage.steps[step].end; ++i) {
      const Action& transfer = stage.plan[i];
      if (!is_send(transfer.kind)) stage.received[{transfer.kind, transfer.micro_batch}] = stage.exchanged_until;
    }
    stage.ends[step] = stage.exchanged_until;
    stage.exchange_has_begun = false;
    stage.next_exchange = next_step(stage, step + 1, /*is_exchange=*/true);
  }

  Stage& at(int index) { return stages_[static_cast<size_t>(index)]; }
  int num_stages() const { return static_cast<int>(stages_.size()); }

  const std::vector<ActionTimes> times_;
  const TransferOrder order_;
  std::vector<Stage> stages_;
  std::map<Route, std::map<size_t, Message>> messages_;  // by number; their addresses stay
  std::map<Route, size_t> num_sent_, num_received_;
};

}  // namespace

double ActionTimes::of(ActionKind kind) const {
  switch (kind) {
    case kForward:
      return forward;
    case kBackward:
      return input_gradient + weight_gradient;
    case kInputGradient:
      return input_gradient;
    case kWeightGradient:
      return weight_gradient;
    default:
      return transfer;
  }
}

Simulation simulate(const std::vector<std::vector<Action>>& plans, const std::vector<ActionTimes>& times,
                    TransferOrder order) {
  return Simulator(plans, times, order).run();
}

std::vector<std::vector<Action>> plan_all_stages(ScheduleKind kind, int num_stages, int num_micro_batches) {
  std::vector<std::vector<Action>> plans;
  for (int stage = 0; stage < num_stages; ++stage) {
    plans.push_back(plan_schedule(kind, num_stages, stage, num_micro_batches));
  }
  return plans;
}

std::string describe(const std::vector<Simulation::Blocked>& deadlock) {
  std::vector<std::string> texts;
  for (const auto& blocked : deadlock)
    texts.push_back(fmt::format("stage {}: {}", blocked.stage, describe(blocked.action)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace dslaunch::runtime::pipeline
