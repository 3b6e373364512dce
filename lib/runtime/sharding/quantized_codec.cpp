#include "runtime/sharding/quantized_codec.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "kernels/block_code_rules.h"
#include "runtime/device/device_module.hpp"
#include "runtime/sharding/codec_functions.hpp"
#include "runtime/state/parallel_ranges.hpp"

namespace dslaunch::runtime {
namespace {

using Rule = kernels::BlockCodeRule;

constexpr int64_t kScaleBytes = sizeof(float);
constexpr int64_t kBlocksForAThread = 128;

int64_t num_blocks(int64_t numel, WireFormat format) {
  return (numel + format.block - 1) / format.block;
}

int64_t code_bytes(WireFormat format) {
  return format.block * format.bits / 8;  // of one block
}

void check(const at::Tensor& values, WireFormat format, const at::Tensor& wire) {
  DSL_CHECK(format.bits == 8 || format.bits == 4, "a code has 8 or 4 bits");
  DSL_CHECK(format.block == 64 || format.block == 256, "a block has 64 or 256 elements");
  DSL_CHECK(values.dim() == 1 && values.is_contiguous() && at::isFloatingType(values.scalar_type()),
            "a flat tensor of floating point is needed");
  DSL_CHECK(
      wire.scalar_type() == at::kByte && wire.is_contiguous() && wire.numel() == wire_bytes(values.numel(), format),
      "the wire does not fit the values");
}

// The types that the kernels and the host loops support directly; others are converted to fp32 first.
bool is_direct(const at::Tensor& values) {
  const auto type = values.scalar_type();
  return type == at::kFloat || (values.is_cuda() && (type == at::kBFloat16 || type == at::kHalf));
}

// The wire format in host memory.
struct HostWire {
  HostWire(const at::Tensor& wire, int64_t numel, WireFormat wire_format)
      : format(wire_format),
        scales(static_cast<float*>(wire.mutable_data_ptr())),
        codes(static_cast<uint8_t*>(wire.mutable_data_ptr()) + num_blocks(numel, wire_format) * kScaleBytes) {}

  // Sets the code of element `i` of a block.
  void set_code(int64_t block, int64_t i, int code) const {
    uint8_t* bytes = codes + block * code_bytes(format);
    if (format.bits == 8) {
      bytes[i] = static_cast<uint8_t>(code);
    } else {
      const auto half = static_cast<uint8_t>(code + 8);  // the first of each pair goes into the low half
      bytes[i / 2] = i % 2 == 0 ? half : static_cast<uint8_t>(bytes[i / 2] | (half << 4));
    }
  }
  int code(int64_t block, int64_t i) const {
    const uint8_t* bytes = codes + block * code_bytes(format);
    if (format.bits == 8) return static_cast<int8_t>(bytes[i]);
    return (bytes[i / 2] >> (i % 2 * 4) & 15) - 8;
  }

  const WireFormat format;
  float* const scales;
  uint8_t* const codes;
};

// Elements [begin, begin + count) are the block; it is padded with zeros.
void quantize_block(const float* values, int64_t count, float* error, float beta, const HostWire& wire, int64_t block) {
  float wanted[256] = {};
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    wanted[i] = error != nullptr ? values[i] + error[i] : values[i];
    largest = std::max(largest, Rule::magnitude(wanted[i]));
  }
  const int largest_code = wire.format.largest_code();
  const float scale = Rule::scale(largest, largest_code), inverse = Rule::inverse(scale);
  wire.scales[block] = scale;
  for (int64_t i = 0; i < wire.format.block; ++i) {
    const int code = Rule::code(wanted[i], inverse, largest_code);
    wire.set_code(block, i, code);
    if (error != nullptr && i < count)
      error[i] = Rule::next_error(error[i], wanted[i] - Rule::value(code, scale), beta);
  }
}

void quantize_on_host(const at::Tensor& values, const HostWire& wire, const Feedback* feedback) {
  const int64_t numel = values.numel(), size = wire.format.block;
  const auto* from = values.const_data_ptr<float>();
  auto* error = feedback != nullptr ? feedback->error.mutable_data_ptr<float>() : nullptr;
  const auto beta = feedback != nullptr ? static_cast<float>(feedback->beta) : 0.0F;
  parallel_ranges(num_blocks(numel, wire.format), kBlocksForAThread, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * size;
      quantize_block(from + first, std::min(size, numel - first), error != nullptr ? error + first : nullptr, beta,
                     wire, block);
    }
  });
}

void dequantize_on_host(const HostWire& wire, const at::Tensor& out, bool add) {
  const int64_t numel = out.numel(), size = wire.format.block;
  auto* to = out.mutable_data_ptr<float>();
  parallel_ranges(num_blocks(numel, wire.format), kBlocksForAThread, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* const values = to + block * size;
      for (int64_t i = 0; i < std::min(size, numel - block * size); ++i) {
        const float value = Rule::value(wire.code(block, i), wire.scales[block]);
        values[i] = add ? values[i] + value : value;
      }
    }
  });
}

}  // namespace

int64_t wire_bytes(int64_t numel, WireFormat format) {
  return num_blocks(numel, format) * (kScaleBytes + code_bytes(format));
}

void quantize(const at::Tensor& values, WireFormat format, const at::Tensor& wire, const Feedback* feedback) {
  check(values, format, wire);
  DSL_CHECK(feedback == nullptr || feedback->error.numel() == values.numel(), "an error for each value is needed");
  if (!is_direct(values)) return quantize(values.detach().to(at::kFloat), format, wire, feedback);
  if (values.is_cuda()) return device::module().codec.quantize(values, format, wire, feedback);
  quantize_on_host(values, HostWire(wire, values.numel(), format), feedback);
}

at::Tensor quantize(const at::Tensor& values, WireFormat format) {
  at::Tensor wire = at::empty({wire_bytes(values.numel(), format)}, values.options().dtype(at::kByte));
  quantize(values, format, wire);
  return wire;
}

void dequantize(const at::Tensor& wire, WireFormat format, const at::Tensor& out) {
  check(out, format, wire);
  if (!is_direct(out)) {
    const at::Tensor values = at::empty_like(out, at::kFloat);
    dequantize(wire, format, values);
    out.copy_(values);
  } else if (out.is_cuda()) {
    device::module().codec.dequantize(wire, format, out, /*add=*/false);
  } else {
    dequantize_on_host(HostWire(wire, out.numel(), format), out, /*add=*/false);
  }
}

void add_dequantized(const at::Tensor& wire, WireFormat format, const at::Tensor& sum) {
  check(sum, format, wire);
  DSL_CHECK(sum.scalar_type() == at::kFloat, "sums are made in fp32");
  if (sum.is_cuda()) return device::module().codec.dequantize(wire, format, sum, /*add=*/true);
  dequantize_on_host(HostWire(wire, sum.numel(), format), sum, /*add=*/true);
}

Feedback ErrorFeedback::next(const at::Tensor& values) {
  if (!error_.defined()) error_ = at::zeros(values.sizes(), values.options().dtype(at::kFloat));
  DSL_CHECK(error_.numel() == values.numel(), "error feedback belongs to tensors of one size");
  if (num_uses_++ % reset_interval_ == 0) error_.zero_();
  return {error_, beta_};
}

}  // namespace dslaunch::runtime
