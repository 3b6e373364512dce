// Reads and writes of one file past the page cache, a measurement for each line of standard input, for bench/file_rates
// and bench/offload_files:
//
//   file_rounds DIR BYTES
//
// The first answer is "ready PATH": the file, which has no name and is full of noise; fio can open PATH while this
// program runs. Then lines and answers, two rates in bytes per second, read and written:
//
//   plain WORK MILLISECONDS BLOCK DEPTH             DEPTH threads, each with one pread or pwrite of BLOCK bytes
//   engine WORK MILLISECONDS BLOCK DEPTH THREADS    the engine that a run uses, with these values of "aio"
//
// WORK is "read" or "write"; of plain also a number from 1 to 99: the percentage of blocks that are read, while the
// others are written elsewhere in the file. Statically linked, so it runs on machines where nothing is built.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "file_io/sweep.hpp"

namespace {

using namespace dslaunch;
using Clock = std::chrono::steady_clock;
using file_io::Rates;
using std::chrono::milliseconds;

constexpr int64_t kMaxBytesInFlight = 64 << 20;

// Percentage of blocks that are read.
int read_share_of(const std::string& work) {
  if (work == "read") return 100;
  if (work == "write") return 0;
  const int share = std::atoi(work.c_str());
  if (share < 1 || share > 99) throw std::runtime_error("no such work: " + work);
  return share;
}

// Blocking calls of many threads: nothing of ours but the buffers is in it.
class PlainMeter {
 public:
  PlainMeter(const std::string& path, int64_t bytes) : fd_(::open(path.c_str(), O_RDWR | O_DIRECT)), bytes_(bytes) {
    if (!fd_.valid()) throw std::runtime_error("open " + path + " with O_DIRECT: " + std::strerror(errno));
  }

  Rates measure(int read_share, milliseconds duration, int64_t block, int depth) {
    if (block < 1 || block * 2 > bytes_ || depth < 1) throw std::runtime_error("no such block or depth");
    next_ = 0;
    read_ = written_ = 0;
    std::exception_ptr failure;
    std::mutex mutex;
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < depth; ++i) {
        threads.emplace_back([&] {
          try {
            move_blocks(read_share, begin + duration, block);
          } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
          }
        });
      }
    }
    if (failure) std::rethrow_exception(failure);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return {static_cast<double>(read_) / seconds, static_cast<double>(written_) / seconds};
  }

 private:
  void move_blocks(int read_share, Clock::time_point end, int64_t block) {
    const file_io::AlignedBuffer buffer(block);
    std::memset(buffer.bytes().data(), 0x5a, buffer.bytes().size());
    const int64_t blocks = bytes_ / block, half = blocks / 2;
    while (Clock::now() < end) {
      // Of 100 blocks, spread evenly, `read_share` are read. Mixed, reads and writes each go through half of the file.
      const int64_t number = next_++;
      const int64_t reads = number * read_share / 100;
      const bool is_read = (number + 1) * read_share / 100 > reads;
      const bool is_mixed = read_share > 0 && read_share < 100;
      const int64_t index = !is_mixed ? number % blocks : is_read ? reads % half : half + (number - reads) % half;
      const auto count = static_cast<size_t>(block);
      const ssize_t moved = is_read ? ::pread(fd_.get(), buffer.bytes().data(), count, index * block)
                                    : ::pwrite(fd_.get(), buffer.bytes().data(), count, index * block);
      if (moved != block) {
        throw std::runtime_error(std::string(is_read ? "pread: " : "pwrite: ") +
                                 (moved < 0 ? std::strerror(errno) : "short"));
      }
      (is_read ? read_ : written_) += block;
    }
  }

  const UniqueFd fd_;
  const int64_t bytes_;
  std::atomic<int64_t> next_{0}, read_{0}, written_{0};
};

struct Line {
  std::string program, work;
  int64_t duration = 0, block = 0;
  int depth = 0, threads = 1;
};

Line read_line(const std::string& text) {
  Line line;
  std::istringstream words(text);
  words >> line.program >> line.work >> line.duration >> line.block >> line.depth;
  if (!words || line.duration < 1) throw std::runtime_error("not understood: " + text);
  words >> line.threads;
  return line;
}

Rates answer(const Line& line, PlainMeter& plain, file_io::RateMeter& engine) {
  const int read_share = read_share_of(line.work);
  const milliseconds duration(line.duration);
  if (line.program == "plain") return plain.measure(read_share, duration, line.block, line.depth);
  if (line.program != "engine" || line.work.size() < 4) throw std::runtime_error("no such program: " + line.program);
  const double rate = engine.measure({line.block, line.depth, line.threads}, read_share == 0, duration);
  return {read_share == 0 ? 0 : rate, read_share == 0 ? rate : 0};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("file_rounds DIR BYTES");
  const int64_t bytes = std::atoll(argv[2]);
  const auto note = [](const std::string& line) { std::fprintf(stderr, "file_rounds: %s\n", line.c_str()); };
  file_io::StripedFile file({.directories = {argv[1]}, .bytes = bytes, .note = note});
  file_io::RateMeter engine(file, kMaxBytesInFlight, file_io::Backend::kBest, note);
  engine.fill(milliseconds(0), bytes);
  PlainMeter plain(file.path(0), bytes);
  std::cout << "ready " << file.path(0) << std::endl;
  for (std::string text; std::getline(std::cin, text);) {
    const Rates rates = answer(read_line(text), plain, engine);
    std::cout << rates.read << " " << rates.write << std::endl;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "file_rounds: %s\n", error.what());
  return 1;
}
