// What a stage of a pipeline passes to the next one for one micro batch. Plain data; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime::model {

struct CarriedValues {
  std::vector<at::Tensor> tensors;  // of any dtype; those that require a gradient get one in backward
  // Numbers that the model's code computes on the host, most often sizes: ints, booleans (0, 1), the bits of doubles.
  std::vector<int64_t> numbers;
};

// All that a receiver must know about carried values before their bytes arrive, and the numbers themselves.
struct CarriedLayout {
  struct OfTensor {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes;
    // As the sender holds it where its elements fill one piece of memory, else as a contiguous copy has it: operators
    // choose their algorithms by strides too.
    std::vector<int64_t> strides;
    bool requires_grad = false;
    bool operator==(const OfTensor&) const = default;
  };
  std::vector<OfTensor> tensors;
  std::vector<int64_t> numbers;
  bool operator==(const CarriedLayout&) const = default;
};

CarriedLayout layout_of(const CarriedValues& values);

// As a message. decode() throws InternalError for a message that encode() did not make.
std::vector<int64_t> encode(const CarriedLayout& layout);
CarriedLayout decode(const std::vector<int64_t>& message);

// Uninitialised tensors to receive into, leaves that require a gradient where the sender's tensor does; the numbers.
CarriedValues allocate(const CarriedLayout& layout, at::Device device);

// The tensor's elements in the memory order of its layout, to send: itself, or a contiguous copy.
at::Tensor in_layout_order(const at::Tensor& value);

}  // namespace dslaunch::runtime::model
