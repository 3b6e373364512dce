// What the attention masks among a model's kept constants say. A mask is compared with a causal one by value, once for
// each shape; afterwards attention knows it by its memory. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace dslaunch::runtime::model::constants {

enum class MaskKind : uint8_t {
  kOther,
  kCausal,  // position i attends to positions up to i; as many queries as keys
  kFull,    // every position attends to all
};

// Of a mask in the forms that scaled_dot_product_attention takes: boolean, true where attention is allowed, or added to
// the scores, 0 where it is allowed and -inf or the smallest number of its dtype elsewhere. Reads the values, so it
// waits for the device.
MaskKind classify_mask(const at::Tensor& mask);

class KnownMasks {
 public:
  // `constant` keeps its values as long as its version counter stays the same.
  void add(const at::Tensor& constant);
  // kOther for a tensor that does not lie in the memory of a constant, or that was written to. `may_wait`: whether the
  // values of a mask that is seen for the first time may be read.
  MaskKind kind_of(const at::Tensor& mask, bool may_wait);

 private:
  struct View {
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
    MaskKind kind = MaskKind::kOther;
  };
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint32_t version = 0;
    std::vector<View> views;
  };
  Known* find(const at::Tensor& mask);

  std::mutex mutex_;
  std::map<const c10::StorageImpl*, Known> known_;  // guarded by mutex_
};

}  // namespace dslaunch::runtime::model::constants
