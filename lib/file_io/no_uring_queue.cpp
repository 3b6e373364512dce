// A build without liburing.
#include "file_io/block_queue.hpp"

namespace dslaunch::file_io {

Result<std::unique_ptr<BlockQueue>> make_uring_queue(int /*depth*/,
                                                     const std::vector<std::span<std::byte>>& /*buffers*/,
                                                     const Note& /*note*/) {
  return Failure{"this build has no liburing (liburing-dev)"};
}

}  // namespace dslaunch::file_io
