// The optimizer state of a rank in files: one striped file, in which the spans lie one after another, each cut into
// sub-groups of at most so many elements. The arrays of a sub-group lie together, each from a multiple of 4096 bytes
// on, so that one direct read brings all that its update needs. Gradients lie apart, cut alike, in two areas.
//
//   span 0: [master m1 m2] [master m1 m2] .. | span 1: .. | area 0 of span 0: [g] [g] .. | area 1: .. | span 1: ..
//            sub-group 0    sub-group 1
//
// A ring of aligned buffers, each of the size of one sub-group, is all the memory that updates use. What else reads
// or writes the state, by ranges, goes through one small buffer.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "file_io/aligned_buffer.hpp"
#include "file_io/file_engine.hpp"
#include "file_io/striped_file.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::offload {

struct StateFileOptions {
  std::vector<std::string> directories;
  std::string directory_key;  // of the config, for messages: "zero_optimization.offload_optimizer.nvme_path"
  int64_t block_size = 1 << 20;
  int queue_depth = 8;
  int num_threads = 1;
  int64_t sub_group_numel = 1 << 24;  // at most; rounded to multiples of what O_DIRECT asks for, up if it is less
  size_t num_arrays = 1;              // of an element: the master and its moments
  int num_gradient_areas = 0;         // 0: gradients rest elsewhere; 2: those of two steps
  int num_buffers = 4;
  std::function<std::unique_ptr<file_io::BlockQueue>(std::unique_ptr<file_io::BlockQueue>)> wrap_queue;  // for tests
};

// Where everything lies. Pure.
struct StateFileLayout {
  int64_t sub_group_numel = 0;
  size_t num_arrays = 0;
  std::vector<int64_t> numels;                          // by span
  std::vector<int64_t> begins;                          // by span, in bytes
  std::vector<std::array<int64_t, 2>> gradient_begins;  // by span and area; 0 without
  int64_t bytes = 0;                                    // of the file
  int64_t buffer_bytes = 0;                             // of one buffer of the ring

  int64_t num_sub_groups(size_t span) const;
};
StateFileLayout plan_state_file(const StateFileOptions& options, std::vector<int64_t> numels);
// Host memory of the ring and of the small buffer.
int64_t state_file_memory(const StateFileOptions& options, const StateFileLayout& layout);

struct SubGroup {
  size_t span = 0;
  int64_t begin = 0, count = 0;  // elements of the span
  std::optional<StoredGradient> gradient = {};
};

class StateFile {
 public:
  // Creates the file and takes its space and all buffers. Throws SystemError as file_io::StripedFile does, with the
  // option that sets another directory. `staging`: host memory from which gradients are written.
  StateFile(StateFileOptions options, std::vector<int64_t> numels, std::vector<at::Tensor> staging = {});
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  const StateFileLayout& layout() const { return layout_; }
  const std::vector<at::Tensor>& staging() const { return staging_; }
  int num_buffers() const { return static_cast<int>(buffers_.size()); }
  // Of a span, in order.
  std::vector<SubGroup> sub_groups(size_t span) const;

  // Ranges of an array; see StoredArrays. Zeros at first.
  void read(size_t span, size_t array, int64_t begin, const at::Tensor& values);
  void write(size_t span, size_t array, int64_t begin, const at::Tensor& values);
  void read_gradient(size_t span, int area, int64_t begin, const at::Tensor& values);

  // For updates: begins to bring a sub-group, with its gradient if it has one, into buffer `buffer`; to write its
  // arrays back; and what the buffer holds after wait(). One thread.
  using Tickets = std::vector<file_io::FileEngine::Ticket>;
  Tickets begin_read(const SubGroup& sub_group, int buffer);
  Tickets begin_write(const SubGroup& sub_group, int buffer);
  StateArrays arrays_in(const SubGroup& sub_group, int buffer) const;
  void wait(Tickets& tickets);

  // Begins to write gradients of one sub-group, from element `begin` of the span on: `bytes`, whole pages of staging
  // memory that hold them from their front, to where a page begins. One thread.
  file_io::FileEngine::Ticket begin_write_gradient(size_t span, int area, int64_t begin, at::ScalarType dtype,
                                                   std::span<const std::byte> bytes);
  void wait(file_io::FileEngine::Ticket ticket) { engine_->wait(ticket); }

 private:
  std::unique_ptr<file_io::StripedFile> open_file() const;
  std::unique_ptr<file_io::FileEngine> make_engine();
  // Calls `move` with the position of each part of a range that lies together.
  using Move = std::function<void(int64_t offset, int64_t begin, int64_t count)>;
  void for_each_part(size_t span, size_t array, int64_t begin, int64_t count, const Move& move) const;
  int64_t gradient_offset(size_t span, int area, int64_t begin, size_t element_size) const;
  void read_bytes(int64_t offset, std::span<std::byte> into);
  void write_bytes(int64_t offset, std::span<const std::byte> from);
  void read_pages(int64_t offset, std::span<std::byte> into);

  // fixed after construction
  const StateFileOptions options_;
  const StateFileLayout layout_;
  std::unique_ptr<file_io::StripedFile> file_;
  std::vector<file_io::AlignedBuffer> buffers_;
  const std::vector<at::Tensor> staging_;
  file_io::AlignedBuffer small_;  // guarded by mutex_
  std::mutex mutex_;
  std::unique_ptr<file_io::FileEngine> engine_;  // last: it writes the buffers until it is gone
};

// The arrays of span `number`; they keep the file open.
std::shared_ptr<StoredArrays> stored_arrays(std::shared_ptr<StateFile> file, size_t number);

}  // namespace dslaunch::runtime::offload
