#include "runtime/engine/step/step_verdict.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/optim/gradient_norm.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

// Indices in the small tensor that a step sums over its ranks. The report of the loss scale follows these entries.
enum Statistic : int64_t {
  kLoss,
  kNorm,  // the squared norm, until it is summed over all ranks
  kStop,
  kLabelWeight,
  kNumStatistics
};

std::vector<Range> counted_ranges(const StateSpan& span, const StepVerdict::Options& options) {
  return options.counted_ranges ? options.counted_ranges(span) : std::vector<Range>{span.range};
}

// Gradients in files come piece by piece.
void add_squares(const SpanState& state, Range range, optim::HostSquares& sum) {
  constexpr int64_t kPiece = 128 * optim::kSquaresBlock;
  const auto& [span, arrays] = state;
  const int64_t begin = range.begin - span.range.begin;
  if (arrays.gradient.defined()) return sum.add(arrays.gradient.narrow(0, begin, range.size()));
  const StoredGradient& stored = *arrays.stored_gradient;
  for (int64_t done = 0; done < range.size(); done += kPiece) {
    const at::Tensor piece = at::zeros({std::min(kPiece, range.size() - done)}, stored.dtype);
    if (!stored.is_zero) arrays.stored->read_gradient(stored.area, begin + done, piece);
    sum.add(piece);
  }
}

// On CPU ranks offloaded gradients are added up with the others, so that the order of additions does not depend on
// offload.
at::Tensor squares_on_host(std::span<const SpanState> state, const StepVerdict::Options& options) {
  optim::HostSquares sum;
  for (const auto& each : state) {
    for (const Range& range : counted_ranges(each.span, options)) add_squares(each, range, sum);
  }
  return sum.sum();
}

// The sum of squares of all gradients that count: 0-dim fp64. Those that left the device brought theirs.
at::Tensor squares_of(std::span<const SpanState> state, const StepVerdict::Options& options) {
  const at::Device device = options.device;
  if (device.is_cpu()) return squares_on_host(state, options);
  std::vector<at::Tensor> gradients;
  at::Tensor sum;
  for (const auto& [span, arrays] : state) {
    if (arrays.is_offloaded) {
      if (!arrays.gradient_squares.defined()) continue;
      sum = sum.defined() ? sum + arrays.gradient_squares : arrays.gradient_squares;
    } else {
      for (const Range& range : counted_ranges(span, options)) {
        gradients.push_back(arrays.gradient.narrow(0, range.begin - span.range.begin, range.size()));
      }
    }
  }
  if (gradients.empty()) return sum.defined() ? sum : at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  const at::Tensor own = optim::sum_of_squares(gradients);
  return sum.defined() ? own + sum : own;
}

}  // namespace

StepVerdict::StepVerdict(Options options, precision::LossScaling& loss_scaling, const RateSchedule& rates,
                         comm::Communicator& world)
    : options_(options), loss_scaling_(loss_scaling), rates_(rates), world_(world), clock_(options.device) {}

std::optional<at::Tensor> StepVerdict::known_factor() const {
  if (options_.max_norm > 0 || options_.sums_over_labels || loss_scaling_.is_on()) return std::nullopt;
  return optim::clip_by_norm(at::zeros({}, at::kDouble), /*max_norm=*/0, 1.0 / options_.gradient_divisor).factor;
}

