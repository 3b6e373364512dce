#include "runtime/sharding/quantized_wire.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

int64_t num_blocks(int64_t numel, WireFormat format) {
  return (numel + format.block - 1) / format.block;
}

int64_t code_bytes(WireFormat format) {
  return format.block * format.bits / 8;  // of one block
}

void check(const at::Tensor& values, WireFormat format) {
  DSL_CHECK(format.bits == 8 || format.bits == 4, "a code has 8 or 4 bits");
  DSL_CHECK(format.block > 0 && format.block % 2 == 0, "a block has an even number of elements");
  DSL_CHECK(values.dim() == 1 && at::isFloatingType(values.scalar_type()), "a flat tensor of floating point is needed");
}

// [blocks, block], fp32, zeros after the end.
at::Tensor as_blocks(const at::Tensor& values, WireFormat format) {
  const int64_t blocks = num_blocks(values.numel(), format);
  at::Tensor padded = values.detach().to(at::kFloat);
  const int64_t missing = blocks * format.block - values.numel();
  if (missing > 0) padded = at::constant_pad_nd(padded, {0, missing});
  return padded.view({blocks, format.block});
}

// Two codes a byte, the first one in the low half; 8 is added so that they are not negative.
at::Tensor pack4(const at::Tensor& codes) {
  const at::Tensor shifted = (codes + 8).to(at::kByte).view({codes.size(0), -1, 2});
  return shifted.select(2, 0).bitwise_or(shifted.select(2, 1).bitwise_left_shift(4));
}

at::Tensor unpack4(const at::Tensor& bytes) {
  const at::Tensor low = bytes.bitwise_and(15), high = bytes.bitwise_right_shift(4);
  return (at::stack({low, high}, 2).to(at::kFloat) - 8).flatten(1);
}

struct Quantized {
  at::Tensor scales;  // [blocks, 1]
  at::Tensor codes;   // [blocks, block], fp32 whole numbers
};

Quantized to_codes(const at::Tensor& blocks, WireFormat format) {
  const auto largest = static_cast<double>(format.largest_code());
  Quantized out;
  out.scales = blocks.abs().amax({1}, /*keepdim=*/true) / largest;
  // A block of zeros has the scale 0, and so has one whose values are too small to have another.
  const at::Tensor divisor = at::where(out.scales > 0, out.scales, at::ones_like(out.scales));
  // NaN, from a block that is not finite, becomes a code as well: its scale brings it back.
  out.codes = (blocks / divisor).round_().nan_to_num_(1.0, largest, -largest).clamp_(-largest, largest);
  return out;
}

at::Tensor to_wire(const Quantized& quantized, WireFormat format) {
  const at::Tensor scales = quantized.scales.contiguous().view(at::kByte).flatten();
  const at::Tensor codes = format.bits == 8 ? quantized.codes.to(at::kChar).view(at::kByte) : pack4(quantized.codes);
  return at::cat({scales, codes.flatten()});
}

// The product in fp32, rounded to the type of `out`; of 8-bit codes in one pass over the device's memory.
void multiply(const at::Tensor& codes, const at::Tensor& scales, at::Tensor out) {
  if (out.numel() > 0) at::mul_out(out, codes, scales);
}

// Row p of `outgoing` goes to rank p; row p of `incoming` comes from there. The lower rank of a pair speaks first.
void exchange_rows(comm::Communicator& group, const at::Tensor& outgoing, const at::Tensor& incoming) {
  for (int peer : meeting_order(group.rank(), group.size())) {
    if (peer < 0) continue;
    const comm::Buffer out = buffer_of(outgoing.select(0, peer)), in = buffer_of(incoming.select(0, peer));
    if (group.rank() < peer) group.send(out, peer);
    group.receive(in, peer);
    if (group.rank() > peer) group.send(out, peer);
  }
}

}  // namespace

int64_t wire_bytes(int64_t numel, WireFormat format) {
  return num_blocks(numel, format) * (kScaleBytes + code_bytes(format));
}

at::Tensor quantize(const at::Tensor& values, WireFormat format) {
  check(values, format);
  return to_wire(to_codes(as_blocks(values, format), format), format);
}

