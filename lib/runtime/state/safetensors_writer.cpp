#include "runtime/state/safetensors_writer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

uint64_t count_in(const TensorDescription& tensor) {
  const auto numel = numel_of(tensor.shape);
  DSL_CHECK(numel && num_bytes_of(tensor.shape, tensor.dtype),
            fmt::format("tensor '{}' has an impossible shape", tensor.name));
  return static_cast<uint64_t>(*numel);
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorDescription> tensors,
                                     const std::map<std::string, std::string>& metadata, Observer observer)
    : tensors_(std::move(tensors)), observer_(std::move(observer)), file_(path) {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const auto& a, const auto& b) { return c10::elementSize(a.dtype) > c10::elementSize(b.dtype); });
  std::set<std::string> names;
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
  uint64_t offset = 0;
  for (const auto& tensor : tensors_) {
    const char* dtype = safetensors_dtype_name(tensor.dtype);
    DSL_CHECK(dtype != nullptr, fmt::format("safetensors has no name for the dtype of '{}'", tensor.name));
    DSL_CHECK(names.insert(tensor.name).second, fmt::format("tensor '{}' is given twice", tensor.name));
    const uint64_t bytes = count_in(tensor) * c10::elementSize(tensor.dtype);
    if (text.size() > 1) text += ',';
    text += Json(tensor.name).dump() + ':' +
            Json{{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}}.dump();
    offset += bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  file_.expect(sizeof length + length + offset);
  put(&length, sizeof length);
  put(text.data(), text.size());
}

void SafetensorsWriter::write(const at::Tensor& values) {
  DSL_CHECK(next_ < tensors_.size(), "more tensors than the header lists");
  DSL_CHECK(part_numel_ == 0 && static_cast<uint64_t>(values.numel()) == count_in(tensors_[next_]),
            fmt::format("'{}' does not match its header", tensors_[next_].name));
  write_part(values);
}

void SafetensorsWriter::write_part(const at::Tensor& values) {
  DSL_CHECK(next_ < tensors_.size(), "more tensors than the header lists");
  const auto& expected = tensors_[next_];
  part_numel_ += static_cast<uint64_t>(values.numel());
  DSL_CHECK(values.scalar_type() == expected.dtype && values.is_contiguous() && values.device().is_cpu() &&
                part_numel_ <= count_in(expected),
            fmt::format("'{}' does not match its header", expected.name));
  if (values.numel() > 0) put(values.const_data_ptr(), values.nbytes());
  if (part_numel_ < count_in(expected)) return;
  ++next_;
  part_numel_ = 0;
}

void SafetensorsWriter::finish(bool sync) {
  DSL_CHECK(next_ == tensors_.size(), "fewer tensors than the header lists");
  file_.finish(sync);
}

void SafetensorsWriter::put(const void* data, size_t size) {
  file_.write(data, size);
  if (observer_) observer_(data, size);
  bytes_written_ += size;
}

}  // namespace dslaunch::runtime