// A gradient of a rank's own, as a mean, is `ranks` times what it adds to the average.
Verdict StepVerdict::decide(const PassSums& sums, std::span<const SpanState> state, bool stop_requested,
                            bool averaged) {
  const auto scalar = sums.loss.options();
  at::Tensor squares = options_.contributes_norm || !averaged
                           ? loss_scaling_.unscaled_squares(squares_of(state, options_)).to(at::kFloat)
                           : at::zeros({}, scalar);
  if (!averaged) squares = squares * world_.size();
  const bool has_loss = options_.contributes_loss;
  const at::Tensor loss = has_loss ? sums.loss / options_.total_micro_batches : at::zeros({}, scalar);
  statistics_ = at::stack({loss, squares, at::full({}, stop_requested ? 1.0 : 0.0, scalar),
                           at::full({}, has_loss ? sums.label_weight : 0.0, scalar)});
  if (world_.size() > 1) world_.all_reduce(buffer_of(statistics_), comm::ReduceOp::kSum);
  const at::Tensor label_factor = options_.sums_over_labels ? weigh_by_labels() : at::Tensor();
  loss_scaling_.detect_overflow(statistics_.narrow(0, kLoss, 2));
  const auto clipped = optim::clip_by_norm(statistics_.select(0, kNorm).to(at::kDouble), options_.max_norm,
                                           1.0 / options_.gradient_divisor);
  statistics_.select(0, kNorm).copy_(clipped.norm);
  const at::Tensor factor = label_factor.defined() ? clipped.factor * label_factor : clipped.factor;
  Verdict verdict{.gradient_factor = loss_scaling_.unscaled_factor(factor)};
  verdict.skip = loss_scaling_.is_on() ? loss_scaling_.skip() : skip_after_nonfinite();
  verdict.applied_steps = loss_scaling_.applied_steps();
  if (loss_scaling_.is_on()) statistics_ = at::cat({statistics_, loss_scaling_.report()});
  return verdict;
}

// Converts the statistics from means over all labels to means over those that count; returns the factor.
at::Tensor StepVerdict::weigh_by_labels() {
  const at::Tensor factor = options_.total_micro_batches / statistics_.select(0, kLabelWeight);
  statistics_.select(0, kLoss).mul_(factor);
  statistics_.select(0, kNorm).mul_(factor).mul_(factor);
  return factor;
}

// Without a loss scale, a non-finite value ends the run, on a device one step later; from the step with that value on,
// the parameters stay unchanged for the diagnosis.
const at::Tensor& StepVerdict::skip_after_nonfinite() {
  const at::Tensor is_nonfinite = at::isfinite(statistics_).all().logical_not().to(at::kFloat);
  nonfinite_ = nonfinite_.defined() ? at::maximum(nonfinite_, is_nonfinite) : is_nonfinite;
  return nonfinite_;
}

std::optional<StepResult> StepVerdict::publish(StepResult result) {
  const int64_t applied = loss_scaling_.known_applied_steps();
  if (options_.device.is_cpu()) return read({std::move(result), applied, statistics_, clock_.mark()});
  auto previous = finish();
  // Copies to pinned memory on the stream: the copy completes well before the next step reads it.
  at::Tensor host = pinned_if_possible(statistics_.sizes(), at::kFloat);
  host.copy_(statistics_, /*non_blocking=*/true);
  in_flight_.emplace(InFlight{std::move(result), applied, host, clock_.mark()});
  return previous;
}

std::optional<StepResult> StepVerdict::finish() {
  if (!in_flight_) return std::nullopt;
  world_.wait_until([this] { return is_reached(in_flight_->arrived); });
  StepResult result = read(std::move(*in_flight_));
  in_flight_.reset();
  return result;
}

StepResult StepVerdict::read(InFlight in_flight) {
  StepResult result = in_flight.result;
  result.step_ms = clock_.milliseconds_until(std::move(in_flight.arrived));
  const float* values = in_flight.statistics.const_data_ptr<float>();
  result.loss = values[kLoss];
  result.grad_norm = values[kNorm];
  result.stop_requested = values[kStop] > 0;
  if (loss_scaling_.is_on()) follow_loss_scale(result, values + kNumStatistics);
  // Without a loss scale every step is applied.
  const int64_t applied = loss_scaling_.is_on() ? loss_scaling_.known_applied_steps() : in_flight.applied_steps;
  result.num_skipped = result.step - applied - rates_.offset();
  result.next_lr = rates_.after(applied).lr;
  result.next_loss_scale = loss_scaling_.state().scale;
  return result;
}

void StepVerdict::follow_loss_scale(StepResult& result, const float* report) {
  result.lr = rates_.after(loss_scaling_.known_applied_steps()).lr * result.rate_scale;
  const auto change = loss_scaling_.follow(report);
  result.loss_scale = change.scale;
  result.overflow = change.overflow();
  result.overflow_line = describe(change);
  if (change.kind == precision::ScaleChange::Kind::kAtMinimum)
    result.diagnosis = explain_minimum(loss_scaling_.state(), result.step);
}

}  // namespace dslaunch::runtime::engine::step
