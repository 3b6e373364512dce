#include "runtime/telemetry/csv_monitor.hpp"

#include "base/format.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {
namespace {

std::string file_name(std::string event) {
  for (char& c : event) c = c == '/' || c == ' ' ? '_' : c;
  return event + ".csv";
}

}  // namespace

CsvMonitor::CsvMonitor(std::string directory) : directory_(std::move(directory)) {
  make_directory(directory_);
}

AppendFile& CsvMonitor::file_of(const std::string& event) {
  auto found = files_.find(event);
  if (found != files_.end()) return found->second;
  auto& file = files_.emplace(event, AppendFile(directory_ + "/" + file_name(event))).first->second;
  file.write("step," + event.substr(event.rfind('/') + 1) + "\r\n");
  return file;
}

void CsvMonitor::write(std::span<const ScalarEvent> events) {
  for (const auto& event : events)
    file_of(event.name).write(fmt::format("{},{}\r\n", event.samples, python_float(event.value)));
}

}  // namespace dslaunch::runtime
