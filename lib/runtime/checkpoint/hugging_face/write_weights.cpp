#include "runtime/checkpoint/hugging_face/write_weights.hpp"

#include <ATen/Functions.h>

#include <map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::hugging_face {
namespace {

using Take = WeightStream::Take;

int64_t begin_of(const OutputTensor& tensor) {
  return tensor.piece.is_whole ? 0 : tensor.piece.begin();
}

int64_t end_of(const OutputTensor& tensor) {
  return tensor.piece.is_whole ? tensor.source->numel() : tensor.piece.end();
}

at::Tensor read_whole(WeightStream& weights, const SavedTensor& tensor) {
  at::Tensor out = at::empty({tensor.numel()}, at::kFloat);
  int64_t begin = 0;
  weights.read(tensor, at::kFloat, 0, tensor.numel(), [&](const at::Tensor& part) {
    out.narrow(0, begin, part.numel()).copy_(part);
    begin += part.numel();
  });
  return out.view(tensor.shape);
}

// W + scaling · B A in fp32, part by part: of a part only the rows that it touches are computed.
void read_merged(WeightStream& weights, const OutputTensor& tensor, at::ScalarType dtype, const Take& take) {
  const auto& pair = *tensor.merged;
  const at::Tensor a = read_whole(weights, *pair.a), b = read_whole(weights, *pair.b);
  const at::Tensor left = pair.transposed ? a.t() : b, right = pair.transposed ? b.t() : a;
  const int64_t columns = right.size(1);
  int64_t begin = begin_of(tensor);
  weights.read(*tensor.source, at::kFloat, begin, end_of(tensor), [&](const at::Tensor& part) {
    if (part.numel() == 0) return take(part.to(dtype));
    const int64_t end = begin + part.numel(), first_row = begin / columns, last_row = (end - 1) / columns;
    const at::Tensor rows = at::matmul(left.narrow(0, first_row, last_row - first_row + 1), right).flatten();
    const at::Tensor delta = rows.narrow(0, begin - first_row * columns, part.numel());
    take(at::add(part, delta, pair.scaling).to(dtype));
    begin = end;
  });
}

void read_tensor(WeightStream& weights, const OutputTensor& tensor, const Take& take) {
  const auto dtype = weights.dtype_of(*tensor.source);
  if (tensor.merged) return read_merged(weights, tensor, dtype, take);
  weights.read(*tensor.source, dtype, begin_of(tensor), end_of(tensor), take);
}

// The elements of a piece that are not back to back in the model's tensor: all that lie between are read, too.
at::Tensor rearranged(WeightStream& weights, const OutputTensor& tensor) {
  const auto dtype = weights.dtype_of(*tensor.source);
  const int64_t span = end_of(tensor) - begin_of(tensor);
  const auto bytes = static_cast<uint64_t>(span + tensor.piece.numel()) * c10::elementSize(dtype);
  if (bytes > weights.max_memory_bytes()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("'{}' needs {} MB of memory to be rearranged for Hugging Face's files: raise --max_memory",
                    tensor.name, bytes / 1'000'000 + 1));
  }
  at::Tensor all = at::empty({span}, dtype);
  int64_t at = 0;
  read_tensor(weights, tensor, [&](const at::Tensor& part) {
    all.narrow(0, at, part.numel()).copy_(part);
    at += part.numel();
  });
  return all.as_strided(tensor.piece.shape, tensor.piece.strides).contiguous();
}

}  // namespace

uint64_t bytes_of(const WeightStream& weights, const OutputTensor& tensor) {
  const int64_t numel = tensor.piece.is_whole ? tensor.source->numel() : tensor.piece.numel();
  return static_cast<uint64_t>(numel) * c10::elementSize(weights.dtype_of(*tensor.source));
}

void write_weights(WeightStream& weights, std::span<const OutputTensor> tensors, const std::string& path) {
  std::vector<TensorDescription> descriptions;
  std::map<std::string, const OutputTensor*> by_name;
  for (const auto& tensor : tensors) {
    descriptions.push_back({tensor.name, weights.dtype_of(*tensor.source), tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  SafetensorsWriter writer(path, std::move(descriptions), {{"format", "pt"}});
  for (const auto& description : writer.order()) {
    const auto& tensor = *by_name.at(description.name);
    if (tensor.piece.is_whole || tensor.piece.is_contiguous()) {
      read_tensor(weights, tensor, [&](const at::Tensor& part) { writer.write_part(part); });
    } else {
      writer.write(rearranged(weights, tensor));
    }
  }
  writer.finish(/*sync=*/true);
}

}  // namespace dslaunch::runtime::hugging_face
