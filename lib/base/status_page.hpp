// What a rank of a run tells about itself while it runs: a page of memory that the rank writes and its agent reads,
// when somebody wants to know. Writing costs the rank less than a microsecond, and neither waits for the other.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch {

// After a step. What is not known is -1.
struct StepStatus {
  int64_t step = 0, total_steps = 0;  // steps done since the start of training, and to be done
  double step_ms = 0;
  double busy_ms = -1;        // of it, forward and backward; measured with wall_clock_breakdown
  int64_t device_bytes = -1;  // peak of the device's allocator

  bool operator==(const StepStatus&) const = default;
};

// The descriptor with which the rank finds its page.
inline constexpr const char* kStatusVariable = "DSLAUNCH_STATUS_FD";

// The reader's end, in the process that starts the rank. One thread.
class StatusPage {
 public:
  // Empty pages in memory that no file system holds; not valid where the system refuses one: the rank then tells
  // nothing.
  StatusPage();

  // For the rank to inherit; -1: none.
  int fd() const { return fd_.get(); }
  // Empty: the rank has done no step, or is writing at this moment.
  std::optional<StepStatus> step() const;
  // The last report (comm/hang_report.hpp); empty likewise.
  std::string report() const;

 private:
  struct Unmap {
    void operator()(void* memory) const;
  };
  UniqueFd fd_;
  std::unique_ptr<void, Unmap> memory_;
};

// The writer's end, in the rank. Any thread.
class StatusWriter {
 public:
  // The page that kStatusVariable names. Removes the variable, which means nothing to children. Null: the rank has
  // none.
  static std::unique_ptr<StatusWriter> from_environment();
  // Null unless `fd` is a page. Takes the descriptor.
  static std::unique_ptr<StatusWriter> open(UniqueFd fd);
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  void set_step(const StepStatus& step);
  // A report that does not fit is dropped, and the last one with it.
  void set_report(std::string_view report);

 private:
  explicit StatusWriter(void* memory) : memory_(memory) {}

  std::mutex mutex_;
  void* const memory_;
};

}  // namespace dslaunch
