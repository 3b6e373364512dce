// One range of bytes in unnamed files, a file in each of several directories: stripe i of the range is in directory
// i mod n, so that one large read uses all disks. The files have no name, so nothing of them is left when the process
// ends, however it ends.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "file_io/block_queue.hpp"

namespace dslaunch::file_io {

// What O_DIRECT asks of offsets, sizes and addresses; enough for disks with blocks of 512 and 4096 bytes.
constexpr int64_t kDirectAlignment = 4096;

// O_TMPFILE, or where the file system does not support it a file that loses its name at once. Invalid, with errno, if
// neither works.
UniqueFd open_unnamed(const std::string& directory);

struct StripedFileOptions {
  std::vector<std::string> directories;  // at least one; the same may appear twice
  int64_t bytes = 0;
  int64_t stripe_bytes = 1 << 20;  // a multiple of kDirectAlignment
  bool wants_direct = true;        // false: through the page cache
  Note note;                       // gets a line when a directory refuses O_DIRECT; empty: it is logged
};

class StripedFile {
 public:
  // Creates the files and reserves their space. Throws SystemError with the directory and the system's reason: 73 if it
  // cannot hold a file, 74 if its file system is full. Reads before any write return zeros.
  explicit StripedFile(StripedFileOptions options);

  int64_t bytes() const { return options_.bytes; }
  int num_files() const { return static_cast<int>(files_.size()); }
  bool uses_direct(int file) const { return files_[static_cast<size_t>(file)]->is_direct; }
  const std::string& directory(int file) const { return options_.directories[static_cast<size_t>(file)]; }
  // A path that other programs of this user can open while this object lives.
  std::string path(int file) const;

  // Where `offset` of the range lies, and how many bytes from there on lie together. Any thread.
  struct Place {
    int file = 0;
    int64_t offset = 0, bytes = 0;
  };
  Place locate(int64_t offset) const;

  // Fills in the descriptor for the block's address, size and offset: with O_DIRECT where they are aligned and the
  // file system accepts it; the two may be mixed. Any thread.
  void open_block(int file, Block& block) const;
  // From now on through the page cache. Any thread; the first call of each file writes the note.
  void give_up_direct(int file);

 private:
  struct File {
    UniqueFd buffered, direct;
    std::atomic<bool> is_direct{false};
  };

  void open(size_t file);
  void open_direct(size_t file);
  int64_t bytes_of(size_t file) const;
  void note_buffered(size_t file, int error) const;

  // fixed after construction, but for File::is_direct
  StripedFileOptions options_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace dslaunch::file_io
