// The other end of a job's control socket. Blocks up to the deadlines that it is given. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "launch/jobs/job_requests.hpp"

namespace dslaunch::launch {

class JobClient {
 public:
  // Not connected when nobody listens: the job has ended, or never had a socket, or lets others wait already.
  explicit JobClient(const std::string& path);
  bool connected() const { return connection_.valid(); }

  // Never blocks. False when the supervisor is gone.
  bool ask(const JobRequest& request);
  // To poll for answers.
  int fd() const { return connection_.get(); }
  // Takes in what is there, without waiting. False at the other side's end; answers that came before it are still to be
  // had from next().
  bool receive();
  std::optional<JobAnswer> next() { return answers_.next(); }
  // Waits for the next answer. Empty at the deadline or the other side's end.
  std::optional<JobAnswer> await(Deadline deadline);

 private:
  UniqueFd connection_;
  AnswerReader answers_;
};

}  // namespace dslaunch::launch
