// What the time of a step goes to on a CPU: for each operator and each node of backward the time in it itself, without
// what it calls. Recorded while this object exists, at about a microsecond a call.
//
// Constructed, taken and destroyed on the engine's thread; operators come from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/telemetry/operator_scopes.hpp"

namespace dslaunch::runtime {

// All calls of an operator, or of a kernel of a device.
struct WorkTime {
  std::string name;
  int64_t num_calls = 0;
  double milliseconds = 0;
};

class OperatorTimes {
 public:
  OperatorTimes();

  std::vector<WorkTime> take();  // in any order

  // For OperatorScopes.
  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  void end(const at::RecordFunction& call, at::ObserverContext* context);

 private:
  struct Call;
  static thread_local Call* innermost_;  // that runs on this thread
  std::mutex mutex_;
  std::unordered_map<std::string, WorkTime> times_;  // guarded
  OperatorScopes<OperatorTimes> scopes_;             // last: it calls the rest
};

}  // namespace dslaunch::runtime
