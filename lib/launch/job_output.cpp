#include "launch/job_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/job_story.hpp"

namespace dslaunch::launch {

JobOutput::JobOutput(const LaunchPlan& plan, OutputOptions options)
    : run_dir_(plan.run_dir), append_logs_(plan.append_logs), options_(options) {
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) {
      std::string prefix = plan.world_size() == 1 ? "" : fmt::format("{}:{}| ", node.host, rank.rank);
      ranks_.push_back({node.host, LineSplitter(prefix), LineSplitter(prefix), {}, {}});
    }
  }
}

void JobOutput::open_logs() {
  if (run_dir_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(run_dir_ + "/logs", error);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::string path = log_path(run_dir_, ranks_[rank].host, static_cast<int>(rank));
    ranks_[rank].log =
        UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append_logs_ ? 0 : O_TRUNC), 0666));
    if (!ranks_[rank].log.valid()) {
      throw UserError(ExitCode::kCannotCreate, fmt::format("cannot create the log {}: {}; choose another --run_dir",
                                                           path, describe_errno(errno)));
    }
  }
}

void JobOutput::take(const RankOutput& output) {
  RankStreams& rank = ranks_[output.rank];
  write_log(rank, output.bytes);
  bool is_err = output.stream == Stream::kErr;
  if (is_err) rank.tail.append(output.bytes);
  if (!is_err && options_.hide_out) return;
  Terminal& terminal = is_err || options_.out_to_err ? err_ : out_;
  terminal.write((is_err ? rank.err : rank.out).take(output.bytes));
}

void JobOutput::finish(int rank) {
  Terminal& out = options_.out_to_err ? err_ : out_;
  out.write(ranks_[rank].out.finish());
  err_.write(ranks_[rank].err.finish());
}

void JobOutput::say(std::string_view text) {
  err_.write(fmt::format("dslaunch: {}\n", text));
}

void JobOutput::drop_pending() {
  out_.drop();
  err_.drop();
}

void JobOutput::write_log(RankStreams& rank, std::string_view bytes) {
  while (rank.log.valid() && !bytes.empty()) {
    ssize_t wrote = ::write(rank.log.get(), bytes.data(), bytes.size());
    if (wrote >= 0) {
      bytes.remove_prefix(wrote);
    } else if (errno != EINTR) {
      // A full disk must not end a job that can still train; its checkpoints will say the same, louder.
      if (!log_trouble_told_)
        say(fmt::format("warning: cannot write to the logs in {}: {}", run_dir_, describe_errno(errno)));
      log_trouble_told_ = true;
      rank.log.reset();
    }
  }
}

}  // namespace dslaunch::launch
