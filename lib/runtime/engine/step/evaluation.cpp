#include "runtime/engine/step/evaluation.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/device/random_state.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

constexpr int64_t kBatchesBetweenQuestions = 32;  // about a stop: an exchange that waits for the device

// Sets training state aside during its lifetime: mode, random numbers and buffers; all data ranks use the buffers of
// data rank 0.
class EvaluationMode {
 public:
  EvaluationMode(model::Model& model, comm::Communicator& data_group, at::Device device)
      : model_(model), device_(device), random_state_(device::save_random_state(device)) {
    for (const auto& [name, buffer] : model_.tensors.buffers()) own_buffers_.push_back(buffer.clone());
    if (data_group.size() > 1) broadcast_buffers(data_group);
    model_.runnable->train(false);
  }
  ~EvaluationMode() {
    try {
      model_.runnable->train(true);
      const auto buffers = model_.tensors.buffers();  // forward may have replaced the tensors
      for (size_t i = 0; i < buffers.size(); ++i) write_buffer(buffers[i].second, own_buffers_[i]);
      device::restore_random_state(random_state_, device_);
    } catch (const std::exception&) {  // the device has failed, and that error is already propagating
    }
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  void broadcast_buffers(comm::Communicator& data_group) {
    for (auto& [name, buffer] : model_.tensors.buffers()) {
      if (buffer.nbytes() == 0) continue;
      at::Tensor values = buffer.clone(at::MemoryFormat::Contiguous);
      data_group.broadcast({values.data_ptr(), values.nbytes(), comm::DType::kUInt8}, /*root=*/0);
      if (data_group.rank() != 0) write_buffer(buffer, values);
    }
  }

  model::Model& model_;
  const at::Device device_;
  const at::Tensor random_state_;
  std::vector<at::Tensor> own_buffers_;  // in the model's order
};

// A rank's contribution; summed in double and in rank order, so that every rank gets the same result.
struct Sums {
  double loss = 0, weight = 0;
  double label_loss = 0, num_labels = 0;
  int64_t num_samples = 0;
};

bool any_wants_to_stop(const EvaluationInputs& inputs, comm::Communicator& world, at::Device device) {
  const auto stop_requests = gather_values<uint8_t>(world, device, inputs.stop_requested() ? 1 : 0);
  return std::any_of(stop_requests.begin(), stop_requests.end(), [](uint8_t requested) { return requested != 0; });
}

}  // namespace

EvaluationResult evaluate(model::Model& model, const EvaluationInputs& inputs, const comm::Groups& groups,
                          at::Device device) {
  at::NoGradGuard no_grad;
  EvaluationMode mode(model, groups.data, device);
  Sums sums;
  bool stopped = false;
  at::Tensor loss_sum = at::zeros({}, at::TensorOptions().device(device).dtype(at::kDouble));
  at::Tensor label_loss_sum = at::zeros_like(loss_sum);
  for (int64_t seen = 0; auto next = inputs.next(); ++seen) {
    if (seen > 0 && seen % kBatchesBetweenQuestions == 0 && any_wants_to_stop(inputs, groups.world, device)) {
      stopped = true;
      break;
    }
    const at::Tensor loss = inputs.loss_of(next->batch).to(at::kDouble);
    if (next->num_samples == 0) continue;  // not 0 times the loss: a padding batch's loss may be anything
    const auto samples = static_cast<double>(next->num_samples), labels = static_cast<double>(next->batch.num_labels);
    loss_sum.add_(loss, inputs.sums_over_labels ? 1.0 : samples);
    if (labels > 0) label_loss_sum.add_(loss, inputs.sums_over_labels ? 1.0 : labels);
    sums.weight += inputs.sums_over_labels ? labels : samples;
    sums.num_labels += labels;
    sums.num_samples += next->num_samples;
  }
  sums.loss = loss_sum.item<double>();
  sums.label_loss = label_loss_sum.item<double>();
  if (!groups.contributes_loss()) sums = {};
  Sums total;
  for (const auto& rank : gather_values(groups.world, device, sums)) {
    total.loss += rank.loss;
    total.weight += rank.weight;
    total.label_loss += rank.label_loss;
    total.num_labels += rank.num_labels;
    total.num_samples += rank.num_samples;
  }
  const auto mean = [](double sum, double weight) {
    return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
  };
  return {.loss = mean(total.loss, total.weight),
          .label_loss = mean(total.label_loss, total.num_labels),
          .num_samples = total.num_samples,
          .stopped = stopped};
}

}  // namespace dslaunch::runtime::engine::step
