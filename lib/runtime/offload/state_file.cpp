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
  void read(size_t array, int64_t begin, const at::Tensor& values, int64_t num_following) override {
    file_->read(number(), array, begin, values, num_following);
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
    auto& areas = out.area_begins.emplace_back();
    for (int area = 0; area < options.num_gradient_areas; ++area) areas[static_cast<size_t>(area)] = take(array_bytes);
    if (options.stages_parameters) areas[StateFile::kStagedParameters] = take(array_bytes);
  }
  const auto num_arrays = static_cast<int64_t>(out.num_arrays) + (options.num_gradient_areas > 0 ? 1 : 0);
  out.buffer_bytes = out.sub_group_numel * kElement * num_arrays;
  return out;
}

int64_t state_file_memory(const StateFileOptions& options, const StateFileLayout& layout) {
  return options.num_buffers * layout.buffer_bytes + PagedFile::memory(layout.bytes);
}

StateFile::StateFile(StateFileOptions options, std::vector<int64_t> numels, std::vector<at::Tensor> staging)
    : options_(std::move(options)),
      layout_(plan_state_file(options_, std::move(numels))),
      staging_(std::move(staging)),
      file_(open_file()) {}

std::unique_ptr<PagedFile> StateFile::open_file() {
  std::vector<std::span<std::byte>> used;
  for (const auto& block : staging_) used.push_back(bytes_of(block));
  for (int i = 0; i < options_.num_buffers; ++i) {
    used.push_back(buffers_.emplace_back(layout_.buffer_bytes).bytes());
  }
  return std::make_unique<PagedFile>(options_, layout_.bytes, std::move(used));
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

void StateFile::read(size_t span, size_t array, int64_t begin, const at::Tensor& values, int64_t num_following) {
  require_fp32(values);
  const auto bytes = bytes_of(values);
  std::optional<int64_t> next;
  if (num_following > 0) {
    for_each_part(span, array, begin + values.numel(), 1, [&](int64_t offset, int64_t, int64_t) { next = offset; });
  }
  for_each_part(span, array, begin, values.numel(), [&](int64_t offset, int64_t at, int64_t count) {
    const auto part = bytes.subspan(static_cast<size_t>(at * kElement), static_cast<size_t>(count * kElement));
    file_->read(offset, part, at + count == values.numel() ? next : std::nullopt);
  });
}

void StateFile::write(size_t span, size_t array, int64_t begin, const at::Tensor& values) {
  require_fp32(values);
  const auto bytes = bytes_of(values);
  for_each_part(span, array, begin, values.numel(), [&](int64_t offset, int64_t at, int64_t count) {
    file_->write(offset, bytes.subspan(static_cast<size_t>(at * kElement), static_cast<size_t>(count * kElement)));
  });
}

// A sub-group's place is that of fp32 values; shorter ones leave its end unused.
int64_t StateFile::area_offset(size_t span, int area, int64_t begin, size_t element_size) const {
  const int64_t first = begin / layout_.sub_group_numel * layout_.sub_group_numel;
  return layout_.area_begins[span][static_cast<size_t>(area)] + first * kElement +
         (begin - first) * static_cast<int64_t>(element_size);
}

void StateFile::read_gradient(size_t span, int area, int64_t begin, const at::Tensor& values) {
  const auto bytes = bytes_of(values);
  const size_t element = values.element_size();
  for (int64_t done = 0; done < values.numel();) {
    const int64_t at = begin + done;
    const int64_t left_in_sub_group = layout_.sub_group_numel - at % layout_.sub_group_numel;
    const int64_t count = std::min(left_in_sub_group, values.numel() - done);
    file_->read(area_offset(span, area, at, element),
                bytes.subspan(static_cast<size_t>(done) * element, static_cast<size_t>(count) * element));
    done += count;
  }
}

StateFile::Tickets StateFile::begin_read(const SubGroup& sub_group, int buffer) {
  const auto bytes = buffers_[static_cast<size_t>(buffer)].bytes();
  const int64_t array = pages(sub_group.count * kElement), num_arrays = static_cast<int64_t>(layout_.num_arrays);
  const int64_t offset = layout_.begins[sub_group.span] + sub_group.begin * num_arrays * kElement;
  Tickets out{file_->begin_read(offset, bytes.first(static_cast<size_t>(array * num_arrays)))};
  const auto& gradient = sub_group.gradient;
  if (!gradient || gradient->is_zero) return out;
  const auto element = c10::elementSize(gradient->dtype);
  const auto gradient_bytes = static_cast<size_t>(pages(sub_group.count * static_cast<int64_t>(element)));
  out.push_back(file_->begin_read(area_offset(sub_group.span, gradient->area, sub_group.begin, element),
                                  bytes.subspan(static_cast<size_t>(array * num_arrays), gradient_bytes)));
  return out;
}

StateFile::Tickets StateFile::begin_write(const SubGroup& sub_group, int buffer) {
  const int64_t array = pages(sub_group.count * kElement), num_arrays = static_cast<int64_t>(layout_.num_arrays);
  const int64_t offset = layout_.begins[sub_group.span] + sub_group.begin * num_arrays * kElement;
  const auto bytes = buffers_[static_cast<size_t>(buffer)].bytes().first(static_cast<size_t>(array * num_arrays));
  return {file_->begin_write(offset, bytes)};
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
  for (const auto ticket : std::exchange(tickets, {})) file_->wait(ticket);
}

PagedFile::Ticket StateFile::begin_write_area(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                              std::span<const std::byte> bytes) {
  return file_->begin_write(area_offset(span, area, begin, c10::elementSize(dtype)), bytes);
}

PagedFile::Ticket StateFile::begin_read_area(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                             std::span<std::byte> bytes) {
  return file_->begin_read(area_offset(span, area, begin, c10::elementSize(dtype)), bytes);
}

std::shared_ptr<StoredArrays> stored_arrays(std::shared_ptr<StateFile> file, size_t number) {
  return std::make_shared<StoredSpan>(std::move(file), number);
}

}  // namespace dslaunch::runtime::offload
