// Carries out the orders of an attempt's lifecycle: has the agents start, stop and kill the ranks. One thread.
#pragma once
#include <chrono>
#include <optional>

#include "launch/channel/message.hpp"
#include "launch/supervisor/attempt.hpp"

namespace dslaunch::launch {

class JobControl {
 public:
  explicit JobControl(Attempt& attempt) : attempt_(attempt) {}

  void handle_event(JobEvent event);
  void carry_out(const JobOrder& order);
  // Call whenever a node's session may have been the last one.
  void end_if_all_over();
  void send_to_all(const MessageToAgent& message);

 private:
  void record_times(const JobOrder& order);
  void stop_ranks(std::chrono::milliseconds grace);
  void abandon();

  Attempt& attempt_;
  std::optional<Deadline::Clock::time_point> ranks_started_;
};

}  // namespace dslaunch::launch
