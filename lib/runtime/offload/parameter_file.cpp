#include "runtime/offload/parameter_file.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/scope_exit.hpp"
#include "runtime/offload/copy_event.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime::offload {
namespace {

// Ranges are rounded to the compute dtype in parts of this size.
constexpr int64_t kWriteChunk = 1 << 21;  // elements

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

std::span<std::byte> bytes_of(const at::Tensor& values) {
  return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
}

int64_t num_runs(int64_t bytes, int64_t buffer_bytes) {
  return (bytes + buffer_bytes - 1) / buffer_bytes;
}

}  // namespace

ParameterFileLayout plan_parameter_file(const ParameterFileOptions& options, std::span<const StoredSlice> slices) {
  ParameterFileLayout out;
  int64_t largest_slice = 0, largest_element = 1;
  for (const StoredSlice& stored : slices) {
    const auto group = static_cast<size_t>(stored.group);
    if (out.slices.size() <= group) out.slices.resize(group + 1);
    auto& slice = out.slices[group];
    slice.dtype = stored.dtype;
    slice.offset = out.bytes;
    int64_t begin = 0;
    for (const int64_t count : stored.spans) {
      slice.spans.push_back({begin, count, out.bytes});
      begin += count;
      out.bytes += pages(count * size_of(stored.dtype));
    }
    slice.bytes = out.bytes - slice.offset;
    largest_slice = std::max(largest_slice, slice.bytes);
    largest_element = std::max(largest_element, size_of(stored.dtype));
  }
  const int64_t wanted = std::max(file_io::kDirectAlignment, page_before(options.buffer_numel * largest_element));
  out.buffer_bytes = std::min(wanted, std::max(largest_slice, file_io::kDirectAlignment));
  int64_t most = 0;
  for (const auto& slice : out.slices) most += num_runs(slice.bytes, out.buffer_bytes);
  out.num_buffers = static_cast<int>(std::min<int64_t>(options.num_buffers, std::max<int64_t>(most, 1)));
  return out;
}

int64_t parameter_file_memory(const ParameterFileLayout& layout) {
  return layout.num_buffers * layout.buffer_bytes + PagedFile::memory(layout.bytes);
}

ParameterFile::ParameterFile(ParameterFileOptions options, std::span<const StoredSlice> slices,
                             std::vector<at::Tensor> blocks, at::Device device, std::function<void()> check_peers)
    : layout_(plan_parameter_file(options, slices)),
      device_(device),
      check_peers_(std::move(check_peers)),
      blocks_(std::move(blocks)),
      file_(open_file(options)) {}

std::unique_ptr<PagedFile> ParameterFile::open_file(const ParameterFileOptions& options) {
  std::vector<std::span<std::byte>> used;
  for (const auto& block : blocks_) used.push_back(bytes_of(block));
  for (int i = 0; i < layout_.num_buffers; ++i) {
    free_.push_back(buffers_.size());
    buffers_.push_back({page_locked_if_possible(layout_.buffer_bytes, at::kByte, device_), {}});
    used.push_back(bytes_of(buffers_.back().bytes));
  }
  return std::make_unique<PagedFile>(options, layout_.bytes, std::move(used));
}

std::vector<ParameterFile::Run> ParameterFile::runs_of(int group) const {
  const auto& slice = layout_.slices.at(static_cast<size_t>(group));
  std::vector<Run> out;
  for (int64_t done = 0; done < slice.bytes; done += layout_.buffer_bytes) {
    out.push_back({group, slice.offset + done, std::min(layout_.buffer_bytes, slice.bytes - done)});
  }
  return out;
}

void ParameterFile::write(int group, int64_t begin, const at::Tensor& values) {
  const bool is_updating = begin_update(group);
  const ScopeExit allow_reads([&] {
    if (is_updating) return;
    const std::lock_guard lock(mutex_);
    updating_.erase(group);
  });
  const auto& slice = layout_.slices.at(static_cast<size_t>(group));
  const int64_t end = begin + values.numel();
  for (const auto& span : slice.spans) {
    const int64_t last = std::min(end, span.begin + span.count);
    for (int64_t at = std::max(begin, span.begin); at < last; at += kWriteChunk) {
      const int64_t count = std::min(kWriteChunk, last - at);
      const at::Tensor host = values.narrow(0, at - begin, count).to(at::kCPU, slice.dtype).contiguous();
      file_->write(span.offset + (at - span.begin) * size_of(slice.dtype), bytes_of(host));
    }
  }
}

