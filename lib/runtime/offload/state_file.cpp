#include "runtime/offload/state_file.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::offload {
namespace {

using file_io::kDirectAlignment;

constexpr int64_t kElement = sizeof(float);
constexpr int64_t kElementsOfPage = kDirectAlignment / kElement;
// Of ranges: blocks of a checkpoint, which need not begin with a page.
constexpr int64_t kSmallBytes = (8 << 20) + kDirectAlignment;

int64_t pages(int64_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

int64_t page_before(int64_t offset) {
  return offset / kDirectAlignment * kDirectAlignment;
}

std::span<std::byte> bytes_of(const at::Tensor& values) {
  DSL_CHECK(values.is_cpu() && values.is_contiguous(), "files take contiguous host memory");
  return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
}

at::Tensor view_of(std::span<std::byte> bytes, int64_t count, at::ScalarType dtype) {
  return at::from_blob(bytes.data(), {count}, dtype);
}

void require_fp32(const at::Tensor& values) {
  DSL_CHECK(values.scalar_type() == at::kFloat && values.dim() == 1, "optimizer state is fp32");
}

class StoredSpan final : public StoredArrays {
 public:
  StoredSpan(std::shared_ptr<StateFile> file, size_t number) : StoredArrays(number), file_(std::move(file)) {}

  size_t num_arrays() const override { return file_->layout().num_arrays; }
  void read(size_t array, int64_t begin, const at::Tensor& values) override {
    file_->read(number(), array, begin, values);
  }
  void write(size_t array, int64_t begin, const at::Tensor& values) override {
    file_->write(number(), array, begin, values);
  }
  void read_gradient(int area, int64_t begin, const at::Tensor& values) override {
    file_->read_gradient(number(), area, begin, values);
  }

 private:
  const std::shared_ptr<StateFile> file_;
};

}  // namespace

int64_t StateFileLayout::num_sub_groups(size_t span) const {
  return (numels[span] + sub_group_numel - 1) / sub_group_numel;
}

StateFileLayout plan_state_file(const StateFileOptions& options, std::vector<int64_t> numels) {
  StateFileLayout out;
  int64_t largest = 1;
  for (const int64_t numel : numels) largest = std::max(largest, numel);
  const int64_t wanted = std::max(kElementsOfPage, page_before(options.sub_group_numel * kElement) / kElement);
  out.sub_group_numel = std::min(wanted, pages(largest * kElement) / kElement);
  out.num_arrays = options.num_arrays;
  out.numels = std::move(numels);
  const auto take = [&](int64_t bytes) { return std::exchange(out.bytes, out.bytes + bytes); };
  for (size_t i = 0; i < out.numels.size(); ++i) {
    const int64_t numel = out.numels[i];
    const int64_t array_bytes = pages(numel * kElement);  // whole sub-groups are whole pages
    out.begins.push_back(take(array_bytes * static_cast<int64_t>(out.num_arrays)));
    auto& gradients = out.gradient_begins.emplace_back();
    for (int area = 0; area < options.num_gradient_areas; ++area)
      gradients[static_cast<size_t>(area)] = take(array_bytes);
  }
  const auto num_arrays = static_cast<int64_t>(out.num_arrays) + (options.num_gradient_areas > 0 ? 1 : 0);
  out.buffer_bytes = out.sub_group_numel * kElement * num_arrays;
  return out;
}

int64_t state_file_memory(const StateFileOptions& options, const StateFileLayout& layout) {
  return options.num_buffers * layout.buffer_bytes + std::min(kSmallBytes, pages(layout.bytes));
}

StateFile::StateFile(StateFileOptions options, std::vector<int64_t> numels, std::vector<at::Tensor> staging)
    : options_(std::move(options)),
      layout_(plan_state_file(options_, std::move(numels))),
      file_(open_file()),
      staging_(std::move(staging)) {
  for (int i = 0; i < options_.num_buffers; ++i) buffers_.emplace_back(layout_.buffer_bytes);
  small_ = file_io::AlignedBuffer(std::min(kSmallBytes, pages(layout_.bytes)));
  engine_ = make_engine();
}

std::unique_ptr<file_io::StripedFile> StateFile::open_file() const {
  try {
    return std::make_unique<file_io::StripedFile>(file_io::StripedFileOptions{
        .directories = options_.directories, .bytes = layout_.bytes, .stripe_bytes = options_.block_size});
  } catch (const SystemError& error) {
    throw Error(error.code(),
                fmt::format("{}. It is for offloaded optimizer state; another directory: --set {}=DIR, or "
                            "--nvme_path DIR",
                            error.what(), options_.directory_key));
  }
}

std::unique_ptr<file_io::FileEngine> StateFile::make_engine() {
  file_io::EngineOptions engine;
  engine.block_size = options_.block_size;
  engine.queue_depth = options_.queue_depth;
  engine.num_threads = options_.num_threads;
  for (const auto& block : staging_) engine.buffers.push_back(bytes_of(block));
  for (const auto& buffer : buffers_) engine.buffers.push_back(buffer.bytes());
  engine.buffers.push_back(small_.bytes());
  std::erase_if(engine.buffers, [](const auto& buffer) { return buffer.empty(); });
  engine.wrap_queue = options_.wrap_queue;
  return std::make_unique<file_io::FileEngine>(std::move(engine));
}

std::vector<SubGroup> StateFile::sub_groups(size_t span) const {
  std::vector<SubGroup> out;
  const int64_t numel = layout_.numels[span];
  for (int64_t begin = 0; begin < numel; begin += layout_.sub_group_numel) {
    out.push_back({span, begin, std::min(layout_.sub_group_numel, numel - begin)});
  }
  return out;
}

void StateFile::for_each_part(size_t span, size_t array, int64_t begin, int64_t count, const Move& move) const {
  DSL_CHECK(begin >= 0 && count <= layout_.numels[span] - begin && array < layout_.num_arrays,
            "a range of state that lies in no file");
  const int64_t whole = layout_.sub_group_numel;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t first = at / whole * whole;  // of its sub-group
    const int64_t numel = std::min(whole, layout_.numels[span] - first);
    const int64_t part = std::min(first + numel, begin + count) - at;
    const int64_t arrays_before = first * static_cast<int64_t>(layout_.num_arrays) * kElement;
    const int64_t within = static_cast<int64_t>(array) * pages(numel * kElement) + (at - first) * kElement;
    move(layout_.begins[span] + arrays_before + within, at - begin, part);
    at += part;
  }
}

