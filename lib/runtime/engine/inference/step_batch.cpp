#include "runtime/engine/inference/step_batch.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr int64_t kFirstPages = 16;  // of a text; more take another graph

int64_t rounded_up(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

at::TensorOptions on_host(at::Device device, at::ScalarType type) {
  return at::TensorOptions().dtype(type).pinned_memory(device.is_cuda());
}

template <class Number, class Of>
at::Tensor column(const std::vector<StepBatch::Row>& rows, int64_t num_rows, at::Device device, Number idle, Of of) {
  at::Tensor out = at::full({num_rows, 1}, idle, c10::CppTypeToScalarType<Number>::value);
  auto* value = out.mutable_data_ptr<Number>();
  for (size_t i = 0; i < rows.size(); ++i) value[i] = of(rows[i]);
  return out.to(device);
}

}  // namespace

// Host memory that a step reads and writes while the host prepares the next one.
struct StepBatch::Slot {
  at::Tensor tokens, uniform, page_table;
  std::optional<c10::Event> done;
};

StepBatch::StepBatch(model::CachedForward& forward, at::Device device, int64_t num_classes)
    : forward_(forward), device_(device), num_classes_(num_classes) {
  for (auto& slot : slots_) slot = std::make_unique<Slot>();
}

StepBatch::~StepBatch() {
  if (device_.is_cuda() && in_flight_ > 0) {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  }
}

void StepBatch::begin(std::vector<Row> rows) {
  DSL_CHECK(in_flight_ == 0, "a batch begins when no step is in flight");
  if (idle_text_ < 0) {
    idle_text_ = forward_.open({});
    forward_.extend({idle_text_});
  }
  rows_ = std::move(rows);
  const int64_t num_rows = rounded_up(std::ssize(rows_));
  const RowSampling sampling = sampling_of_rows(num_rows);
  const auto newest = column<int64_t>(rows_, num_rows, device_, 0, [](const Row& row) { return row.ids.back(); });
  const auto positions = column<int64_t>(rows_, num_rows, device_, 0, [](const Row& row) { return row.position; });
  if (num_rows == num_rows_ && sampling.has_steps_of(sampling_)) {  // a captured step reads what lies there
    state_.ids.copy_(newest.view({-1}));
    state_.positions.copy_(positions.view({-1}));
    sampling_.take(sampling);
    if (sampling_.seen.defined()) note_seen();
    return;
  }
  num_rows_ = num_rows;
  num_pages_ = 0;
  state_.ids = newest.view({-1});
  state_.positions = positions.view({-1});
  sampling_ = sampling;
  tokens_ = at::zeros_like(state_.ids);
  for (auto& slot : slots_) {
    slot->tokens = at::zeros({num_rows}, on_host(device_, at::kLong));
    slot->uniform = at::zeros({num_rows, 1}, on_host(device_, at::kDouble));
  }
  reserve_pages(kFirstPages);
}

RowSampling StepBatch::sampling_of_rows(int64_t num_rows) const {
  const auto of = [&](auto idle, auto member) { return column(rows_, num_rows, device_, idle, member); };
  RowSampling out;
  out.temperature = of(0.0, [](const Row& row) { return row.sampling.temperature; });
  out.top_p = of(1.0, [](const Row& row) { return row.sampling.top_p; });
  out.min_p = of(0.0, [](const Row& row) { return row.sampling.min_p; });
  out.top_k = of(int64_t{0}, [](const Row& row) { return row.sampling.top_k; });
  out.repetition_penalty = of(1.0, [](const Row& row) { return row.sampling.repetition_penalty; });
  out.uniform = at::zeros({num_rows, 1}, at::TensorOptions(device_).dtype(at::kDouble));
  for (const Row& row : rows_) {
    out.draws = out.draws || row.sampling.temperature > 0;
    out.limits = out.limits || row.sampling.top_k > 0 || row.sampling.top_p < 1 || row.sampling.min_p > 0;
    out.penalizes = out.penalizes || row.sampling.repetition_penalty != 1;
  }
  return out;
}

