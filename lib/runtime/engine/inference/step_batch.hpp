// Texts that are written on the device, a token of each in a step: the model reads the newest tokens, and the next ones
// are chosen there. On a GPU a step is captured as a CUDA graph, and the host enqueues a step before it knows the
// tokens of the one before. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/engine/inference/sampler.hpp"
#include "runtime/engine/step/device_graph.hpp"
#include "runtime/model/interface/cached_forward.hpp"

namespace dslaunch::runtime::engine::inference {

class StepBatch {
 public:
  struct Row {
    int text = 0;              // of the forward
    int64_t position = 0;      // of the newest token, which has not been read
    std::vector<int64_t> ids;  // the whole text, with the newest token
    Sampling sampling;
  };

  // `forward` can step. `num_classes`: only tokens below it are chosen; 0: all.
  StepBatch(model::CachedForward& forward, at::Device device, int64_t num_classes);
  ~StepBatch();

  // No step is in flight.
  void begin(std::vector<Row> rows);
  // Enqueues a step. `uniform`: of each row, in [0, 1), for its draw. At most two steps are in flight. Throws as
  // CachedForward::extend(), with nothing done.
  void enqueue(const std::vector<double>& uniform);
  size_t in_flight() const { return in_flight_; }
  bool is_captured() const { return graph_ != nullptr; }
  // Waits for the oldest step in flight: the token of each row. Throws UserError(65) for logits that are not finite.
  std::vector<int64_t> take();

 private:
  struct Slot;  // of a step in flight

  RowSampling sampling_of_rows(int64_t num_rows) const;
  void note_seen();
  void reserve_pages(int64_t pages);
  void run();
  void work();

  model::CachedForward& forward_;
  const at::Device device_;
  const int64_t num_classes_;
  std::vector<Row> rows_;
  int idle_text_ = -1;  // what rows without a text read and write
  int64_t num_rows_ = 0, num_pages_ = 0;
  model::CachedForward::Step state_;  // of num_rows_
  at::Tensor tokens_;                 // the newest ones
  RowSampling sampling_;
  std::array<std::unique_ptr<Slot>, 2> slots_;
  size_t first_ = 0, in_flight_ = 0;
  int64_t layout_ = -1;  // of the forward, in the newest step; -1: another step has to run first
  bool may_capture_ = true;
  std::unique_ptr<step::DeviceGraph> graph_;  // null: not captured yet
};

}  // namespace dslaunch::runtime::engine::inference