void StateFile::read(size_t span, size_t array, int64_t begin, const at::Tensor& values) {
  require_fp32(values);
  const auto bytes = bytes_of(values);
  for_each_part(span, array, begin, values.numel(), [&](int64_t offset, int64_t at, int64_t count) {
    read_bytes(offset, bytes.subspan(static_cast<size_t>(at * kElement), static_cast<size_t>(count * kElement)));
  });
}

void StateFile::write(size_t span, size_t array, int64_t begin, const at::Tensor& values) {
  require_fp32(values);
  const auto bytes = bytes_of(values);
  for_each_part(span, array, begin, values.numel(), [&](int64_t offset, int64_t at, int64_t count) {
    write_bytes(offset, bytes.subspan(static_cast<size_t>(at * kElement), static_cast<size_t>(count * kElement)));
  });
}

// A sub-group's place is that of fp32 gradients; shorter ones leave its end unused.
int64_t StateFile::gradient_offset(size_t span, int area, int64_t begin, size_t element_size) const {
  const int64_t first = begin / layout_.sub_group_numel * layout_.sub_group_numel;
  return layout_.gradient_begins[span][static_cast<size_t>(area)] + first * kElement +
         (begin - first) * static_cast<int64_t>(element_size);
}

void StateFile::read_gradient(size_t span, int area, int64_t begin, const at::Tensor& values) {
  const auto bytes = bytes_of(values);
  const size_t element = values.element_size();
  for (int64_t done = 0; done < values.numel();) {
    const int64_t at = begin + done;
    const int64_t left_in_sub_group = layout_.sub_group_numel - at % layout_.sub_group_numel;
    const int64_t count = std::min(left_in_sub_group, values.numel() - done);
    read_bytes(gradient_offset(span, area, at, element),
               bytes.subspan(static_cast<size_t>(done) * element, static_cast<size_t>(count) * element));
    done += count;
  }
}

