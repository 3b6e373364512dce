#include "base/status_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/parse_int.hpp"

namespace dslaunch {
namespace {

constexpr size_t kReportBytes = 60U << 10;

// Bytes behind a counter that is odd while they change; the counter's next even value is a new content. Words are
// released and acquired one by one: who reads a new one sees the odd counter, too. (The thread sanitizer knows no
// fences.)
template <size_t kCapacity>
struct Slot {
  std::atomic<uint32_t> version, size;
  std::atomic<uint64_t> words[(kCapacity + 7) / 8];

  void write(std::string_view value) {
    version.fetch_add(1, std::memory_order_relaxed);
    size.store(static_cast<uint32_t>(value.size()), std::memory_order_release);
    for (size_t at = 0; at < value.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, value.data() + at, std::min<size_t>(8, value.size() - at));
      words[at / 8].store(word, std::memory_order_release);
    }
    version.fetch_add(1, std::memory_order_release);
  }

  // Empty: nothing was written, or it changes at this moment. The writer is another process and may be wrong.
  std::string read() const {
    for (int attempt = 0; attempt < 3; ++attempt) {
      const uint32_t before = version.load(std::memory_order_acquire);
      std::string value(std::min<size_t>(size.load(std::memory_order_acquire), kCapacity), '\0');
      for (size_t at = 0; at < value.size(); at += 8) {
        const uint64_t word = words[at / 8].load(std::memory_order_acquire);
        std::memcpy(value.data() + at, &word, std::min<size_t>(8, value.size() - at));
      }
      if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) return value;
    }
    return {};
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
              "the counter works between processes");

struct Page {
  Slot<sizeof(StepStatus)> step;
  Slot<kReportBytes> report;
};

void* map(int fd) {
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

Page& page_in(void* memory) {
  return *static_cast<Page*>(memory);
}

}  // namespace

void StatusPage::Unmap::operator()(void* memory) const {
  ::munmap(memory, sizeof(Page));
}

// The page cannot shrink: reading beyond its end would end the reader.
StatusPage::StatusPage() : fd_(::memfd_create("dslaunch rank status", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const bool is_page = fd_.valid() && ::ftruncate(fd_.get(), sizeof(Page)) == 0 &&
                       ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (is_page) memory_.reset(map(fd_.get()));
  if (!memory_) fd_.reset();
}

std::optional<StepStatus> StatusPage::step() const {
  if (!memory_) return std::nullopt;
  const std::string bytes = page_in(memory_.get()).step.read();
  if (bytes.size() != sizeof(StepStatus)) return std::nullopt;
  StepStatus out;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

std::string StatusPage::report() const {
  return memory_ ? page_in(memory_.get()).report.read() : std::string();
}

std::unique_ptr<StatusWriter> StatusWriter::from_environment() {
  const char* text = std::getenv(kStatusVariable);
  if (text == nullptr) return nullptr;
  const auto number = parse_int<int>(text);
  ::unsetenv(kStatusVariable);
  if (!number || *number <= STDERR_FILENO) return nullptr;
  // A variable that was copied by hand may name any open descriptor: it is closed only if it is a page.
  const int seals = ::fcntl(*number, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? open(UniqueFd(*number)) : nullptr;
}

std::unique_ptr<StatusWriter> StatusWriter::open(UniqueFd fd) {
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || status.st_size != sizeof(Page)) return nullptr;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  void* memory = map(fd.get());
  return memory == nullptr ? nullptr : std::unique_ptr<StatusWriter>(new StatusWriter(memory));
}

StatusWriter::~StatusWriter() {
  ::munmap(memory_, sizeof(Page));
}

void StatusWriter::set_step(const StepStatus& step) {
  const std::lock_guard lock(mutex_);
  page_in(memory_).step.write({reinterpret_cast<const char*>(&step), sizeof step});
}

void StatusWriter::set_report(std::string_view report) {
  const std::lock_guard lock(mutex_);
  page_in(memory_).report.write(report.size() <= kReportBytes ? report : std::string_view());
}

}  // namespace dslaunch