void StepBatch::note_seen() {
  const int64_t classes = sampling_.seen.size(1);
  const at::Tensor seen = at::zeros({num_rows_, classes}, at::kBool);
  auto* value = seen.mutable_data_ptr<bool>();
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (const int64_t id : rows_[i].ids) {
      if (id < classes) value[static_cast<int64_t>(i) * classes + id] = true;
    }
  }
  sampling_.seen.copy_(seen);
}

void StepBatch::reserve_pages(int64_t pages) {
  if (pages <= num_pages_) return;
  num_pages_ = rounded_up(pages);
  state_.page_table = at::zeros({num_rows_, num_pages_}, at::TensorOptions(device_).dtype(at::kInt));
  for (auto& slot : slots_) slot->page_table = at::zeros({num_rows_, num_pages_}, on_host(device_, at::kInt));
  layout_ = -1;
}

void StepBatch::enqueue(const std::vector<double>& uniform) {
  std::vector<int> texts;
  for (const Row& row : rows_) texts.push_back(row.text);
  reserve_pages(forward_.extend(texts));
  Slot& slot = *slots_[(first_ + in_flight_) % slots_.size()];
  texts.resize(static_cast<size_t>(num_rows_), idle_text_);
  for (int64_t row = 0; row < num_rows_; ++row) {
    forward_.write_pages(texts[static_cast<size_t>(row)], slot.page_table[row]);
  }
  state_.page_table.copy_(slot.page_table, /*non_blocking=*/true);
  if (sampling_.draws) {
    std::copy(uniform.begin(), uniform.end(), slot.uniform.mutable_data_ptr<double>());
    sampling_.uniform.copy_(slot.uniform, /*non_blocking=*/true);
  }
  run();
  slot.tokens.copy_(tokens_, /*non_blocking=*/true);
  if (device_.is_cuda()) {
    if (!slot.done) slot.done.emplace(device_.type());
    slot.done->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  in_flight_ += 1;
}

// The first step after a change runs launch by launch, which also compiles its kernels; the next one is captured.
void StepBatch::run() {
  const at::NoGradGuard no_grad;
  if (const int64_t layout = forward_.layout(); layout != layout_) {
    layout_ = layout;
    graph_.reset();
    return work();
  }
  if (!device_.is_cuda() || !may_capture_) return work();
  if (graph_ == nullptr) {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    auto graph = step::make_device_graph(device_);
    try {
      graph->capture([this] { work(); });
      graph_ = std::move(graph);
    } catch (const std::exception& error) {
      may_capture_ = false;
      std::string cause = error.what();
      if (const size_t end = cause.find('\n'); end != cause.npos) cause.resize(end);
      log::info("steps are launched kernel by kernel, not as a CUDA graph: {}", cause);
      return work();
    }
  }
  graph_->replay();
}

void StepBatch::work() {
  at::Tensor logits = forward_.step(state_);
  if (sampling_.draws || sampling_.penalizes) logits = logits.to(at::kFloat);  // the largest is the same without
  if (num_classes_ > 0 && num_classes_ < logits.size(1)) logits = logits.narrow(1, 0, num_classes_);
  if (sampling_.penalizes && !sampling_.seen.defined()) {
    sampling_.seen = at::zeros(logits.sizes(), logits.options().dtype(at::kBool));
    note_seen();
  }
  tokens_.copy_(choose_tokens(logits, sampling_));
  at::clamp_min_out(state_.ids, tokens_, 0);
  state_.positions.add_(1);
  if (sampling_.penalizes) sampling_.seen.scatter_(1, state_.ids.unsqueeze(1), true);
}

std::vector<int64_t> StepBatch::take() {
  DSL_CHECK(in_flight_ > 0, "a step is in flight");
  const Slot& slot = *slots_[first_];
  if (slot.done && !forward_.wait_until([&] { return slot.done->query(); })) slot.done->synchronize();
  first_ = (first_ + 1) % slots_.size();
  in_flight_ -= 1;
  const auto* token = slot.tokens.const_data_ptr<int64_t>();
  std::vector<int64_t> out(token, token + rows_.size());
  for (const int64_t one : out) require_finite_choice(one);
  return out;
}

}  // namespace dslaunch::runtime::engine::inference
