#include "runtime/offload/update_ring.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dslaunch::runtime::offload {

UpdateRing::UpdateRing(std::shared_ptr<StateFile> file, Options options)
    : file_(std::move(file)), options_(options), buffers_(static_cast<size_t>(file_->num_buffers())) {
  DSL_CHECK(!buffers_.empty(), "updates of state in files need a buffer");
}

void UpdateRing::begin(std::vector<SubGroup> order) {
  order_ = std::move(order);
  num_read_ = num_returned_ = 0;
}

// With two buffers the next sub-group is read into the one that was written last, after the write.
StateArrays UpdateRing::next() {
  const size_t num_buffers = buffers_.size(), kept = num_buffers > 2 ? 2 : 1;
  const size_t ahead = options_.reads_ahead ? num_buffers - kept : 0;
  read_up_to(std::min(order_.size(), num_returned_ + 1 + ahead));
  const SubGroup& sub_group = order_.at(num_returned_);
  const int index = index_of(num_returned_);
  num_returned_ += 1;
  file_->wait(buffers_[static_cast<size_t>(index)].reads);
  return file_->arrays_in(sub_group, index);
}

void UpdateRing::read_up_to(size_t end) {
  for (; num_read_ < end; ++num_read_) {
    const int index = index_of(num_read_);
    Buffer& buffer = buffers_[static_cast<size_t>(index)];
    file_->wait(buffer.writes);
    buffer.reads = file_->begin_read(order_[num_read_], index);
  }
}

void UpdateRing::store() {
  const size_t stored = num_returned_ - 1;
  const int index = index_of(stored);
  Buffer& buffer = buffers_[static_cast<size_t>(index)];
  buffer.writes = file_->begin_write(order_[stored], index);
  if (!options_.writes_behind) file_->wait(buffer.writes);
}

void UpdateRing::finish() {
  for (Buffer& buffer : buffers_) file_->wait(buffer.writes);
}

}  // namespace dslaunch::runtime::offload
