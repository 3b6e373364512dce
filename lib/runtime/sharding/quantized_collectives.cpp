#include "runtime/sharding/quantized_collectives.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime {

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
  group.all_to_all(buffer_of(outgoing), buffer_of(incoming));
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

}  // namespace dslaunch::runtime
