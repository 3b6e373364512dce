// What a device did and when, as intervals: the kernels and copies of its streams, and how much of the communication
// computation did not hide. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::runtime {

struct Interval {
  double begin = 0, end = 0;
};

// The same points in time as disjoint intervals in order; those without length vanish.
std::vector<Interval> merged(std::vector<Interval> intervals);
// What of `intervals` lies in none of `others`; both merged.
std::vector<Interval> without(const std::vector<Interval>& intervals, const std::vector<Interval>& others);
double length_of(const std::vector<Interval>& intervals);  // of merged ones

enum class DeviceWork : uint8_t { kCompute, kCommunication, kCopy };  // copies and memory that is set

// One kernel or copy.
struct DeviceSpan {
  std::string name;
  DeviceWork work = DeviceWork::kCompute;
  int64_t stream = 0;  // as the driver numbers them
  double begin_us = 0, end_us = 0;
};

// NCCL's kernels communicate, all others compute.
DeviceWork work_of_kernel(std::string_view name);

// Of a C++ kernel: neither its return type nor its arguments.
std::string short_kernel_name(std::string name);

// "device: stream 7 (compute)": by the kind of work that takes most of its time.
std::string describe_stream(int64_t stream, const std::vector<DeviceSpan>& spans);

// The times in which NCCL's kernels run and no kernel computes; a copy does not hide communication. Only communication
// within `window` counts.
struct DeviceCommunication {
  std::vector<Interval> all, exposed;
};
DeviceCommunication communication_in(const std::vector<DeviceSpan>& spans, Interval window);

// Of one rank's step.
struct CommunicationTime {
  enum class Source : uint8_t {
    kKernels,      // as the device ran them
    kSynchronous,  // nothing computes during a collective of CPU ranks: all of it is exposed
    kEvents,       // only the collectives are known: what of them is exposed is not
  };
  Source source = Source::kSynchronous;
  double total_ms = 0, exposed_ms = 0;
};

// One line about all ranks, in their order: "exposed communication 3.2 ms of 15.6 ms …".
std::string describe_communication(int64_t step, const std::vector<CommunicationTime>& ranks);

}  // namespace dslaunch::runtime
