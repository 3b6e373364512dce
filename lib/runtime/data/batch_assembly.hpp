// From sample indices to host tensors: copies rows, casts floating point to the compute type, checks integers against
// their limits. Immutable; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/array_limit.hpp"
#include "runtime/data/array_selection.hpp"
#include "runtime/data/pictures.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

// The default ignore_index of torch, and of the losses that the config names.
inline constexpr int64_t kIgnoredLabel = -100;

// Pictures that are transformed where the batch is computed with.
struct PictureWork {
  size_t input = 0;  // of Batch::inputs
  std::shared_ptr<const PictureTransform> transform;
  at::Tensor views;
};

struct Batch {
  std::vector<at::Tensor> inputs, labels;  // host tensors, samples first
  std::vector<PictureWork> pictures;       // what is left to do with inputs
  int64_t num_samples = 0;  // those that count; 0 for padding (see EvaluationPlanner), whose tensors hold one sample
  int64_t num_labels = 0;   // elements of the labels that a loss averages over; 0 for padding
  int64_t num_tokens = 0;   // elements of the first integer input with two or more dims; 0 when there is none
  DataPosition first;       // of the first sample
  DataPosition after;       // the run's position when the global batch of this micro batch is done
};

struct AssemblyOptions {
  at::ScalarType compute_dtype = at::kFloat;                  // of floating-point inputs
  at::ScalarType label_dtype = at::kFloat;                    // and labels
  bool pin = false;                                           // page-locked memory (needs CUDA)
  bool has_ignored_labels = true;                             // the loss ignores labels that are kIgnoredLabel
  bool ignores_first_label = false;                           // of each sample: the model shifts its labels
  std::map<std::string, std::vector<ArrayLimit>> limits;      // by array
  std::set<std::string> indices;                              // arrays whose integers become int64
  std::map<std::string, std::vector<int64_t>> sequence_dims;  // by array: dims of a sample that a shorter length cuts
  PictureTransforms pictures;                                 // of inputs
};

class BatchAssembler {
 public:
  BatchAssembler(std::shared_ptr<const SampleSource> source, ArraySelection selection, AssemblyOptions options);
  // Throws UserError(65) naming array, sample, value and bound for an integer that is out of range.
  Batch assemble(const MicroBatchPlan& plan) const;

 private:
  std::vector<PictureWork> plan_pictures(const MicroBatchPlan& plan) const;
  at::Tensor read(size_t array, const MicroBatchPlan& plan, at::ScalarType float_dtype) const;
  at::Tensor cut(size_t array, int64_t length, at::Tensor values) const;
  at::Tensor gather(size_t array, const std::vector<int64_t>& samples, at::ScalarType float_dtype) const;
  void read_rows(size_t array, const std::vector<int64_t>& samples, at::Tensor& values) const;
  void check(size_t array, const std::vector<int64_t>& samples, const at::Tensor& values) const;

  const std::shared_ptr<const SampleSource> source_;
  const ArraySelection selection_;
  const AssemblyOptions options_;
};

}  // namespace dslaunch::runtime
