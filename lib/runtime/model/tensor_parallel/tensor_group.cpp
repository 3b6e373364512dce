#include "runtime/model/tensor_parallel/tensor_group.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

// Nodes of graphs hold objects of this type.
const auto kRegistration = torch::class_<TensorGroup>("dslaunch", "TensorGroup");

}  // namespace

void TensorGroup::set_communicator(comm::Communicator& communicator) {
  DSL_CHECK(communicator.rank() == rank_ && communicator.size() == size_,
            "the communicator of the tensor group that the model was loaded for");
  communicator_ = &communicator;
}

comm::Communicator& TensorGroup::communicator() {
  DSL_CHECK(communicator_ != nullptr, "set_communicator() comes before the first run of a tensor parallel model");
  return *communicator_;
}

at::Tensor TensorGroup::all_reduce(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return stacked(tensor).sum(0);  // which communicators do not add
  at::Tensor out = tensor.detach().clone(at::MemoryFormat::Contiguous);
  communicator().all_reduce(buffer_of(out), comm::ReduceOp::kSum);
  return out;
}

void TensorGroup::overlap(at::Device device) {
  streams_.emplace(device, /*overlaps=*/true);
}

TensorGroup::Started TensorGroup::start_all_reduce(const at::Tensor& tensor) {
  Started out;
  streams_->wait(SideStream::kReduction, streams_->mark());
  out.end = streams_->run(SideStream::kReduction, [&] { out.tensor = all_reduce(tensor); });
  return out;
}

at::Tensor TensorGroup::stacked(const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach().contiguous();
  std::vector<int64_t> shape{size_};
  shape.insert(shape.end(), own.sizes().begin(), own.sizes().end());
  at::Tensor out = at::empty(shape, own.options());
  communicator().all_gather(buffer_of(own.view(-1).view(at::kByte)), buffer_of(out.view(-1).view(at::kByte)));
  return out;
}

at::Tensor TensorGroup::all_gather(const at::Tensor& part, int64_t dim, const Layout& layout) {
  const int64_t longest = longest_of(layout);
  int64_t whole = 0;
  for (const auto& ranges : layout) {
    for (const Range& range : ranges) whole = std::max(whole, range.end);
  }
  // Parts have one length on the wire, and their dim comes first: a range is then one block of memory.
  at::Tensor own = part.detach().movedim(dim, 0);
  if (own.size(0) < longest) {
    auto shape = own.sizes().vec();
    shape[0] = longest - own.size(0);
    own = at::cat({own, at::zeros(shape, own.options())});
  }
  const at::Tensor parts = stacked(own);
  auto shape = own.sizes().vec();
  shape[0] = whole;
  const at::Tensor out = at::empty(shape, own.options());
  for (int rank = 0; rank < size_; ++rank) {
    int64_t begin = 0;
    for (const Range& range : layout.at(static_cast<size_t>(rank))) {
      out.narrow(0, range.begin, range.size()).copy_(parts[rank].narrow(0, begin, range.size()));
      begin += range.size();
    }
  }
  return out.movedim(0, dim).contiguous();
}

at::Tensor part_of(const at::Tensor& whole, int64_t dim, const std::vector<Range>& ranges) {
  if (ranges.size() == 1) return whole.narrow(dim, ranges[0].begin, ranges[0].size());
  if (ranges.empty()) return whole.narrow(dim, 0, 0);
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(whole.narrow(dim, range.begin, range.size()));
  return at::cat(parts, dim);
}

int64_t length_of(const std::vector<Range>& ranges) {
  int64_t out = 0;
  for (const Range& range : ranges) out += range.size();
  return out;
}

int64_t longest_of(const Layout& layout) {
  int64_t out = 0;
  for (const auto& ranges : layout) out = std::max(out, length_of(ranges));
  return out;
}

LocalIndices local_indices(const at::Tensor& indices, const std::vector<Range>& own) {
  at::Tensor positions = at::zeros_like(indices), is_own = at::zeros_like(indices, indices.options().dtype(at::kBool));
  int64_t begin = 0;
  for (const Range& range : own) {
    const at::Tensor inside = indices.ge(range.begin).logical_and_(indices.lt(range.end));
    positions = at::where(inside, indices - (range.begin - begin), positions);
    is_own = is_own.logical_or(inside);
    begin += range.size();
  }
  return {std::move(positions), std::move(is_own)};
}

}  // namespace dslaunch::runtime::model::tensor_parallel