PagedFile::Ticket ParameterFile::begin_write(const StoredParameter& parameter, std::span<const std::byte> bytes) {
  const auto& slice = layout_.slices.at(static_cast<size_t>(parameter.group));
  const auto after = std::upper_bound(slice.spans.begin(), slice.spans.end(), parameter.begin,
                                      [](int64_t begin, const auto& span) { return begin < span.begin; });
  const auto& span = *std::prev(after);
  const int64_t within = parameter.begin - span.begin;
  DSL_CHECK(within % kChunkMultiple == 0 && static_cast<int64_t>(bytes.size()) % file_io::kDirectAlignment == 0,
            "updates write whole pages of parameters");
  return file_->begin_write(span.offset + within * size_of(slice.dtype), bytes);
}

// Reads that were begun, from the first of this group on, are planned again.
bool ParameterFile::begin_update(int group) {
  const std::lock_guard lock(mutex_);
  if (!updating_.insert(group).second) return true;
  const auto first =
      std::find_if(started_.begin(), started_.end(), [&](const Started& each) { return each.run.group == group; });
  std::deque<Run> planned;
  for (auto each = first; each != started_.end(); ++each) planned.push_back(each->run);
  planned.insert(planned.end(), planned_.begin(), planned_.end());
  drop_reads(static_cast<size_t>(first - started_.begin()));
  planned_ = std::move(planned);
  return false;
}

void ParameterFile::end_update(int group) {
  const std::lock_guard lock(mutex_);
  if (updating_.erase(group) > 0) start_reads();
}

void ParameterFile::read(int group, const at::Tensor& slice) {
  const auto runs = runs_of(group);
  {
    const std::lock_guard lock(mutex_);
    DSL_CHECK(updating_.count(group) == 0, "parameters are read after their update");
    if (!is_next(runs.front())) {
      drop_reads(0);
      planned_.assign(runs.begin(), runs.end());
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const Started read = take_next();
    copy(read, slice);
    const std::lock_guard lock(mutex_);
    buffers_[read.buffer].copied = record_current(device_);
    free_.push_back(read.buffer);
    start_reads();
  }
}

void ParameterFile::read_ahead(std::span<const int> groups) {
  std::deque<Run> wanted;
  for (const int group : groups) {
    if (wanted.size() >= buffers_.size()) break;
    for (const Run& run : runs_of(group)) wanted.push_back(run);
  }
  const std::lock_guard lock(mutex_);
  size_t same = 0;
  while (same < std::min(started_.size(), wanted.size()) && started_[same].run == wanted[same]) ++same;
  drop_reads(same);
  wanted.erase(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(same));
  planned_ = std::move(wanted);
  start_reads();
}

bool ParameterFile::is_next(const Run& run) const {
  if (!started_.empty()) return started_.front().run == run;
  return !planned_.empty() && planned_.front() == run;
}

void ParameterFile::start_reads() {
  while (!planned_.empty() && !free_.empty() && updating_.count(planned_.front().group) == 0) {
    Buffer& buffer = buffers_[free_.front()];
    if (buffer.copied && !buffer.copied->query()) return;
    buffer.copied = nullptr;
    const Run run = planned_.front();
    const auto into = bytes_of(buffer.bytes).first(static_cast<size_t>(run.bytes));
    started_.push_back({run, free_.front(), file_->begin_read(run.offset, into)});
    planned_.pop_front();
    free_.pop_front();
  }
}

// While nothing is on its way, all buffers are being copied from.
ParameterFile::Started ParameterFile::take_next() {
  std::unique_lock lock(mutex_);
  start_reads();
  while (started_.empty()) {
    const auto copied = buffers_[free_.front()].copied;
    lock.unlock();
    wait_for_copy(copied, check_peers_);
    lock.lock();
    start_reads();
  }
  const Started out = started_.front();
  started_.pop_front();
  lock.unlock();
  try {
    file_->wait(out.ticket);
  } catch (...) {
    lock.lock();
    free_.push_back(out.buffer);
    throw;
  }
  return out;
}

void ParameterFile::copy(const Started& read, const at::Tensor& slice) const {
  const OffloadScope scope(kUploadScope, static_cast<size_t>(read.run.bytes));
  const int64_t element = size_of(slice.scalar_type());
  for (const auto& span : layout_.slices[static_cast<size_t>(read.run.group)].spans) {
    const int64_t begin = std::max(read.run.offset, span.offset);
    const int64_t end = std::min(read.run.offset + read.run.bytes, span.offset + span.count * element);
    if (begin >= end) continue;
    const at::Tensor values =
        buffers_[read.buffer].bytes.narrow(0, begin - read.run.offset, end - begin).view(slice.scalar_type());
    slice.narrow(0, span.begin + (begin - span.offset) / element, values.numel()).copy_(values, /*non_blocking=*/true);
  }
}

// Nobody asked for what a dropped read came to.
void ParameterFile::drop_reads(size_t first) {
  planned_.clear();
  while (started_.size() > first) {
    const Started last = started_.back();
    started_.pop_back();
    free_.push_front(last.buffer);
    try {
      file_->wait(last.ticket);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    }
  }
}

}  // namespace dslaunch::runtime::offload
