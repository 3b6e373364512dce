// The optimizer state of a rank in files: one striped file, in which the spans lie one after another, each cut into
// sub-groups of at most so many elements. The arrays of a sub-group lie together, each from a multiple of 4096 bytes
// on, so that one direct read brings all that its update needs. Gradients lie apart, cut alike, in two areas.
//
//   span 0: [master m1 m2] [master m1 m2] .. | span 1: .. | area 0 of span 0: [g] [g] .. | area 1: .. | span 1: ..
//            sub-group 0    sub-group 1
//
// A ring of aligned buffers, each of the size of one sub-group, is all the memory that updates use. What else reads
// or writes the state, by ranges, goes through small blocks (paged_file.hpp).
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "file_io/aligned_buffer.hpp"
#include "runtime/offload/paged_file.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::offload {

struct StateFileOptions : PagedFileOptions {
  int64_t sub_group_numel = 1 << 24;  // at most; rounded to multiples of what O_DIRECT asks for, up if it is less
  size_t num_arrays = 1;              // of an element: the master and its moments
  int num_gradient_areas = 0;         // 0: gradients rest elsewhere; 2: those of two steps
  bool stages_parameters = false;     // a third area has what a delayed update wrote, until it is published
  int num_buffers = 4;
};

// Where everything lies. Pure.
struct StateFileLayout {
  int64_t sub_group_numel = 0;
  size_t num_arrays = 0;
  std::vector<int64_t> numels;                      // by span
  std::vector<int64_t> begins;                      // by span, in bytes
  std::vector<std::array<int64_t, 3>> area_begins;  // by span and area; 0 without
  int64_t bytes = 0;                                // of the file
  int64_t buffer_bytes = 0;                         // of one buffer of the ring

  int64_t num_sub_groups(size_t span) const;
};
StateFileLayout plan_state_file(const StateFileOptions& options, std::vector<int64_t> numels);
// Host memory of the ring and of what ranges go through.
int64_t state_file_memory(const StateFileOptions& options, const StateFileLayout& layout);

struct SubGroup {
  size_t span = 0;
  int64_t begin = 0, count = 0;  // elements of the span
  std::optional<StoredGradient> gradient = {};
};

class StateFile {
 public:
  // Creates the file and takes its space and all buffers. Throws as PagedFile does. `staging`: host memory from which
  // gradients are written.
  StateFile(StateFileOptions options, std::vector<int64_t> numels, std::vector<at::Tensor> staging = {});
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  const StateFileLayout& layout() const { return layout_; }
  const std::vector<at::Tensor>& staging() const { return staging_; }
  int num_buffers() const { return static_cast<int>(buffers_.size()); }
  // Of a span, in order.
  std::vector<SubGroup> sub_groups(size_t span) const;

  // Ranges of an array; see StoredArrays. Zeros at first.
  void read(size_t span, size_t array, int64_t begin, const at::Tensor& values, int64_t num_following);
  void write(size_t span, size_t array, int64_t begin, const at::Tensor& values);
  void read_gradient(size_t span, int area, int64_t begin, const at::Tensor& values);

  // For updates: begins to bring a sub-group, with its gradient if it has one, into buffer `buffer`; to write its
  // arrays back; and what the buffer holds after wait(). One thread.
  using Tickets = std::vector<PagedFile::Ticket>;
  Tickets begin_read(const SubGroup& sub_group, int buffer);
  Tickets begin_write(const SubGroup& sub_group, int buffer);
  StateArrays arrays_in(const SubGroup& sub_group, int buffer) const;
  void wait(Tickets& tickets);

  // The third area: parameters of a sub-group, written by a delayed update.
  static constexpr int kStagedParameters = 2;
  // Begins to write to an area, or to read from it, within one sub-group from element `begin` of the span on: `bytes`,
  // whole pages that hold the elements from their front, to where a page begins. One thread.
  PagedFile::Ticket begin_write_area(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                     std::span<const std::byte> bytes);
  PagedFile::Ticket begin_read_area(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                    std::span<std::byte> bytes);
  void wait(PagedFile::Ticket ticket) { file_->wait(ticket); }

 private:
  std::unique_ptr<PagedFile> open_file();
  // Calls `move` with the position of each part of a range that lies together.
  using Move = std::function<void(int64_t offset, int64_t begin, int64_t count)>;
  void for_each_part(size_t span, size_t array, int64_t begin, int64_t count, const Move& move) const;
  int64_t area_offset(size_t span, int area, int64_t begin, size_t element_size) const;

  // fixed after construction
  const StateFileOptions options_;
  const StateFileLayout layout_;
  std::vector<file_io::AlignedBuffer> buffers_;
  const std::vector<at::Tensor> staging_;
  std::unique_ptr<PagedFile> file_;  // last: it uses the buffers until it is gone
};

// The arrays of span `number`; they keep the file open.
std::shared_ptr<StoredArrays> stored_arrays(std::shared_ptr<StateFile> file, size_t number);

}  // namespace dslaunch::runtime::offload
