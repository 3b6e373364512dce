#include "runtime/telemetry/trace_file.hpp"

#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

std::string quoted(const std::string& text) {
  return dump_json(nlohmann::json(text));
}

std::string metadata(const char* kind, int rank, int lane, const std::string& arguments) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", kind, rank, lane, arguments);
}

std::string event_of(const TraceSpan& span, int rank) {
  std::string details;
  for (const auto& [name, value] : span.details)
    details += fmt::format("{}{}:{}", details.empty() ? "" : ",", quoted(name), quoted(value));
  return fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                     quoted(span.name), span.category, rank, span.lane, span.begin_us, span.duration_us, details);
}

}  // namespace

std::string format_trace(int rank, const std::vector<TraceLane>& lanes, const std::vector<TraceSpan>& spans,
                         const std::vector<std::pair<std::string, double>>& numbers) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  out += metadata("process_name", rank, 0, fmt::format(R"("name":"rank {}")", rank));
  out += ",\n" + metadata("process_sort_index", rank, 0, fmt::format(R"("sort_index":{})", rank));
  for (const auto& lane : lanes) {
    out += ",\n" + metadata("thread_name", rank, lane.lane, "\"name\":" + quoted(lane.name));
    out += ",\n" + metadata("thread_sort_index", rank, lane.lane, fmt::format(R"("sort_index":{})", lane.lane));
  }
  for (const auto& span : spans) out += ",\n" + event_of(span, rank);
  out += "\n],\"otherData\":{";
  for (const auto& [name, value] : numbers)
    out += fmt::format("{}{}:{:.3f}", out.back() == '{' ? "" : ",", quoted(name), value);
  return out + "}}\n";
}

}  // namespace dslaunch::runtime
