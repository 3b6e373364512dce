#include "runtime/model/tensor_parallel/tensor_group.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

// Whether the ranks' parts, one behind the other, are the whole.
bool are_slices(const Layout& layout) {
  const int64_t each = length_of(layout.at(0));
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const Range slice{static_cast<int64_t>(rank) * each, static_cast<int64_t>(rank + 1) * each};
    if (layout[rank].size() != 1 || layout[rank][0].begin != slice.begin || layout[rank][0].end != slice.end) {
      return false;
    }
  }
  return true;
}

// Nodes of graphs hold objects of this type.
const auto kRegistration = torch::class_<TensorGroup>("dslaunch", "TensorGroup");

}  // namespace

void TensorGroup::set_communicator(comm::Communicator& communicator) {
  DSL_CHECK(communicator.rank() == rank_ && communicator.size() == size_,
            "the communicator of the tensor group that the model was loaded for");
  communicator_ = &communicator;
}

template <class Collective>
void TensorGroup::communicate(const Collective& collective) {
  DSL_CHECK(communicator_ != nullptr, "set_communicator() comes before the first run of a tensor parallel model");
  try {
    collective(*communicator_);
  } catch (const Error&) {
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void TensorGroup::throw_failure() {
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

at::Tensor TensorGroup::all_reduce(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return stacked(tensor).sum(0);  // which communicators do not add
  at::Tensor out = tensor.detach().clone(at::MemoryFormat::Contiguous);
  communicate([&](comm::Communicator& ranks) { ranks.all_reduce(buffer_of(out), comm::ReduceOp::kSum); });
  return out;
}

at::Tensor TensorGroup::sum_in_place(const at::Tensor& tensor) {
  if (!tensor.is_contiguous() || tensor.scalar_type() == at::kDouble) return all_reduce(tensor);
  communicate([&](comm::Communicator& ranks) { ranks.all_reduce(buffer_of(tensor), comm::ReduceOp::kSum); });
  return tensor;
}

void TensorGroup::wait_until(const std::function<bool()>& is_reached) {
  communicate([&](comm::Communicator& ranks) { ranks.wait_until(is_reached); });
}

void TensorGroup::wait_for_completion() {
  communicate([](comm::Communicator& ranks) { ranks.wait_for_completion(); });
}

void TensorGroup::overlap(at::Device device) {
  streams_.emplace(device, /*overlaps=*/true);
}

TensorGroup::Started TensorGroup::start(const std::function<at::Tensor()>& collective) {
  Started out;
  streams_->wait(SideStream::kReduction, streams_->mark());
  out.end = streams_->run(SideStream::kReduction, [&] { out.tensor = collective(); });
  return out;
}

at::Tensor TensorGroup::reduce_scatter(const at::Tensor& tensor, int64_t dim) {
  const int64_t length = tensor.size(dim);
  if (length % size_ != 0 || tensor.scalar_type() == at::kDouble) {  // slices of collectives have one length
    const Range own = own_positions(length, *this);
    return all_reduce(tensor).narrow(dim, own.begin, own.size()).contiguous();
  }
  const at::Tensor in = tensor.detach().movedim(dim, 0).contiguous();
  auto shape = in.sizes().vec();
  shape[0] = length / size_;
  at::Tensor out = at::empty(shape, in.options());
  communicate(
      [&](comm::Communicator& ranks) { ranks.reduce_scatter(buffer_of(in), buffer_of(out), comm::ReduceOp::kSum); });
  return out.movedim(0, dim).contiguous();
}

at::Tensor TensorGroup::stacked(const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach().contiguous();
  std::vector<int64_t> shape{size_};
  shape.insert(shape.end(), own.sizes().begin(), own.sizes().end());
  at::Tensor out = at::empty(shape, own.options());
  communicate([&](comm::Communicator& ranks) {
    ranks.all_gather(buffer_of(own.view(-1).view(at::kByte)), buffer_of(out.view(-1).view(at::kByte)));
  });
  return out;
}

at::Tensor TensorGroup::all_gather(const at::Tensor& part, int64_t dim, const Layout& layout) {
  const int64_t longest = longest_of(layout);
  // Parts have one length on the wire, and their dim comes first: a range is then one block of memory.
  at::Tensor own = part.detach().movedim(dim, 0);
  if (own.size(0) < longest) {
    auto shape = own.sizes().vec();
    shape[0] = longest - own.size(0);
    own = at::cat({own, at::zeros(shape, own.options())});
  }
  const at::Tensor parts = stacked(own);
  if (are_slices(layout)) return parts.flatten(0, 1).movedim(0, dim).contiguous();
  auto shape = own.sizes().vec();
  shape[0] = whole_length_of(layout);
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

Range own_positions(int64_t length, const TensorGroup& group) {
  return layout_of_positions(length, group.size()).at(static_cast<size_t>(group.rank())).at(0);
}

Layout layout_of_positions(int64_t length, int ranks) {
  Layout out;
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t end = begin + length / ranks + (rank < length % ranks ? 1 : 0);
    out.push_back({{begin, end}});
    begin = end;
  }
  return out;
}

int64_t whole_length_of(const Layout& layout) {
  int64_t out = 0;
  for (const auto& ranges : layout) {
    for (const Range& range : ranges) out = std::max(out, range.end);
  }
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
