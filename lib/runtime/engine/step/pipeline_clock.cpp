#include "runtime/engine/step/pipeline_clock.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace dslaunch::runtime::engine::step {

PipelineClock::PipelineClock(int64_t step, comm::Communicator& pipe, at::Device device)
    : step_(step), pipe_(pipe), device_(device) {}

void PipelineClock::begin_step(int64_t step) {
  if (step != step_ || state_ != State::kBefore) return;
  pipe_.barrier();
  pipe_.wait_for_completion();
  origin_ = mark_time(device_);
  state_ = State::kMeasuring;
}

void PipelineClock::end_step() {
  if (state_ == State::kMeasuring) state_ = State::kMeasured;
}

PipelineClock::Span::Span(PipelineClock* clock, const pipeline::Action& action)
    : clock_(clock != nullptr && clock->state_ == State::kMeasuring ? clock : nullptr), action_(action) {
  if (scope_.isActive()) scope_.before(pipeline::describe(action));
  if (clock_ != nullptr) begin_ = mark_time(clock_->device_);
}

PipelineClock::Span::~Span() {
  if (clock_ != nullptr) clock_->measured_.push_back({action_, std::move(*begin_), mark_time(clock_->device_)});
}

// Every stage has as many actions that compute.
std::optional<pipeline::Timeline> PipelineClock::take() {
  if (state_ != State::kMeasured) return std::nullopt;
  state_ = State::kTaken;
  constexpr int64_t kFields = 4;
  const auto num_actions = static_cast<int64_t>(measured_.size());
  at::Tensor own = at::empty({num_actions, kFields});
  for (int64_t i = 0; i < num_actions; ++i) {
    const Measured& each = measured_[static_cast<size_t>(i)];
    float* row = own.data_ptr<float>() + i * kFields;
    row[0] = static_cast<float>(each.action.kind);
    row[1] = static_cast<float>(each.action.micro_batch);
    row[2] = static_cast<float>(milliseconds_between(origin_, each.begin));
    row[3] = static_cast<float>(milliseconds_between(origin_, each.end));
  }
  measured_.clear();
  const at::Tensor part = own.to(device_), all = at::empty({pipe_.size(), num_actions, kFields}, part.options());
  pipe_.all_gather({part.data_ptr(), static_cast<size_t>(part.numel()), comm::DType::kFloat32},
                   {all.data_ptr(), static_cast<size_t>(all.numel()), comm::DType::kFloat32});
  pipe_.wait_for_completion();
  const at::Tensor rows = all.cpu();
  const double first = num_actions == 0 ? 0 : rows.select(2, 2).min().item<double>();
  pipeline::Timeline timeline;
  for (int64_t stage = 0; stage < pipe_.size(); ++stage) {
    auto& actions = timeline.stages.emplace_back();
    const float* row = rows.data_ptr<float>() + stage * num_actions * kFields;
    for (int64_t i = 0; i < num_actions; ++i, row += kFields) {
      actions.push_back({{static_cast<pipeline::ActionKind>(row[0]), static_cast<int>(row[1])},
                         static_cast<double>(row[2]) - first,
                         static_cast<double>(row[3]) - first});
    }
  }
  return timeline;
}

}  // namespace dslaunch::runtime::engine::step