// Whole pages, through the small buffer: the page cache, which a direct read would have to empty first, never has any
// of the file.
void StateFile::read_bytes(int64_t offset, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  while (!into.empty()) {
    const int64_t first = page_before(offset), lead = offset - first;
    const auto most = static_cast<int64_t>(small_.bytes().size());
    const int64_t bytes = std::min(most, pages(lead + static_cast<int64_t>(into.size())));
    read_pages(first, small_.bytes().first(static_cast<size_t>(bytes)));
    const auto count = std::min(into.size(), static_cast<size_t>(bytes - lead));
    std::memcpy(into.data(), small_.bytes().data() + lead, count);
    into = into.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

// The first and the last page may hold neighbours.
void StateFile::write_bytes(int64_t offset, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  while (!from.empty()) {
    const int64_t first = page_before(offset), lead = offset - first;
    const auto most = static_cast<int64_t>(small_.bytes().size());
    const int64_t bytes = std::min(most, pages(lead + static_cast<int64_t>(from.size())));
    const auto count = std::min(from.size(), static_cast<size_t>(bytes - lead));
    const int64_t end = lead + static_cast<int64_t>(count);
    const auto page = [&](int64_t begin) {
      return small_.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(kDirectAlignment));
    };
    const int64_t last = bytes - kDirectAlignment;
    if (lead > 0) read_pages(first, page(0));
    if (end < bytes && (last > 0 || lead == 0)) read_pages(first + last, page(last));
    std::memcpy(small_.bytes().data() + lead, from.data(), count);
    engine_->wait(engine_->write(*file_, first, small_.bytes().first(static_cast<size_t>(bytes))));
    from = from.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

void StateFile::read_pages(int64_t offset, std::span<std::byte> into) {
  engine_->wait(engine_->read(*file_, offset, into));
}

StateFile::Tickets StateFile::begin_read(const SubGroup& sub_group, int buffer) {
  const auto bytes = buffers_[static_cast<size_t>(buffer)].bytes();
  const int64_t array = pages(sub_group.count * kElement), num_arrays = static_cast<int64_t>(layout_.num_arrays);
  const int64_t offset = layout_.begins[sub_group.span] + sub_group.begin * num_arrays * kElement;
  Tickets out{engine_->read(*file_, offset, bytes.first(static_cast<size_t>(array * num_arrays)))};
  const auto& gradient = sub_group.gradient;
  if (!gradient || gradient->is_zero) return out;
  const auto element = c10::elementSize(gradient->dtype);
  const auto gradient_bytes = static_cast<size_t>(pages(sub_group.count * static_cast<int64_t>(element)));
  out.push_back(engine_->read(*file_, gradient_offset(sub_group.span, gradient->area, sub_group.begin, element),
                              bytes.subspan(static_cast<size_t>(array * num_arrays), gradient_bytes)));
  return out;
}

StateFile::Tickets StateFile::begin_write(const SubGroup& sub_group, int buffer) {
  const int64_t array = pages(sub_group.count * kElement), num_arrays = static_cast<int64_t>(layout_.num_arrays);
  const int64_t offset = layout_.begins[sub_group.span] + sub_group.begin * num_arrays * kElement;
  const auto bytes = buffers_[static_cast<size_t>(buffer)].bytes().first(static_cast<size_t>(array * num_arrays));
  return {engine_->write(*file_, offset, bytes)};
}

StateArrays StateFile::arrays_in(const SubGroup& sub_group, int buffer) const {
  const auto bytes = buffers_[static_cast<size_t>(buffer)].bytes();
  const auto array_bytes = static_cast<size_t>(pages(sub_group.count * kElement));
  const auto array = [&](size_t index) { return bytes.subspan(index * array_bytes); };
  StateArrays out;
  out.master = view_of(array(0), sub_group.count, at::kFloat);
  for (size_t i = 1; i < layout_.num_arrays; ++i) {
    out.moments.push_back(view_of(array(i), sub_group.count, at::kFloat));
  }
  if (const auto& gradient = sub_group.gradient) {
    out.gradient = view_of(array(layout_.num_arrays), sub_group.count, gradient->dtype);
    if (gradient->is_zero) out.gradient.zero_();
  }
  return out;
}

void StateFile::wait(Tickets& tickets) {
  for (const auto ticket : std::exchange(tickets, {})) engine_->wait(ticket);
}

file_io::FileEngine::Ticket StateFile::begin_write_gradient(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                                            std::span<const std::byte> bytes) {
  return engine_->write(*file_, gradient_offset(span, area, begin, c10::elementSize(dtype)), bytes);
}

std::shared_ptr<StoredArrays> stored_arrays(std::shared_ptr<StateFile> file, size_t number) {
  return std::make_shared<StoredSpan>(std::move(file), number);
}

}  // namespace dslaunch::runtime::offload
