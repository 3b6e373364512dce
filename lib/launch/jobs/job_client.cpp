#include "launch/jobs/job_client.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "launch/event_loop/poll_set.hpp"
#include "launch/records/socket_path.hpp"

namespace dslaunch::launch {

JobClient::JobClient(const std::string& path) {
  if (!path.empty()) connection_ = connect_to(path);
}

bool JobClient::send(const JobRequest& request) {
  // Smaller than the socket's send buffer.
  std::string line = encode_request(request);
  return connected() &&
         ::send(connection_.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

bool JobClient::receive() {
  char buffer[16384];
  ssize_t got = ::recv(connection_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got > 0) answers_.append({buffer, static_cast<size_t>(got)});
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

std::optional<JobAnswer> JobClient::await(Deadline deadline) {
  bool there = connected();
  for (;;) {
    if (auto answer = next()) return answer;
    if (!there) return std::nullopt;
    PollSet polls;
    size_t index = polls.add(fd(), POLLIN);
    polls.wait(deadline);
    if (polls.ready(index)) {
      there = receive();
    } else if (deadline.passed()) {
      return std::nullopt;
    }
  }
}

}  // namespace dslaunch::launch
