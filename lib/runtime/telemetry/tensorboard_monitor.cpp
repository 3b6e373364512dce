#include "runtime/telemetry/tensorboard_monitor.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>

#include "base/format.hpp"
#include "base/host_name.hpp"
#include "runtime/telemetry/event_record.hpp"

namespace dslaunch::runtime {
namespace {

// The count distinguishes two writers of one process in the same second.
std::string file_in(const std::string& directory, double now) {
  static std::atomic<int> count = 0;
  make_directory(directory);
  return fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", directory, static_cast<int64_t>(now), host_name(),
                     ::getpid(), count++);
}

}  // namespace

double TensorBoardMonitor::wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TensorBoardMonitor::TensorBoardMonitor(const std::string& directory, Clock now)
    : now_(std::move(now)), file_(file_in(directory, now_())) {
  file_.write(event_record(encode_version_event(now_())));
}

void TensorBoardMonitor::write(std::span<const ScalarEvent> events) {
  std::string records;  // one write, so that a reader sees whole records
  for (const auto& event : events) {
    records += event_record(encode_scalar_event(now_(), event.samples, event.name, static_cast<float>(event.value)));
  }
  file_.write(records);
}

void TensorBoardMonitor::write_texts(std::span<const TextEvent> events) {
  std::string records;
  for (const auto& event : events) {
    records += event_record(encode_text_event(now_(), event.samples, event.name, event.text));
  }
  file_.write(records);
}

}  // namespace dslaunch::runtime
