// Talking to a link from a test: all of its output, all of its input, within the test's own time limit.
#pragma once
#include <poll.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "spawn/agent_link.hpp"

// Writes `input`, ends it, and reads until the far end does.
inline std::string converse(dslaunch::spawn::AgentLink& link, std::string_view input = {}) {
  dslaunch::spawn::LinkEnds ends = link.take_ends();
  std::string output;
  std::string buffer(1 << 16, '\0');
  for (;;) {
    if (input.empty()) ends.to_agent.reset();
    pollfd polls[] = {{ends.from_agent.get(), POLLIN, 0}, {ends.to_agent.get(), POLLOUT, 0}};
    ::poll(polls, 2, -1);
    if (polls[1].revents != 0) {
      ssize_t wrote = ::write(ends.to_agent.get(), input.data(), input.size());
      if (wrote > 0) input.remove_prefix(static_cast<size_t>(wrote));
      if (wrote < 0 && errno != EAGAIN) input = {};
    }
    if (polls[0].revents == 0) continue;
    ssize_t got = ::read(ends.from_agent.get(), buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EAGAIN)) return output;
    if (got > 0) output.append(buffer, 0, static_cast<size_t>(got));
  }
}
