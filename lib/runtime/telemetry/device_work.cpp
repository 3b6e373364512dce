#include "runtime/telemetry/device_work.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::runtime {

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& each) { return each.end <= each.begin; });
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const auto& next : intervals) {
    if (out.empty() || next.begin > out.back().end) {
      out.push_back(next);
    } else {
      out.back().end = std::max(out.back().end, next.end);
    }
  }
  return out;
}

std::vector<Interval> without(const std::vector<Interval>& intervals, const std::vector<Interval>& others) {
  std::vector<Interval> out;
  auto other = others.begin();
  for (auto rest : intervals) {
    while (other != others.end() && other->end <= rest.begin) ++other;
    for (auto next = other; next != others.end() && next->begin < rest.end; ++next) {
      if (next->begin > rest.begin) out.push_back({rest.begin, next->begin});
      rest.begin = next->end;
    }
    if (rest.begin < rest.end) out.push_back(rest);
  }
  return out;
}

double length_of(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const auto& each : intervals) sum += each.end - each.begin;
  return sum;
}

DeviceWork work_of_kernel(std::string_view name) {
  return name.find("nccl") == std::string_view::npos ? DeviceWork::kCompute : DeviceWork::kCommunication;
}

std::string short_kernel_name(std::string name) {
  if (name.starts_with("void ")) name.erase(0, 5);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::", kNative = "at::native::";
  for (const auto part : {kAnonymous, kNative}) {
    for (size_t at = name.find(part); at != std::string::npos; at = name.find(part)) name.erase(at, part.size());
  }
  const size_t arguments = name.rfind('(');
  if (arguments != std::string::npos && arguments > 0 && name.back() == ')') name.erase(arguments);
  return name;
}

std::string describe_stream(int64_t stream, const std::vector<DeviceSpan>& spans) {
  constexpr std::array kNames{"compute", "communication", "copies"};  // in the order of DeviceWork
  std::array<double, kNames.size()> time{};
  for (const auto& span : spans) {
    if (span.stream == stream) time[static_cast<size_t>(span.work)] += span.end_us - span.begin_us;
  }
  const auto most = static_cast<size_t>(std::max_element(time.begin(), time.end()) - time.begin());
  return fmt::format("device: stream {} ({})", stream, kNames[most]);
}

DeviceCommunication communication_in(const std::vector<DeviceSpan>& spans, Interval window) {
  std::vector<Interval> communication, compute;
  for (const auto& span : spans) {
    if (span.work == DeviceWork::kCompute) compute.push_back({span.begin_us, span.end_us});
    if (span.work != DeviceWork::kCommunication) continue;
    communication.push_back({std::max(span.begin_us, window.begin), std::min(span.end_us, window.end)});
  }
  DeviceCommunication out{merged(std::move(communication)), {}};
  out.exposed = without(out.all, merged(std::move(compute)));
  return out;
}

std::string describe_communication(int64_t step, const std::vector<CommunicationTime>& ranks) {
  DSL_CHECK(!ranks.empty(), "a step has ranks");
  const auto has = [&](CommunicationTime::Source source) {
    return std::any_of(ranks.begin(), ranks.end(), [=](const auto& rank) { return rank.source == source; });
  };
  const auto most_by = [&](double CommunicationTime::*time) {
    return std::max_element(ranks.begin(), ranks.end(),
                            [=](const auto& a, const auto& b) { return a.*time < b.*time; });
  };
  if (has(CommunicationTime::Source::kEvents)) {
    const auto most = most_by(&CommunicationTime::total_ms);
    return fmt::format(
        "exposed communication unknown, of {} ms communication in step {} (rank {}, the most of {} ranks): the kernels "
        "could not be recorded",
        format_ms(most->total_ms), step, most - ranks.begin(), ranks.size());
  }
  double sum = 0;
  for (const auto& rank : ranks) sum += rank.exposed_ms;
  const auto most = most_by(&CommunicationTime::exposed_ms);
  return fmt::format(
      "exposed communication {} ms of {} ms communication in step {} (rank {}, the most of {} ranks; mean {} ms){}",
      format_ms(most->exposed_ms), format_ms(most->total_ms), step, most - ranks.begin(), ranks.size(),
      format_ms(sum / static_cast<double>(ranks.size())),
      has(CommunicationTime::Source::kSynchronous) ? "; on CPU ranks it is synchronous, so that all of it is exposed"
                                                   : "");
}

}  // namespace dslaunch::runtime
