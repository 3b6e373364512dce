#include "runtime/model/interface/carried_values.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"

namespace dslaunch::runtime::model {
namespace {

class MessageReader {
 public:
  explicit MessageReader(const std::vector<int64_t>& message) : message_(message) {}

  int64_t number() {
    DSL_CHECK(next_ < message_.size(), "a layout of carried values ends early");
    return message_[next_++];
  }
  std::vector<int64_t> numbers(int64_t count) {
    DSL_CHECK(count >= 0 && static_cast<size_t>(count) <= message_.size() - next_,
              "a layout of carried values ends early");
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(number());
    return out;
  }
  void end() const { DSL_CHECK(next_ == message_.size(), "a layout of carried values is too long"); }

 private:
  const std::vector<int64_t>& message_;
  size_t next_ = 0;
};

void append(std::vector<int64_t>& message, const std::vector<int64_t>& numbers) {
  message.insert(message.end(), numbers.begin(), numbers.end());
}

}  // namespace

at::Tensor in_layout_order(const at::Tensor& value) {
  return value.is_non_overlapping_and_dense() ? value : value.contiguous();
}

CarriedLayout layout_of(const CarriedValues& values) {
  CarriedLayout out;
  for (const auto& tensor : values.tensors) {
    const auto strides =
        tensor.is_non_overlapping_and_dense()
            ? tensor.strides().vec()
            : at::empty_like(tensor.detach(), tensor.options().device(at::kMeta), at::MemoryFormat::Contiguous)
                  .strides()
                  .vec();
    out.tensors.push_back({tensor.scalar_type(), tensor.sizes().vec(), strides, tensor.requires_grad()});
  }
  out.numbers = values.numbers;
  return out;
}

std::vector<int64_t> encode(const CarriedLayout& layout) {
  std::vector<int64_t> out{static_cast<int64_t>(layout.tensors.size()), static_cast<int64_t>(layout.numbers.size())};
  for (const auto& tensor : layout.tensors) {
    append(out, {static_cast<int64_t>(tensor.dtype), tensor.requires_grad ? 1 : 0,
                 static_cast<int64_t>(tensor.sizes.size())});
    append(out, tensor.sizes);
    append(out, tensor.strides);
  }
  append(out, layout.numbers);
  return out;
}

CarriedLayout decode(const std::vector<int64_t>& message) {
  MessageReader reader(message);
  CarriedLayout out;
  const int64_t num_tensors = reader.number(), num_numbers = reader.number();
  for (int64_t i = 0; i < num_tensors; ++i) {
    CarriedLayout::OfTensor tensor;
    tensor.dtype = static_cast<at::ScalarType>(reader.number());
    tensor.requires_grad = reader.number() != 0;
    const int64_t num_dims = reader.number();
    tensor.sizes = reader.numbers(num_dims);
    tensor.strides = reader.numbers(num_dims);
    out.tensors.push_back(std::move(tensor));
  }
  out.numbers = reader.numbers(num_numbers);
  reader.end();
  return out;
}

CarriedValues allocate(const CarriedLayout& layout, at::Device device) {
  CarriedValues out;
  for (const auto& tensor : layout.tensors) {
    out.tensors.push_back(
        at::empty_strided(tensor.sizes, tensor.strides, at::TensorOptions().dtype(tensor.dtype).device(device))
            .set_requires_grad(tensor.requires_grad));
  }
  out.numbers = layout.numbers;
  return out;
}

}  // namespace dslaunch::runtime::model
