#include "file_io/sweep.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>

#include "base/error.hpp"

namespace dslaunch::file_io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockSizes[] = {256 << 10, 1 << 20, 4 << 20};
constexpr int kQueueDepths[] = {2, 8, 32};
constexpr int kThreads[] = {1, 2, 4};
// Requests that a measurement has under way: together twice the blocks in flight, so that the engine never waits for
// the next one. They share the memory of half as many, as much as is in flight: fio's buffers are that small too, and
// what the processor's caches hold is moved faster. No one looks at the bytes.
constexpr int kRequests = 4, kParts = 2;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool has_passed(std::chrono::milliseconds duration, Clock::time_point begin) {
  return Clock::now() - begin >= duration;
}

int64_t bytes_in_flight(const Setting& setting) {
  return setting.block_size * setting.queue_depth * setting.num_threads;
}

// The time of one byte in and one byte out.
double cost(const MeasuredSetting& each) {
  return 1 / each.rates.read + 1 / each.rates.write;
}

// Bytes that neither compress nor repeat, or a file system that compresses would be measured as faster than its disk.
void fill_with_noise(std::span<std::byte> bytes) {
  uint64_t state = 0x9E3779B97F4A7C15U;
  for (size_t i = 0; i + sizeof state <= bytes.size(); i += sizeof state) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(bytes.data() + i, &state, sizeof state);
  }
}

}  // namespace

std::vector<Setting> plan_sweep(int num_cores, int64_t max_bytes_in_flight) {
  std::vector<Setting> settings;
  for (const int threads : kThreads) {
    for (const int64_t block_size : kBlockSizes) {
      for (const int depth : kQueueDepths) {
        const Setting setting{block_size, depth, threads};
        const bool fits = threads <= num_cores && bytes_in_flight(setting) <= max_bytes_in_flight;
        if (fits || settings.empty()) settings.push_back(setting);
      }
    }
  }
  return settings;
}

const MeasuredSetting& choose_best(const std::vector<MeasuredSetting>& all) {
  const auto cheaper = [](const auto& a, const auto& b) { return cost(a) < cost(b); };
  const double limit = cost(*std::min_element(all.begin(), all.end(), cheaper)) * 1.03;
  const MeasuredSetting* best = nullptr;
  const auto is_smaller = [](const Setting& a, const Setting& b) {
    return std::pair(a.num_threads, bytes_in_flight(a)) < std::pair(b.num_threads, bytes_in_flight(b));
  };
  for (const auto& each : all) {
    if (cost(each) <= limit && (best == nullptr || is_smaller(each.setting, best->setting))) best = &each;
  }
  return *best;
}

RateMeter::RateMeter(StripedFile& file, int64_t max_bytes_in_flight, Backend backend, Note note)
    : file_(file), buffer_(max_bytes_in_flight), backend_(backend), note_(std::move(note)) {
  fill_with_noise(buffer_.bytes());
}

int64_t RateMeter::fill(std::chrono::milliseconds limit, int64_t least_bytes) {
  FileEngine engine({.block_size = 1 << 20, .queue_depth = 16, .backend = backend_, .note = note_});
  const auto most = std::min<int64_t>(static_cast<int64_t>(buffer_.bytes().size()), 32 << 20);
  const auto begin = Clock::now();
  while (filled_ < file_.bytes() && (filled_ < least_bytes || !has_passed(limit, begin))) {
    const int64_t bytes = std::min(most, file_.bytes() - filled_);
    engine.wait(engine.write(file_, filled_, buffer_.bytes().first(static_cast<size_t>(bytes))));
    filled_ += bytes;
  }
  return filled_;
}

double RateMeter::measure(const Setting& setting, bool is_write, std::chrono::milliseconds duration) {
  const int64_t half = (bytes_in_flight(setting) + 1) / 2;
  const int64_t blocks = (half + setting.block_size - 1) / setting.block_size;
  const int64_t own_share = static_cast<int64_t>(buffer_.bytes().size()) / kParts;
  const int64_t request = std::min({blocks * setting.block_size, filled_, own_share});
  const auto buffer = buffer_.bytes().first(static_cast<size_t>(request * kParts));
  FileEngine engine({.block_size = setting.block_size,
                     .queue_depth = setting.queue_depth,
                     .num_threads = setting.num_threads,
                     .backend = backend_,
                     .buffers = {buffer},
                     .note = note_});
  std::deque<FileEngine::Ticket> tickets;
  int64_t num_begun = 0, offset = 0;
  const auto begin_next = [&] {
    const auto part = buffer.subspan(static_cast<size_t>(num_begun++ % kParts * request), static_cast<size_t>(request));
    if (offset + request > filled_) offset = 0;
    tickets.push_back(is_write ? engine.write(file_, offset, part) : engine.read(file_, offset, part));
    offset += request;
  };
  const auto finish_first = [&] {
    const auto ticket = tickets.front();
    tickets.pop_front();
    engine.wait(ticket);
  };
  const auto begin = Clock::now();
  while (static_cast<int>(tickets.size()) < kRequests) begin_next();
  while (!has_passed(duration, begin)) {
    finish_first();
    begin_next();
  }
  while (!tickets.empty()) finish_first();
  return static_cast<double>(num_begun * request) / seconds_since(begin);
}

double measure_copy_rate(int num_threads, std::chrono::milliseconds duration) {
  constexpr int64_t kBytes = 32 << 20;  // beyond the caches
  const auto count = static_cast<size_t>(num_threads);
  std::vector<AlignedBuffer> from(count), to(count);
  for (size_t i = 0; i < count; ++i) {
    from[i] = AlignedBuffer(kBytes);
    to[i] = AlignedBuffer(kBytes);
    fill_with_noise(from[i].bytes());
  }
  std::vector<double> rates(count);
  const auto copy = [&](size_t i) {
    const auto begin = Clock::now();
    int64_t num_copies = 0;
    for (; num_copies == 0 || !has_passed(duration, begin); ++num_copies) {
      std::memcpy(to[i].bytes().data(), from[i].bytes().data(), kBytes);
    }
    rates[i] = static_cast<double>(num_copies * kBytes) / seconds_since(begin);
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < count; ++i) others.emplace_back(copy, i);
  copy(0);
  others.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace dslaunch::file_io
