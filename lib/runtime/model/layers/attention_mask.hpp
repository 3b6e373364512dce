// Attention masks that depend on a model's inputs (padding), in forms for which PyTorch has fused kernels and which
// take little memory. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/model/constants/known_masks.hpp"

namespace dslaunch::runtime::model::layers {

// one & other. If both are boolean and one of them is a known mask that allows everything, the other one, expanded: the
// result must not be written to.
at::Tensor combine_masks(const at::Tensor& one, const at::Tensor& other, constants::KnownMasks& masks);

// Dims along which all entries are one get size 1, as broadcasting takes them again: kernels convert and keep a mask of
// [batch, 1, 1, keys] instead of one of [batch, 1, queries, keys].
at::Tensor without_repetitions(const at::Tensor& mask);

// An additive mask in another floating-point type. Finite numbers stay finite: where a mask forbids everything by the
// smallest number of its own type, softmax must not see -inf alone.
at::Tensor in_type(const at::Tensor& mask, at::ScalarType type);

// For CUDA: in the query's type, with neighbouring keys next to each other. PyTorch's fused kernels take no other mask,
// and cuDNN reads one of another type as if it were of the query's.
at::Tensor fit_mask(const at::Tensor& mask, at::ScalarType query_type);

// A boolean mask as numbers of the type that are added to scores: 0 where it is true, else `forbidden`.
at::Tensor as_numbers(const at::Tensor& mask, at::ScalarType type, double forbidden);

// Converted masks of the latest calls: the layers of a model attend with one mask, which is converted for the first one
// and kept by backward once. Any thread.
class ConvertedMasks {
 public:
  // `convert(mask)`, or what it returned for the same values. `kind` distinguishes conversions; those of boolean masks
  // and of others differ too.
  at::Tensor get(const at::Tensor& mask, int64_t kind, const std::function<at::Tensor(const at::Tensor&)>& convert);

 private:
  static constexpr size_t kMaxKept = 4;  // a model with encoder and decoder has three
  struct Kept {
    c10::weak_intrusive_ptr<c10::StorageImpl> source;
    uint32_t version = 0;
    int64_t offset = 0, kind = 0;
    std::vector<int64_t> sizes, strides;
    bool is_captured = false;  // as part of a CUDA graph, which does not run when it is captured
    at::Tensor converted;
  };
  static bool is_of(const Kept& kept, const at::Tensor& mask, int64_t kind);

  std::mutex mutex_;
  std::deque<Kept> kept_;  // guarded by mutex_; the latest first
};

}  // namespace dslaunch::runtime::model::layers