void dequantize(const at::Tensor& wire, WireFormat format, at::Tensor out) {
  check(out, format);
  DSL_CHECK(wire.scalar_type() == at::kByte && wire.numel() == wire_bytes(out.numel(), format),
            "the wire does not fit the output");
  const int64_t blocks = num_blocks(out.numel(), format), whole_blocks = out.numel() / format.block;
  const int64_t rest = out.numel() - whole_blocks * format.block;
  // Scales are copied: a wire inside a larger buffer need not start where a float may.
  const at::Tensor scales = wire.narrow(0, 0, blocks * kScaleBytes).clone().view(at::kFloat).view({blocks, 1});
  const at::Tensor bytes = wire.narrow(0, blocks * kScaleBytes, blocks * code_bytes(format)).view({blocks, -1});
  const at::Tensor codes = format.bits == 8 ? bytes.view(at::kChar) : unpack4(bytes);
  multiply(codes.narrow(0, 0, whole_blocks), scales.narrow(0, 0, whole_blocks),
           out.narrow(0, 0, out.numel() - rest).view({whole_blocks, format.block}));
  if (rest > 0)
    multiply(codes[blocks - 1].narrow(0, 0, rest), scales[blocks - 1], out.narrow(0, out.numel() - rest, rest));
}

at::Tensor ErrorFeedback::quantize(const at::Tensor& values, WireFormat format) {
  check(values, format);
  if (num_uses_++ % reset_interval_ == 0 || !error_.defined()) {
    error_ = at::zeros(values.sizes(), values.options().dtype(at::kFloat));
  }
  DSL_CHECK(error_.numel() == values.numel(), "error feedback belongs to tensors of one size");
  const at::Tensor wanted = values.detach().to(at::kFloat) + error_;
  const at::Tensor wire = runtime::quantize(wanted, format);
  at::Tensor sent = at::empty_like(wanted);
  dequantize(wire, format, sent);
  error_.mul_(beta_).add_(wanted - sent, 1.0 - beta_);
  error_.nan_to_num_(0.0, 0.0, 0.0);  // an overflow is skipped, not remembered
  return wire;
}

void quantized_all_gather(comm::Communicator& group, const at::Tensor& shard, at::Tensor out, WireFormat format) {
  DSL_CHECK(out.numel() == shard.numel() * group.size(), "the output holds one part of each rank");
  all_gather_quantized(group, quantize(shard, format), std::move(out), format);
}

void all_gather_quantized(comm::Communicator& group, const at::Tensor& own, at::Tensor out, WireFormat format) {
  const int64_t part = out.numel() / group.size();
  DSL_CHECK(own.numel() == wire_bytes(part, format), "a wire holds one part of the output");
  const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(buffer_of(own), buffer_of(all));
  for (int rank = 0; rank < group.size(); ++rank) {
    dequantize(all.select(0, rank), format, out.narrow(0, rank * part, part));
  }
}

void quantized_reduce_scatter(comm::Communicator& group, const at::Tensor& in, at::Tensor out, WireFormat format,
                              ErrorFeedback* feedback) {
  DSL_CHECK(in.numel() == out.numel() * group.size(), "the input holds one slice for each rank");
  DSL_CHECK(feedback == nullptr || out.numel() % format.block == 0, "with error feedback a slice has whole blocks");
  const int64_t slice = out.numel(), row = wire_bytes(slice, format);
  const at::Tensor outgoing = at::empty({group.size(), row}, in.options().dtype(at::kByte));
  if (feedback) {
    // One wire of all slices: scales, then codes; blocks do not reach from one slice into the next.
    const at::Tensor wire = feedback->quantize(in, format);
    const int64_t scales = num_blocks(in.numel(), format) * kScaleBytes;
    outgoing.copy_(at::cat({wire.narrow(0, 0, scales).view({group.size(), -1}),
                            wire.narrow(0, scales, wire.numel() - scales).view({group.size(), -1})},
                           1));
  } else {
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer != group.rank()) outgoing.select(0, peer).copy_(quantize(in.narrow(0, peer * slice, slice), format));
    }
  }
  const at::Tensor incoming = at::empty_like(outgoing);
  exchange_rows(group, outgoing, incoming);
  at::Tensor sum = at::zeros({slice}, in.options().dtype(at::kFloat));
  at::Tensor part = at::empty_like(sum);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) {
      sum.add_(in.narrow(0, rank * slice, slice));
      continue;
    }
    dequantize(incoming.select(0, rank), format, part);
    sum.add_(part);
  }
  out.copy_(sum);
}

// Everybody in a circle, in round t ranks whose sum is t modulo the circle meet; with an even number the last rank
// stands outside and meets the one that would meet itself.
std::vector<int> meeting_order(int rank, int size) {
  std::vector<int> order;
  if (size < 2) return order;
  const int circle = size % 2 == 0 ? size - 1 : size;
  for (int round = 0; round < circle; ++round) {
    const bool is_outside = rank == circle;
    // 2 * rank == round (mod circle), and circle is odd: half of it is (circle + 1) / 2.
    const int partner = is_outside ? round * ((circle + 1) / 2) % circle : ((round - rank) % circle + circle) % circle;
    order.push_back(partner != rank ? partner : size % 2 == 0 ? circle : -1);
  }
  return order;
}

}  // namespace dslaunch::runtime
