#include "runtime/sharding/quantized_collectives.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime {
namespace {

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

void quantized_all_gather(comm::Communicator& group, const at::Tensor& shard, const at::Tensor& out,
                          WireFormat format) {
  DSL_CHECK(out.numel() == shard.numel() * group.size(), "the output holds one part of each rank");
  all_gather_quantized(group, quantize(shard, format), out, format);
}

void all_gather_quantized(comm::Communicator& group, const at::Tensor& own, const at::Tensor& out, WireFormat format) {
  const int64_t part = out.numel() / group.size();
  DSL_CHECK(own.numel() == wire_bytes(part, format), "a wire holds one part of the output");
  const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(buffer_of(own), buffer_of(all));
  for (int rank = 0; rank < group.size(); ++rank) {
    dequantize(all.select(0, rank), format, out.narrow(0, rank * part, part));
  }
}

void quantized_reduce_scatter(comm::Communicator& group, const at::Tensor& in, const at::Tensor& out, WireFormat format,
                              ErrorFeedback* feedback) {
  DSL_CHECK(in.numel() == out.numel() * group.size(), "the input holds one slice for each rank");
  const int64_t slice = out.numel();
  const at::Tensor outgoing = at::empty({group.size(), wire_bytes(slice, format)}, in.options().dtype(at::kByte));
  const Feedback whole = feedback ? feedback->next(in) : Feedback();
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    const Feedback part = feedback ? whole.part(peer * slice, slice) : Feedback();
    quantize(in.narrow(0, peer * slice, slice), format, outgoing.select(0, peer), feedback ? &part : nullptr);
  }
  const at::Tensor incoming = at::empty_like(outgoing);
  exchange_rows(group, outgoing, incoming);
  const at::Tensor sum = at::zeros({slice}, in.options().dtype(at::kFloat));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) {
      sum.add_(in.narrow(0, rank * slice, slice));
    } else {
      add_dequantized(incoming.select(0, rank), format, sum);
    }
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
