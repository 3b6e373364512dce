// Which settings of an engine are the fastest for the files of one directory: the settings to measure, one measurement,
// and the choice among them.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "file_io/aligned_buffer.hpp"
#include "file_io/file_engine.hpp"
#include "file_io/striped_file.hpp"

namespace dslaunch::file_io {

// The keys of "aio".
struct Setting {
  int64_t block_size = 1 << 20;
  int queue_depth = 8;
  int num_threads = 1;
  bool operator==(const Setting&) const = default;
};

// In bytes per second.
struct Rates {
  double read = 0, write = 0;
};

struct MeasuredSetting {
  Setting setting;
  Rates rates;
};

// Pure. Settings with more bytes in flight, or more threads than cores, are left out; at least one is in it.
std::vector<Setting> plan_sweep(int num_cores, int64_t max_bytes_in_flight);
// Pure. An update reads and writes the same bytes, so what counts is the time of both. Among those within 3 % of the
// best, which is less than they vary, the one with the fewest threads and then the fewest bytes in flight. `all` is not
// empty.
const MeasuredSetting& choose_best(const std::vector<MeasuredSetting>& all);

// Moves the bytes of one file through engines of several settings. One thread.
class RateMeter {
 public:
  // `max_bytes_in_flight`: of all settings, and the memory that is taken. `note` as for FileEngine, once for each
  // line.
  RateMeter(StripedFile& file, int64_t max_bytes_in_flight, Backend backend, Note note);

  // Writes the file from its beginning, since what was never written reads faster than any disk, and goes on until
  // `limit` has passed and `least_bytes` are written; measurements stay within what was written. Returns its bytes.
  int64_t fill(std::chrono::milliseconds limit, int64_t least_bytes);
  // Sequential, over and over. Bytes per second. After fill().
  double measure(const Setting& setting, bool is_write, std::chrono::milliseconds duration);

 private:
  StripedFile& file_;
  const AlignedBuffer buffer_;
  const Backend backend_;
  const Note note_;
  int64_t filled_ = 0;
};

// Bytes per second of copies from memory to memory by so many threads at once. Throws std::bad_alloc.
double measure_copy_rate(int num_threads, std::chrono::milliseconds duration);

}  // namespace dslaunch::file_io
