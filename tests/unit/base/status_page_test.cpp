#include "base/status_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/deadline.hpp"

using namespace dslaunch;

namespace {

UniqueFd inherited(const StatusPage& page) {
  return UniqueFd(::fcntl(page.fd(), F_DUPFD_CLOEXEC, 3));
}

}  // namespace

TEST_CASE("a rank's agent reads what the rank wrote last", "[base][status_page]") {
  const StatusPage page;
  REQUIRE(page.fd() >= 0);
  CHECK_FALSE(page.step());
  CHECK(page.report().empty());
  const auto writer = StatusWriter::open(inherited(page));
  REQUIRE(writer);
  const StepStatus step{.step = 7, .total_steps = 9, .step_ms = 1.5, .busy_ms = 1, .device_bytes = 1LL << 40};
  writer->set_step({.step = 6});
  writer->set_step(step);
  writer->set_report(std::string("wa\0it", 5));
  CHECK(page.step() == step);
  CHECK(page.report() == std::string("wa\0it", 5));
  writer->set_report(std::string(1 << 20, 'x'));  // does not fit
  CHECK(page.report().empty());
  CHECK(page.step() == step);
}

TEST_CASE("a reader never sees half of a report", "[base][status_page]") {
  const StatusPage page;
  const auto writer = StatusWriter::open(inherited(page));
  REQUIRE(writer);
  // After every third report the writer waits for a read: the reader meets it while it writes, and in between.
  std::atomic<bool> over = false;
  std::atomic<int> num_reads = 0;
  std::thread writes([&] {
    for (int i = 0; !over; ++i) {
      const int before = num_reads;
      writer->set_report(std::string(1000 + i % 7, static_cast<char>('a' + i % 7)));
      while (i % 3 == 0 && !over && num_reads == before) std::this_thread::yield();
    }
  });
  size_t num_whole = 0;
  bool is_mixed = false;
  for (const Deadline end = Deadline::after(std::chrono::seconds(20)); num_whole < 500 && !end.passed();) {
    const std::string report = page.report();
    ++num_reads;
    if (report.empty()) {
      std::this_thread::yield();
      continue;
    }
    ++num_whole;
    is_mixed |= report.find_first_not_of(report[0]) != report.npos;
    is_mixed |= report.size() != 1000 + static_cast<size_t>(report[0] - 'a');
  }
  over = true;
  writes.join();
  CHECK_FALSE(is_mixed);
  CHECK(num_whole == 500);
}

TEST_CASE("only a page is taken for a page", "[base][status_page]") {
  CHECK_FALSE(StatusWriter::open(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  CHECK_FALSE(StatusWriter::open(UniqueFd()));
  const UniqueFd other(::memfd_create("other", MFD_CLOEXEC));
  ::setenv(kStatusVariable, std::to_string(other.get()).c_str(), 1);
  CHECK_FALSE(StatusWriter::from_environment());
  CHECK(std::getenv(kStatusVariable) == nullptr);
  CHECK(::fcntl(other.get(), F_GETFD) >= 0);  // a descriptor of somebody else stays open
  for (const char* text : {"", "x", "-1", "1", "99999"}) {
    ::setenv(kStatusVariable, text, 1);
    CHECK_FALSE(StatusWriter::from_environment());
  }
  const StatusPage page;
  UniqueFd own = inherited(page);
  ::setenv(kStatusVariable, std::to_string(own.release()).c_str(), 1);
  CHECK(StatusWriter::from_environment());
  CHECK(::ftruncate(page.fd(), 0) != 0);  // the rank cannot take the memory away from its agent
}
